// Requests that lost their connection and are carried out all the same, later: what a client sees as a lost answer while
// its write may still land. They are carried out as they were sent, after whatever was written meanwhile.
import { EventEmitter, once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

/** When the connection is reset: milliseconds after arrival, or when `resetLate` is called. */
export type ResetAfter = number | 'asked';

/** Keeps requests until `signal` aborts; then those that wait are dropped. */
export function createLateRequests(signal: AbortSignal) {
  const waiting = new Set<() => unknown>();
  const resetting = new EventEmitter().setMaxListeners(0);

  function carryOut(request: () => unknown): void {
    if (waiting.delete(request)) request();
  }

  return {
    /**
     * Carries a request out `delayMs` after its arrival, or when `releaseLate` is called. Resolves when its connection is
     * to be reset; throws when `signal` aborts before.
     */
    async keep(
      request: () => unknown,
      { afterMs = 0, delayMs }: { afterMs?: ResetAfter | undefined; delayMs?: number | undefined },
    ): Promise<void> {
      waiting.add(request);
      if (delayMs !== undefined) {
        const carriedOut = () => carryOut(request);
        void sleep(delayMs, undefined, { signal }).then(carriedOut, () => undefined);
      }
      if (afterMs === 'asked') await once(resetting, 'reset', { signal });
      else if (afterMs > 0) await sleep(afterMs, undefined, { signal });
    },
    controls: {
      /** How many requests wait to be carried out late. */
      late: () => waiting.size,
      /** Carries them out now, in the order in which they arrived. */
      releaseLate(): void {
        for (const request of waiting) carryOut(request);
      },
      /** Resets the connections that were to stay until this is called. */
      resetLate(): void {
        resetting.emit('reset');
      },
    },
  };
}
