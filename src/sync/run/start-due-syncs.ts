// Syncs by schedule: the nightly one, and those of streams with times of their own. An occurrence of a schedule becomes a run,
// once, whichever process notices that it is due. The occurrence is claimed in the transaction that starts the run, so a
// crash in between loses neither.
import { unstartedDue } from '../../time/cron-schedule.js';
import { readClock } from '../../state/database.js';
import {
  claimOccurrence,
  correctSchedules,
  listSyncSchedules,
  streamsOf,
  type RegisteredSchedule,
} from '../../state/runs/occurrences.js';
import type { Run } from '../../state/runs/read-runs.js';
import { startFreeRun } from '../../state/runs/start-run.js';
import { fingerprintsOf } from '../../streams/fingerprints.js';
import type { LoadWait } from './await-load.js';
import type { SyncDeps } from './sync-deps.js';

export type ScheduleDeps = Pick<SyncDeps, 'state' | 'streams' | 'log'>;

/** An occurrence is missed after this time; until then another process may be starting it. */
const MISSED_AFTER_MS = 60 * 1000;
const MINUTE = 60 * 1000;

/**
 * Starts the occurrences that are due and were not started yet, and returns their runs to be queued. `now`: the time of the
 * state, unless given. Several missed occurrences of a schedule start one run. Streams that an unfinished run covers are left
 * to that run. `mustWait`: an occurrence is not started yet.
 */
export async function startDueSyncs(
  { mustWait, ...deps }: ScheduleDeps & { mustWait?: LoadWait },
  now?: Date,
): Promise<Run[]> {
  const { state, log } = deps;
  for (const name of await correctSchedules(state.db))
    log.warn(
      { schedule: name },
      'schedule was noted as started in the future, by a wrong clock: corrected to now',
    );
  const schedules = await listSyncSchedules(state.db);
  if (schedules.length === 0) return [];
  const clock = now ?? (await readClock(state.db));
  const runs: Run[] = [];
  for (const schedule of schedules) {
    const due = unstartedDue(schedule, clock);
    if (!due || (await mustWait?.(schedule, clock))) continue;
    const run = await startDue(deps, schedule, due);
    if (run) runs.push(run);
  }
  return runs;
}

async function startDue(
  { state, streams, log: parent }: ScheduleDeps,
  schedule: RegisteredSchedule,
  due: Date,
): Promise<Run | undefined> {
  const log = parent.child({ schedule: schedule.name, due });
  const request = {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'schedule',
    streams: streamsOf(schedule, [...streams.keys()]),
    fingerprints: fingerprintsOf(streams.values()),
  } as const;
  // Its streams are those of another configuration, whose worker starts it.
  if (request.streams.length === 0) return undefined;
  const started = await state.db.transaction(async (tx) =>
    (await claimOccurrence(tx, schedule, due)) ? startFreeRun(tx, request) : undefined,
  );
  if (!started) return undefined;
  for (const { run, streams: covered } of started.busy) {
    const facts = { streams: covered, coveredBy: run.id, isPaused: run.pausedAt !== null };
    log.info(facts, 'scheduled sync leaves out streams that an unfinished run covers');
  }
  if (started.run)
    log.info({ runId: started.run.id, streams: started.run.streams }, 'scheduled sync started');
  else log.info('scheduled sync not started: unfinished runs cover every stream');
  return started.run;
}

/** Claims the occurrences that were missed, without starting anything. One that waits for a load is not missed. */
export async function skipMissedOccurrences(
  { state, log }: Pick<ScheduleDeps, 'state' | 'log'>,
  now?: Date,
): Promise<void> {
  const clock = now ?? (await readClock(state.db));
  for (const schedule of await listSyncSchedules(state.db)) {
    const before = new Date(clock.getTime() - MISSED_AFTER_MS - schedule.waitMinutes * MINUTE);
    const due = unstartedDue(schedule, before);
    if (due && (await claimOccurrence(state.db, schedule, due)))
      log.info({ schedule: schedule.name, due }, 'missed scheduled sync skipped');
  }
}
