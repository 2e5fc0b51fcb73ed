// After each night the window is reconciled; between nights, what people changed at the service is read every few
// minutes. By one of the processes that run.
import { setTimeout as sleep } from 'node:timers/promises';
import { codeOf } from '../../errors.js';
import { reconcileModified, reconcileNightly, type ReconcileDeps } from './reconcile.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/**
 * Reconciles after each night, and reads changes there every `everyMinutes`, over all processes, until told to stop; 0:
 * after nights alone. A reading that fails is logged, and tried again at the next look.
 */
export function reconcilePeriodically(deps: ReconcileDeps, everyMinutes: number): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const { signal } = stopping;
  // Others may have been at it meanwhile: looked at more often than read.
  const lookEveryMs =
    everyMinutes === 0 ? MINUTE : Math.min(MINUTE, Math.max(SECOND, (everyMinutes * MINUTE) / 10));

  async function keep(): Promise<void> {
    while (!signal.aborted) {
      try {
        await reconcileNightly(deps, signal);
        if (everyMinutes > 0) await reconcileModified(deps, { everyMinutes }, signal);
      } catch (error) {
        if (signal.aborted) return;
        deps.log.warn({ code: codeOf(error) }, 'reservations could not be reconciled; to be tried again');
      }
      await sleep(lookEveryMs, undefined, { signal }).catch(() => undefined);
    }
  }

  const kept = keep();
  return {
    async stop() {
      stopping.abort(new Error('the worker is stopping'));
      await kept;
    },
  };
}
