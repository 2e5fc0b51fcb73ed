// Starts syncs of streams that are due. Every worker checks every 15 seconds. Rows of the state decide which occurrence
// and which stream is due, and which process starts the run.
import { codeOf } from '../errors/errors.js';
import { repeat } from '../process/lifecycle.js';
import { keepSyncSchedules, registerSchedule } from '../state/schedules.js';
import {
  createLoadWait,
  type LoadWaitDeps,
  noticeLoads,
  skipMissedOccurrences,
  startDue,
  startScheduled,
  type ScheduleDeps,
} from '../sync/run/start-due-syncs.js';
import { registerStreams } from '../state/streams.js';
import type { Schedule } from '../time/schedule.js';
import type { Producer } from './producer.js';

const POLL_EVERY_MS = 15_000;
/** Number of polls for each query of the age of the mirror's load. */
const LOADS_EVERY = 4;

interface Configured extends Schedule {
  name: string;
  streams: readonly string[];
  waitMinutes: number;
  catchUp: boolean;
}

/** Keeps only the configured schedules, and starts due syncs until it is closed. `catchUp` decides on missed syncs. */
export async function startScheduler(
  { producer, ...deps }: ScheduleDeps & LoadWaitDeps & { producer: Producer },
  configured: readonly Configured[],
) {
  const { state, log } = deps;
  const mustWait = createLoadWait(deps);

  let looks = 0;

  async function startDueRuns(): Promise<void> {
    if (looks++ % LOADS_EVERY === 0)
      await noticeLoads(deps).catch((error: unknown) =>
        log.warn({ code: codeOf(error) }, 'reading the load time of the mirror failed'),
      );
    for (const run of [...(await startScheduled({ ...deps, mustWait })), ...(await startDue(deps))])
      await producer.enqueueRun(run.id, run.lane);
  }

  for (const schedule of configured) await registerSchedule(state.db, schedule.name, schedule);
  await keepSyncSchedules(
    state.db,
    configured.map(({ name }) => name),
  );
  if (configured.some(({ catchUp }) => !catchUp)) await skipMissedOccurrences(deps);
  await registerStreams(state.db, [...deps.streams.keys()]);
  await startDueRuns();
  const polling = repeat(startDueRuns, {
    everyMs: POLL_EVERY_MS,
    firstAfterMs: POLL_EVERY_MS,
    onError: (error) => log.warn({ code: codeOf(error) }, 'polling the schedules failed; it is retried'),
  });

  return { close: polling.end };
}
