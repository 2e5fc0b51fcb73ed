// A nightly sync that is due waits until the mirror was loaded anew since the last sync, for as long as the configuration
// says. Every worker asks; the occurrence is claimed by the first that does not wait any more.
import { codeOf } from '../../errors/errors.js';
import { readsSameLoad } from '../../streams/freshness.js';
import { listLoads } from '../../state/freshness.js';
import { firstUnstarted } from '../../time/cron-schedule.js';
import { streamsOf, type RegisteredSchedule } from '../../state/runs/occurrences.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from './sync-deps.js';

export type LoadWaitDeps = Pick<SyncDeps, 'state' | 'streams' | 'mirror' | 'log'>;
/** Whether an occurrence of a schedule that is due has to wait. */
export type LoadWait = ReturnType<typeof createLoadWait>;

const MINUTE = 60_000;

/** `askEveryMs`: the mirror is not asked more often. */
export function createLoadWait(
  { state, streams, mirror, log }: LoadWaitDeps,
  { askEveryMs = MINUTE }: { askEveryMs?: number } = {},
) {
  let last: { due: number; askedAt: number } | undefined;

  /** The streams whose load is not newer than the one that their last sync saw. */
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

  /** Null: it cannot be read. The wait ends all the same, and the run says why. */
  async function readLoadedAt(stream: Stream): Promise<Date | null> {
    try {
      const load = await mirror.readLoad(stream);
      return load && 'at' in load ? load.at : null;
    } catch (error) {
      log.warn({ code: codeOf(error), stream: stream.name }, 'the load of the mirror could not be read');
      return null;
    }
  }

  return async (schedule: RegisteredSchedule, now: Date): Promise<boolean> => {
    if (schedule.waitMinutes === 0) return false;
    // From the first on: an occurrence that becomes due meanwhile does not make the wait longer.
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
