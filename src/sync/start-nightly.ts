// The nightly sync: an occurrence of the schedule becomes a run, once, whichever process notices that it is due. The
// occurrence is claimed in the transaction that starts the run, so a crash in between loses neither.
import type { Logger } from '../logger.js';
import { latestDue } from '../cron-schedule.js';
import type { State } from '../state/database.js';
import { claimOccurrence, readSchedule, type RegisteredSchedule } from '../state/runs/nightly-occurrences.js';
import type { Run } from '../state/runs/read-runs.js';
import { NIGHTLY } from '../state/runs/schedule-names.js';
import { startFreeRun } from '../state/runs/start-run.js';
import type { Stream } from '../streams/stream.js';

export interface NightlyDeps {
  state: State;
  streams: ReadonlyMap<string, Stream>;
  log: Logger;
}

const MINUTE = 60 * 1000;
/** An occurrence is missed after this time; until then another process may be starting it. */
const MISSED_AFTER_MS = MINUTE;

/**
 * Starts the occurrence that is due and was not started yet, and returns its run to be queued. Several missed
 * occurrences start one run. Streams that an unfinished run covers are left to that run.
 */
export async function startDueNightly(
  { state, streams, log }: NightlyDeps,
  now = new Date(),
): Promise<Run[]> {
  const schedule = await readSchedule(state.db, NIGHTLY);
  const due = schedule && latestDue(schedule, sinceOf(schedule), now);
  if (!due) return [];
  const started = await state.db.transaction(async (tx) => {
    if (!(await claimOccurrence(tx, schedule, due))) return undefined;
    return startFreeRun(tx, {
      kind: 'sync',
      lane: 'sync',
      startedBy: 'schedule',
      streams: [...streams.keys()],
    });
  });
  if (!started) return [];
  for (const { run, streams: covered } of started.busy) {
    const facts = { due, streams: covered, coveredBy: run.id, isPaused: run.pausedAt !== null };
    log.info(facts, 'nightly sync leaves out streams that an unfinished run covers');
  }
  if (!started.run) {
    log.info({ due }, 'nightly sync not started: unfinished runs cover every stream');
    return [];
  }
  log.info({ due, runId: started.run.id, streams: started.run.streams }, 'nightly sync started');
  return [started.run];
}

/** Claims the occurrences that were missed, without starting anything. */
export async function skipMissedOccurrences(
  { state, log }: Pick<NightlyDeps, 'state' | 'log'>,
  now = new Date(),
): Promise<void> {
  const schedule = await readSchedule(state.db, NIGHTLY);
  const before = new Date(now.getTime() - MISSED_AFTER_MS);
  const due = schedule && latestDue(schedule, sinceOf(schedule), before);
  if (due && (await claimOccurrence(state.db, schedule, due)))
    log.info({ due }, 'missed nightly sync skipped');
}

/** A schedule that was registered just now has missed nothing. */
function sinceOf({ registeredAt, lastDue }: RegisteredSchedule): Date {
  return lastDue && lastDue > registeredAt ? lastDue : registeredAt;
}
