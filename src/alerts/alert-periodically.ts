// Loops in each worker that decide and send alerts, and send heartbeats. The work of runs never waits for them.
import { codeOf } from '../errors/errors.js';
import { createStoppable, endsWithin, repeat, type Stoppable } from '../process/lifecycle.js';
import type { Channel } from './channels.js';
import { isLatestNightlyBad } from './note-nightly.js';
import { composeHeartbeat } from './notice.js';
import { evaluateAlerts, LONGEST_STATEMENT_MS } from './evaluate-alerts.js';
import { sendDue, trySend, type AlertDeps } from './send-alerts.js';

const LOOK_EVERY_MS = 15_000;
export const HEARTBEAT_EVERY_MS = 5 * 60_000;
/** Maximum time in milliseconds to record an aborted send. A state that does not answer must not delay the stop. */
const END_WITHIN_MS = 1000;

interface PeriodicDeps extends AlertDeps {
  /** Returns false while this process sends nothing to the service. Then the process sends no heartbeat either. */
  maySend: () => boolean;
}

/** Runs until stopped. A stop aborts sends at once. Their messages stay due, and another process sends them. */
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
      onError: (error) => log.warn({ code: codeOf(error) }, 'alerts not evaluated; it is retried'),
    },
  );
  const heartbeats = channels
    .filter(({ name }) => name === 'ping')
    .map((channel) =>
      repeat(createHeartbeat(channel, { ...deps, maySend }, stopping), {
        everyMs: HEARTBEAT_EVERY_MS,
        signal: stopping,
        onError: (error) => log.warn({ code: codeOf(error) }, 'heartbeat not sent: the state was not read'),
      }),
    );
  const loops = [evaluation, ...heartbeats];
  return { stop, abort };
}

/** Returns a function that sends a heartbeat. It reports how the latest nightly run ended, not just a plain ping. */
export function createHeartbeat(
  channel: Channel,
  { state, log, maySend }: Pick<PeriodicDeps, 'state' | 'log' | 'maySend'>,
  signal: AbortSignal,
): () => Promise<void> {
  let isFailing = false;
  return async () => {
    if (!maySend()) return;
    const isBad = await isLatestNightlyBad(state.db, LONGEST_STATEMENT_MS);
    const { problem: reason } = await trySend(channel, composeHeartbeat(isBad), { signal });
    if (signal.aborted) return;
    const facts = { channel: channel.name };
    if (reason !== null && !isFailing)
      log.warn({ ...facts, reason }, 'heartbeat not sent; it is tried every five minutes');
    if (reason === null && isFailing) log.info(facts, 'heartbeats are sent again');
    isFailing = reason !== null;
  };
}
