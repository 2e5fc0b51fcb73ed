// Loops in each worker, beside its other work: one decides and sends alerts, the others send heartbeats.
import { codeOf } from '../errors/errors.js';
import { createStoppable, endsWithin, repeat, type Stoppable } from '../process/lifecycle.js';
import type { Channel } from './channels.js';
import { isLatestNightlyBad, evaluateAlerts } from './evaluate-alerts.js';
import { composeHeartbeat } from './notice.js';
import { sendDue, trySend, type AlertDeps } from './send-alerts.js';

const LOOK_EVERY_MS = 15_000;
const HEARTBEAT_EVERY_MS = 5 * 60_000;
/** Milliseconds to note aborted sends in the state. A state that does not answer must not delay a stop longer. */
const END_WITHIN_MS = 1000;

interface PeriodicDeps extends AlertDeps {
  /** Returns false while this process sends nothing to the service. Then the process sends no heartbeat either. */
  maySend: () => boolean;
}

/** Runs the loops until stopped. A stop aborts messages that are being sent. Another process sends them later. */
export function alertPeriodically({ maySend, ...deps }: PeriodicDeps): Stoppable {
  const { channels, log } = deps;
  const { stopping, stop, abort } = createStoppable('alerts', log, () =>
    endsWithin(Promise.all(loops.map(({ ended }) => ended)), END_WITHIN_MS),
  );
  const evaluation = repeat(
    async () => {
      await evaluateAlerts(deps);
      await sendDue(deps, stopping);
    },
    {
      everyMs: LOOK_EVERY_MS,
      signal: stopping,
      onError: (error) =>
        log.warn({ code: codeOf(error) }, 'alerts could not be evaluated; the evaluation is retried'),
    },
  );
  const heartbeats = channels
    .filter(({ name }) => name === 'ping')
    .map((channel) =>
      repeat(createHeartbeat(channel, { ...deps, maySend }, stopping), {
        everyMs: HEARTBEAT_EVERY_MS,
        signal: stopping,
        onError: (error) =>
          log.warn({ code: codeOf(error) }, 'heartbeat not sent, because the state could not be read'),
      }),
    );
  const loops = [evaluation, ...heartbeats];
  return { stop, abort };
}

/**
 * Returns a function that sends a heartbeat. It says how the latest nightly run ended, as a ping alone means success.
 */
export function createHeartbeat(
  channel: Channel,
  { state, log, maySend }: Pick<PeriodicDeps, 'state' | 'log' | 'maySend'>,
  signal: AbortSignal,
): () => Promise<void> {
  let isFailing = false;
  return async () => {
    if (!maySend()) return;
    const isBad = await isLatestNightlyBad(state.db);
    const { problem: reason } = await trySend(channel, composeHeartbeat(isBad), { signal });
    if (signal.aborted) return;
    const facts = { channel: channel.name };
    if (reason !== null && !isFailing)
      log.warn({ ...facts, reason }, 'heartbeat could not be sent; the next attempt follows in five minutes');
    if (reason === null && isFailing) log.info(facts, 'heartbeat sent again after failures');
    isFailing = reason !== null;
  };
}
