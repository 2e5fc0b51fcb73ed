// Holds requests at the service until they are let go. A rehearsal stops the service at a known place with it, does
// something else (cancels the run, kills the worker, changes a row) and lets the service go on: no race with a clock.
import { z } from 'zod';

export const gateRuleSchema = z.strictObject({
  /** The end of the path it holds; any path, when absent. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /**
   * `request`, the default: held on arrival, counted by the quota, not carried out. `answer`: carried out, and the
   * answer is held.
   */
  hold: z.enum(['request', 'answer']).optional(),
  /** So many matching requests pass first; 0 unless given. */
  after: z.int().min(0).optional(),
});
export type GateRule = z.infer<typeof gateRuleSchema>;

export interface GateStatus {
  closed: boolean;
  /** Requests that wait at the gate now, also those whose client has gone. */
  held: number;
}

/** A gate for the requests that the quota let through; closed from the start when a rule is given. */
export function createGate(initial?: GateRule) {
  let rule: GateRule | undefined;
  let passed = 0;
  const held = new Set<() => void>();

  /** The requests held by an earlier rule stay held until the gate opens. */
  function close(next: GateRule): void {
    rule = next;
    passed = 0;
  }
  if (initial) close(initial);

  return {
    close,
    open(): void {
      rule = undefined;
      for (const letGo of held) letGo();
      held.clear();
    },
    status: (): GateStatus => ({ closed: rule !== undefined, held: held.size }),
    /** Where a request that arrives now is held; undefined when it passes. To be asked once for each request. */
    placeFor(method: string, path: string): 'request' | 'answer' | undefined {
      if (!rule) return undefined;
      const { path: end = '', method: only = method, hold = 'request', after = 0 } = rule;
      if (method !== only || !path.endsWith(end)) return undefined;
      passed += 1;
      return passed > after ? hold : undefined;
    },
    /** Resolves when the gate opens; rejects when `signal` aborts. */
    wait: (signal: AbortSignal): Promise<void> =>
      new Promise((resolve, reject) => {
        const drop = () => reject(signal.reason as Error);
        signal.addEventListener('abort', drop, { once: true });
        held.add(() => {
          signal.removeEventListener('abort', drop);
          resolve();
        });
      }),
  };
}

export type Gate = ReturnType<typeof createGate>;
