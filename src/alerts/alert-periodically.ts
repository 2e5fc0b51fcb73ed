// A loop of its own in each worker: alerts are decided and sent beside the work, and never before it.
import { codeOf } from '../errors/errors.js';
import { createStoppable, endsWithin, repeat, type Stoppable } from '../process/lifecycle.js';
import { evaluateAlerts, sendDue, type AlertDeps } from './tell.js';

const LOOK_EVERY_MS = 15_000;
/** For noting that what was being sent was given up. A state that does not answer holds up no stop. */
const END_WITHIN_MS = 1000;

/** Runs until stopped. A stop abandons what is being sent at once: it is still due, for whoever looks next. */
export function alertPeriodically(deps: AlertDeps): Stoppable {
  const { stopping, stop, abort } = createStoppable('alerts', deps.log, () =>
    endsWithin(loop.ended, END_WITHIN_MS),
  );
  const loop = repeat(
    async () => {
      await evaluateAlerts(deps);
      await sendDue(deps, stopping);
    },
    {
      everyMs: LOOK_EVERY_MS,
      signal: stopping,
      onError: (error) => deps.log.warn({ code: codeOf(error) }, 'alerts not evaluated; it is retried'),
    },
  );
  return { stop, abort };
}
