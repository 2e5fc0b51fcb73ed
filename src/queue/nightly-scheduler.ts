// Starts the nightly sync when it is due. Every worker reads the schedule's row every 15 seconds; the row decides which
// occurrence is due, and which process starts it.
import { codeOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import { NIGHTLY, registerSchedule, removeSchedule } from '../state/runs/nightly-occurrences.js';
import { skipMissedOccurrences, startDueNightly, type NightlyDeps } from '../sync/run/start-due-nightly.js';
import type { Schedule } from '../time/cron-schedule.js';
import type { Producer } from './producer.js';

const POLL_EVERY_MS = 15_000;

/** Registers the configured schedule, or removes it, and starts what is due until it is closed. Missed occurrences are started or skipped. */
export async function startNightlyScheduler(
  { producer, ...deps }: NightlyDeps & { producer: Producer },
  configured: (Schedule & { catchUp: boolean }) | undefined,
) {
  const { state, log } = deps;
  const closing = new AbortController();

  async function startDueRuns(): Promise<void> {
    for (const run of await startDueNightly(deps)) await producer.enqueueRun(run.id, run.lane);
  }

  if (configured) await registerSchedule(state.db, NIGHTLY, configured);
  else await removeSchedule(state.db, NIGHTLY);
  if (configured && !configured.catchUp) await skipMissedOccurrences(deps);
  await startDueRuns();
  const polling = repeat(startDueRuns, {
    everyMs: POLL_EVERY_MS,
    firstAfterMs: POLL_EVERY_MS,
    signal: closing.signal,
    onError: (error) => log.warn({ code: codeOf(error) }, 'polling the schedule failed; it is retried'),
  });

  return {
    async close(): Promise<void> {
      closing.abort();
      await polling.ended;
    },
  };
}
