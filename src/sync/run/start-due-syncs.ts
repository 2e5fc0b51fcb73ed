// Starts whole syncs of streams that need one. At a scheduled time, the scheduled streams are marked as due and synced
// at once. Any process may start the sync, but only one succeeds, because the scheduled time is claimed in the same
// transaction. If configured, a scheduled sync waits until the mirror was loaded again.
import { codeOf } from '../../errors/errors.js';
import { listLoads, listStartable, markDue } from '../../state/streams.js';
import { firstUnstarted, unstartedDue } from '../../time/cron-schedule.js';
import {
  streamsOf,
  type RegisteredSchedule,
  claimOccurrence,
  correctSchedules,
  listSyncSchedules,
} from '../../state/schedules.js';
import { readsSameLoad, type Stream } from '../../streams/stream.js';
import type { SyncDeps } from './sync-deps.js';
import { readClock } from '../../state/database.js';
import { readGates } from '../../state/gates/gates.js';
import type { Run } from '../../state/runs/read-runs.js';
import { startFreeRun } from '../../state/runs/start-run.js';
import { fingerprintsOf } from '../../streams/fingerprints.js';
import { judgeLoad } from '../limits/load-age.js';

export type LoadWaitDeps = Pick<SyncDeps, 'state' | 'streams' | 'mirror' | 'log'>;
/** Checks whether a scheduled sync must wait until the mirror has been loaded again. */
type LoadWait = ReturnType<typeof createLoadWait>;

const MINUTE = 60_000;

/** Creates this check. `askEveryMs`: minimum milliseconds between two queries of the mirror. */
export function createLoadWait(
  { state, streams, mirror, log }: LoadWaitDeps,
  { askEveryMs = MINUTE }: { askEveryMs?: number } = {},
) {
  let last: { due: number; askedAt: number } | undefined;

  /** Returns the streams whose mirror data was not loaded again since their last sync. */
  async function findNotReloaded(schedule: RegisteredSchedule): Promise<string[]> {
    const seen = new Map((await listLoads(state.db)).map((load) => [load.stream, load.syncedLoadAt]));
    const names = streamsOf(schedule, [...streams.keys()]);
    const waiting: string[] = [];
    const asked: { stream: Stream; loadedAt: Date | null }[] = [];
    for (const name of names) {
      const stream = streams.get(name);
      const seenAt = seen.get(name);
      if (!stream?.freshness || !seenAt) continue;
      let answer = asked.find((known) => readsSameLoad(known.stream, stream));
      if (!answer) {
        answer = { stream, loadedAt: await readLoadedAt(stream) };
        asked.push(answer);
      }
      if (answer.loadedAt === null || answer.loadedAt <= seenAt) waiting.push(name);
    }
    return waiting;
  }

  /** Returns when the mirror was loaded. Null if this cannot be read; then the sync waits the whole time. */
  async function readLoadedAt(stream: Stream): Promise<Date | null> {
    try {
      const load = await mirror.readLoad(stream);
      return load && 'at' in load ? load.at : null;
    } catch (error) {
      log.warn({ code: codeOf(error), stream: stream.name }, 'reading the load time of the mirror failed');
      return null;
    }
  }

  return async (schedule: RegisteredSchedule, now: Date): Promise<boolean> => {
    if (schedule.waitMinutes === 0) return false;
    // Waits from the first missed time on. Otherwise each further scheduled time would extend the wait.
    const due = firstUnstarted(schedule);
    const isFirst = last?.due !== due.getTime();
    if (now.getTime() >= due.getTime() + schedule.waitMinutes * MINUTE) {
      if (!isFirst) log.warn({ due }, 'scheduled sync starts without a newer load of the mirror');
      return false;
    }
    if (!isFirst && last && performance.now() - last.askedAt < askEveryMs) return true;
    const waiting = await findNotReloaded(schedule);
    if (waiting.length === 0) return false;
    if (isFirst)
      log.info(
        { due, streams: waiting, waitMinutes: schedule.waitMinutes },
        'scheduled sync waits for a newer load of the mirror',
      );
    last = { due: due.getTime(), askedAt: performance.now() };
    return true;
  };
}

export type ScheduleDeps = Pick<SyncDeps, 'state' | 'streams' | 'log'>;

/** Milliseconds after which a scheduled time counts as missed. Until then, another process may start the sync. */
const MISSED_AFTER_MS = 60 * 1000;

/**
 * Starts syncs for schedules whose time has come, and returns the runs to put into the queue. Several missed times
 * start one run. Streams of an unfinished run stay due. `now`: by default, the time of the database. `mustWait`:
 * returns true to start the sync later.
 */
export async function startScheduled(
  { mustWait, ...deps }: ScheduleDeps & { mustWait?: LoadWait },
  now?: Date,
): Promise<Run[]> {
  const { state, log } = deps;
  for (const name of await correctSchedules(state.db))
    log.warn(
      { schedule: name },
      'schedule had a start time in the future, set by a wrong clock; corrected to now',
    );
  const schedules = await listSyncSchedules(state.db);
  if (schedules.length === 0) return [];
  const clock = now ?? (await readClock(state.db));
  const runs: Run[] = [];
  for (const schedule of schedules) {
    const due = unstartedDue(schedule, clock);
    if (!due || (await mustWait?.(schedule, clock))) continue;
    const run = await startOccurrence(deps, schedule, due);
    if (run) runs.push(run);
  }
  return runs;
}

const requestOf = ({ streams }: Pick<ScheduleDeps, 'streams'>, names: readonly string[]) =>
  ({
    kind: 'sync',
    lane: 'sync',
    streams: names,
    fingerprints: fingerprintsOf(streams.values()),
  }) as const;

async function startOccurrence(
  { state, streams, log: parent }: ScheduleDeps,
  schedule: RegisteredSchedule,
  due: Date,
): Promise<Run | undefined> {
  const log = parent.child({ schedule: schedule.name, due });
  const names = streamsOf(schedule, [...streams.keys()]);
  // The schedule belongs to another configuration. A worker with that configuration starts the sync.
  if (names.length === 0) return undefined;
  const started = await state.db.transaction(async (tx) => {
    if (!(await claimOccurrence(tx, schedule, due))) return undefined;
    await markDue(tx, names, 'schedule');
    return startFreeRun(tx, { ...requestOf({ streams }, names), startedBy: 'schedule' });
  });
  if (!started) return undefined;
  for (const { run, streams: covered } of started.busy) {
    const facts = { streams: covered, coveredBy: run.id, isPaused: run.pausedAt !== null };
    log.info(facts, 'streams stay due until an unfinished run that covers them has ended');
  }
  if (started.run)
    log.info({ runId: started.run.id, streams: started.run.streams }, 'scheduled sync started');
  else log.info('scheduled sync not started: unfinished runs cover every stream');
  return started.run;
}

/** Starts a whole sync of streams that are due for a reason other than a schedule. Returns the run to queue. */
export async function startDue({ state, streams, log }: ScheduleDeps): Promise<Run[]> {
  const names = await listStartable(state.db, [...streams.keys()]);
  if (names.length === 0) return [];
  // Not started by `schedule`, since this run would then count as a nightly sync.
  const { run } = await startFreeRun(state.db, { ...requestOf({ streams }, names), startedBy: 'change' });
  if (!run) return [];
  log.info({ runId: run.id, streams: run.streams }, 'sync of due streams started');
  return [run];
}

/** Marks streams as due if records were held for an outdated mirror, and the mirror has been loaded since. */
export async function noticeLoads({
  state,
  streams,
  mirror,
}: Pick<SyncDeps, 'state' | 'streams' | 'mirror'>): Promise<void> {
  const { db } = state;
  const waiting = (await readGates(db)).filter(({ reason }) => reason === 'stale');
  for (const name of new Set(waiting.map(({ stream }) => stream))) {
    const stream = streams.get(name);
    const reading = stream?.freshness && (await mirror.readLoad(stream));
    if (!stream?.freshness || !reading) continue;
    const noted = (await listLoads(db)).find((load) => load.stream === name);
    const load = judgeLoad(stream.freshness, reading, { noted, now: await readClock(db) });
    if (!load.holds) await markDue(db, [name], 'fresh_load');
  }
}

/** Skips scheduled times that were missed. A time at which the sync still waits for the mirror is not missed. */
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
