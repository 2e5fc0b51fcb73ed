// What goes wrong on the way to a real service and back: ordered for certain requests, or by seeded chance.
import { z } from 'zod';

const chance = z.number().min(0).max(1).optional();

/** Probabilities from 0 to 1, for each request that the quota lets through. */
export const faultsSchema = z.strictObject({
  /** Answered with 500, not processed. */
  status500: chance,
  /** Connection reset before processing. */
  reset: chance,
  /** Processed, then the connection is reset instead of an answer. */
  loseAnswer: chance,
  /** Processed, and answered with half a JSON document. */
  brokenJson: chance,
  /** Not processed and never answered. */
  hang: chance,
});
export type Faults = z.infer<typeof faultsSchema>;

export const failRuleSchema = z.strictObject({
  /** The end of the path it is for; any request, when absent. */
  path: z.string().optional(),
  fault: z.enum(['status', 'reset', 'loseAnswer', 'brokenJson', 'hang']),
  /** For `status`: 500 unless given. */
  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** How many requests it hits; 1 unless given. */
  times: z.int().min(1).optional(),
});
export type FailRule = z.infer<typeof failRuleSchema>;

/** Decides which fault a request meets, if any: ordered ones first, in their order, then by chance. */
export function createFaults(random: () => number, initial: Faults = {}) {
  let faults = initial;
  let rules: (FailRule & { left: number })[] = [];

  return {
    set(next: Faults): void {
      faults = next;
    },
    failNext(rule: FailRule): void {
      rules.push({ ...rule, left: rule.times ?? 1 });
    },
    clearFailures(): void {
      rules = [];
    },
    draw(path: string): FailRule | undefined {
      const rule = rules.find((one) => one.path === undefined || path.endsWith(one.path));
      if (rule !== undefined) {
        rule.left -= 1;
        if (rule.left <= 0) rules = rules.filter((one) => one !== rule);
        return rule;
      }
      let left = random();
      for (const name of ['status500', 'reset', 'loseAnswer', 'brokenJson', 'hang'] as const) {
        left -= faults[name] ?? 0;
        if (left < 0) return { fault: name === 'status500' ? 'status' : name };
      }
      return undefined;
    },
  };
}

export type FaultSource = ReturnType<typeof createFaults>;
