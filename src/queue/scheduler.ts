// Starts syncs when they are due, and runs over what waited when a freeze has ended. Every worker reads the schedules' rows every 15 seconds; a row decides which occurrence is
// due, and which process starts it.
import { codeOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import { keepSyncSchedules, registerSchedule } from '../state/runs/occurrences.js';
import { createLoadWait, type LoadWaitDeps } from '../sync/run/await-load.js';
import { skipMissedOccurrences, startDueSyncs, type ScheduleDeps } from '../sync/run/start-due-syncs.js';
import { startThawed } from '../sync/run/start-thawed.js';
import type { Schedule } from '../time/schedule.js';
import type { Producer } from './producer.js';

const POLL_EVERY_MS = 15_000;

interface Configured extends Schedule {
  name: string;
  streams: readonly string[];
  waitMinutes: number;
  catchUp: boolean;
}

/** Registers the configured schedules, removes others, and starts what is due until it is closed. Missed occurrences are started or skipped. */
export async function startScheduler(
  { producer, ...deps }: ScheduleDeps & LoadWaitDeps & { producer: Producer },
  configured: readonly Configured[],
) {
  const { state, log } = deps;
  const closing = new AbortController();
  const mustWait = createLoadWait(deps);

  async function startDueRuns(): Promise<void> {
    for (const run of [...(await startDueSyncs({ ...deps, mustWait })), ...(await startThawed(deps))])
      await producer.enqueueRun(run.id, run.lane);
  }

  for (const schedule of configured) await registerSchedule(state.db, schedule.name, schedule);
  await keepSyncSchedules(
    state.db,
    configured.map(({ name }) => name),
  );
  if (configured.some(({ catchUp }) => !catchUp)) await skipMissedOccurrences(deps);
  await startDueRuns();
  const polling = repeat(startDueRuns, {
    everyMs: POLL_EVERY_MS,
    firstAfterMs: POLL_EVERY_MS,
    signal: closing.signal,
    onError: (error) => log.warn({ code: codeOf(error) }, 'polling the schedules failed; it is retried'),
  });

  return {
    async close(): Promise<void> {
      closing.abort();
      await polling.ended;
    },
  };
}
