// Reconciles the whole window after each nightly sync, and in between reads every few minutes what was changed at the
// service. All workers run this; the state lets one of them read at a time.
import { codeOf } from '../../errors/errors.js';
import { createStoppable, repeat, type Stoppable, type Turns } from '../../process/lifecycle.js';
import { reconcileModified, reconcileNightly, type ReconcileDeps } from './reconcile.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;

/**
 * Runs until stopped; a stop interrupts a reading at once. `everyMinutes` counts over all processes; 0: only after
 * nightly syncs. A reading that fails is logged and retried. One of `turns` is taken for a reading, which keeps one of the
 * few connections of the state.
 */
export function reconcilePeriodically(
  deps: ReconcileDeps,
  { everyMinutes, turns }: { everyMinutes: number; turns: Turns },
): Stoppable {
  const { stopping, stop, abort } = createStoppable('reconcile', deps.log, () => loop.ended);
  // Another process may have read meanwhile: asked more often than read.
  const everyMs =
    everyMinutes === 0 ? MINUTE : Math.min(MINUTE, Math.max(SECOND, (everyMinutes * MINUTE) / 10));
  const loop = repeat(
    () =>
      turns.take(async () => {
        await reconcileNightly(deps, stopping);
        if (everyMinutes > 0) await reconcileModified(deps, { everyMinutes }, stopping);
      }),
    {
      everyMs,
      signal: stopping,
      onError: (error) => deps.log.warn({ code: codeOf(error) }, 'reconcile failed; it is retried'),
    },
  );
  return { stop, abort };
}
