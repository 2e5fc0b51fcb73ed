// What goes wrong on the way to a real service and back, on order or by seeded chance.

/** Probabilities from 0 to 1, judged for each request that the quota let through. */
export interface Faults {
  /** Answered with 500, not processed. */
  status500?: number | undefined;
  /** Connection reset before processing. */
  reset?: number | undefined;
  /** Processed, then the connection is reset instead of an answer. */
  loseAnswer?: number | undefined;
  /** Processed, and answered with half a JSON document. */
  brokenJson?: number | undefined;
  /** Not processed and never answered. */
  hang?: number | undefined;
}

export interface FailRule {
  /** The end of the path it is for; any request, when absent. */
  path?: string | undefined;
  fault: 'status' | 'reset' | 'loseAnswer' | 'brokenJson' | 'hang';
  /** For `status`: 500 unless given. */
  status?: number | undefined;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  /** How many requests it hits; 1 unless given. */
  times?: number | undefined;
}

const CHANCES = [
  ['status500', 'status'],
  ['reset', 'reset'],
  ['loseAnswer', 'loseAnswer'],
  ['brokenJson', 'brokenJson'],
  ['hang', 'hang'],
] as const;

/** Decides which fault, if any, a request meets: ordered ones first, in their order, then chance. */
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
      let chance = random();
      for (const [name, fault] of CHANCES) {
        chance -= faults[name] ?? 0;
        if (chance < 0) return { fault };
      }
      return undefined;
    },
  };
}

export type FaultSource = ReturnType<typeof createFaults>;
