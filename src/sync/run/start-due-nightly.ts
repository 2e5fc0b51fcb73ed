// The nightly sync: an occurrence of the schedule becomes a run, once, whichever process notices that it is due. The
// occurrence is claimed in the transaction that starts the run, so a crash in between loses neither.
import { unstartedDue } from '../../time/cron-schedule.js';
import { readClock } from '../../state/database.js';
import {
  claimOccurrence,
  correctSchedules,
  NIGHTLY,
  readSchedule,
} from '../../state/runs/nightly-occurrences.js';
import type { Run } from '../../state/runs/read-runs.js';
import { startFreeRun } from '../../state/runs/start-run.js';
import { fingerprintsOf } from '../../streams/fingerprints.js';
import type { SyncDeps } from './sync-deps.js';

export type NightlyDeps = Pick<SyncDeps, 'state' | 'streams' | 'log'>;

/** An occurrence is missed after this time; until then another process may be starting it. */
const MISSED_AFTER_MS = 60 * 1000;

/**
 * Starts the occurrence that is due and was not started yet, and returns its run to be queued. `now`: the time of the state,
 * unless given. Several missed occurrences start one run. Streams that an unfinished run covers are left to that run.
 */
export async function startDueNightly({ state, streams, log }: NightlyDeps, now?: Date): Promise<Run[]> {
  for (const name of await correctSchedules(state.db))
    log.warn(
      { schedule: name },
      'schedule was noted as started in the future, by a wrong clock: corrected to now',
    );
  const schedule = await readSchedule(state.db, NIGHTLY);
  const due = schedule && unstartedDue(schedule, now ?? (await readClock(state.db)));
  if (!due) return [];
  const request = {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'schedule',
    streams: [...streams.keys()],
    fingerprints: fingerprintsOf(streams.values()),
  } as const;
  const started = await state.db.transaction(async (tx) =>
    (await claimOccurrence(tx, schedule, due)) ? startFreeRun(tx, request) : undefined,
  );
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
  now?: Date,
): Promise<void> {
  const schedule = await readSchedule(state.db, NIGHTLY);
  const before = new Date((now ?? (await readClock(state.db))).getTime() - MISSED_AFTER_MS);
  const due = schedule && unstartedDue(schedule, before);
  if (due && (await claimOccurrence(state.db, schedule, due)))
    log.info({ due }, 'missed nightly sync skipped');
}
