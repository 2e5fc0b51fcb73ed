// What goes wrong on the way to a real service and back: ordered for certain requests, or by seeded chance.
import { once } from 'node:events';
import { z } from 'zod';
import type { SandboxAnswer } from './http.js';

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

const FAULTS = ['status', 'reset', 'loseAnswer', 'brokenJson', 'hang'] as const;

export const failRuleSchema = z.strictObject({
  /** The end of the path it is for; any request, when absent. */
  path: z.string().optional(),
  fault: z.enum(FAULTS),
  /** For `status`: 500 unless given. */
  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** How many requests it hits; 1 unless given. */
  times: z.int().min(1).optional(),
});
export type FailRule = z.infer<typeof failRuleSchema>;

export function createFaults(random: () => number, initial: Faults = {}) {
  let chances = initial;
  let rules: (FailRule & { left: number })[] = [];

  /** The fault that a request meets, if any: ordered ones first, in their order, then by chance. */
  function draw(path: string): FailRule | undefined {
    const rule = rules.find((one) => path.endsWith(one.path ?? ''));
    if (rule !== undefined) {
      rule.left -= 1;
      if (rule.left <= 0) rules = rules.filter((one) => one !== rule);
      return rule;
    }
    let left = random();
    for (const fault of FAULTS) {
      left -= chances[fault === 'status' ? 'status500' : fault] ?? 0;
      if (left < 0) return { fault };
    }
    return undefined;
  }

  return {
    draw,
    /** Processes a request with the fault that it meets; without an answer the connection is to be reset. */
    async process(
      path: string,
      processed: () => SandboxAnswer,
      signal: AbortSignal,
    ): Promise<SandboxAnswer | undefined> {
      const rule = draw(path);
      const status = rule?.status ?? 500;
      switch (rule?.fault) {
        case undefined:
          return processed();
        case 'status':
          return { status, headers: rule.headers, body: rule.body ?? { status, message: 'requested fault' } };
        case 'reset':
          return undefined;
        case 'loseAnswer':
          processed();
          return undefined;
        case 'brokenJson':
          return { ...processed(), isBroken: true };
        case 'hang':
          await once(signal, 'abort');
          return undefined;
      }
    },
    controls: {
      setFaults(next: Faults): void {
        chances = next;
      },
      /** Orders a fault for the next request that the quota lets through and whose path ends so. */
      failNext(rule: FailRule): void {
        rules.push({ ...rule, left: rule.times ?? 1 });
      },
      /** Forgets what `failNext` ordered and has not happened yet. */
      clearFailures(): void {
        rules = [];
      },
    },
  };
}
