// Holds requests at the service until they are let go. A rehearsal stops the service at a known place with it, acts
// (cancels the run, kills the worker, changes a row) and lets the service continue, so that nothing depends on a clock.
import { EventEmitter, once } from 'node:events';
import { z } from 'zod';

export const gateRuleSchema = z.strictObject({
  /** The end of the path it holds; any path, when absent. */
  path: z.string().optional(),
  method: z.string().toUpperCase().optional(),
  /**
   * `request`, the default: held on arrival, counted by the quota, not processed. `answer`: processed, and the answer is
   * held.
   */
  hold: z.enum(['request', 'answer']).optional(),
  /** So many matching requests pass first; 0 unless given. */
  after: z.int().min(0).optional(),
});
export type GateRule = z.infer<typeof gateRuleSchema>;

/** Closed from the start when a rule is given. */
export function createGate(initial?: GateRule) {
  let rule = initial;
  let passed = 0;
  const opening = new EventEmitter().setMaxListeners(0);

  /** The place where the rule holds this request, if it does. */
  function placeFor(method: string, path: string): 'request' | 'answer' | undefined {
    if (rule === undefined || method !== (rule.method ?? method) || !path.endsWith(rule.path ?? ''))
      return undefined;
    passed += 1;
    return passed > (rule.after ?? 0) ? (rule.hold ?? 'request') : undefined;
  }

  return {
    /** Processes a request, and holds it or its answer if the rule says so; throws when `signal` aborts meanwhile. */
    async process<T>(
      { method, path }: { method: string; path: string },
      processed: () => Promise<T>,
      signal: AbortSignal,
    ): Promise<T> {
      const place = placeFor(method, path);
      if (place === 'request') await once(opening, 'open', { signal });
      const answer = await processed();
      if (place === 'answer') await once(opening, 'open', { signal });
      return answer;
    },
    controls: {
      /**
       * Holds the requests that match and that the quota lets through, from now on. They are answered when the gate opens,
       * and processed then if they were not yet, also when their client has gone. What an earlier rule holds stays held.
       */
      closeGate(next: GateRule = {}): void {
        rule = next;
        passed = 0;
      },
      /** Lets go all that is held. */
      openGate(): void {
        rule = undefined;
        opening.emit('open');
      },
      /** Whether the gate is closed, and how many requests it holds, also those whose client has gone. */
      gate: () => ({ closed: rule !== undefined, held: opening.listenerCount('open') }),
    },
  };
}
