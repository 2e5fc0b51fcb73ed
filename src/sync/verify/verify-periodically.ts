// Runs `verify` in workers, after each nightly sync or at scheduled times. For each scheduled time, only one worker
// verifies. An interrupted verify is repeated.
import { startedUntil, unstartedDue } from '../../time/cron-schedule.js';
import { AFTER_SYNC } from '../../time/schedule.js';
import type { Stoppable, Turns } from '../../process/lifecycle.js';
import { readClock, type Queries } from '../../state/database.js';
import { listFrozen } from '../../state/freezes.js';
import {
  claimOccurrence,
  readEndedNightly,
  readSchedule,
  VERIFY,
  type RegisteredSchedule,
} from '../../state/schedules.js';
import type { Run } from '../../state/runs/read-runs.js';
import { whileReadingAlone } from '../../state/runs/reconcile-and-verify-runs.js';
import { fingerprintsOf } from '../../streams/fingerprints.js';
import { readPeriodically } from '../run/reading-run.js';
import {
  countRepairable,
  startRepairRun,
  verifyAlone,
  type VerifyDeps,
  type VerifyResult,
} from './verify.js';

export interface PeriodicVerifyDeps extends VerifyDeps {
  /** If true, a verify after a nightly sync waits until bookings were reconciled. */
  isReconciled: boolean;
  /** If true, a repair run sends drifting objects again, within limits. */
  repairs: boolean;
  /** Puts a repair run into the queue. */
  startRepair: (run: Run) => Promise<void>;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const LOOK_EVERY_MS = 15 * SECOND;
/** Milliseconds to wait after a failed verify, because a verify reads all objects. */
const AFTER_FAILURE_MS = 15 * MINUTE;

/** Verifies periodically until stopped. Waits for one of `turns`, because a verify holds a database connection. */
export function verifyPeriodically(deps: PeriodicVerifyDeps, turns: Turns): Stoppable {
  const pauses = { everyMs: LOOK_EVERY_MS, afterFailureMs: AFTER_FAILURE_MS };
  return readPeriodically('verify', deps.log, pauses, async (stopping) => {
    if (await findDue(deps.state.db, deps)) await turns.take(() => verifyWhenDue(deps, undefined, stopping));
  });
}

/**
 * Verifies if a scheduled time is due, and starts a repair if configured. Returns undefined if nothing is due, or
 * another process is verifying. `now`: by default, the time of the database.
 */
export async function verifyWhenDue(
  deps: PeriodicVerifyDeps,
  now?: Date,
  signal?: AbortSignal,
): Promise<VerifyResult | undefined> {
  const { db } = deps.state;
  const alone = await whileReadingAlone(deps.state, 'verify', async () => {
    const found = await findDue(db, deps, now);
    if (!found) return undefined;
    const result = await verifyAlone(deps, {}, signal);
    if (deps.repairs) await repair(deps, result);
    await claimOccurrence(db, found.schedule, found.due);
    return result;
  });
  return alone?.result;
}

/** Returns the scheduled time that is due and was not verified yet. */
async function findDue(
  db: Queries,
  { isReconciled }: Pick<PeriodicVerifyDeps, 'isReconciled'>,
  now?: Date,
): Promise<{ schedule: RegisteredSchedule; due: Date } | undefined> {
  const schedule = await readSchedule(db, VERIFY);
  if (!schedule) return undefined;
  if (schedule.pattern !== AFTER_SYNC) {
    const due = unstartedDue(schedule, now ?? (await readClock(db)));
    return due && { schedule, due };
  }
  const due = await readEndedNightly(db, { isReconciled });
  return due && due > startedUntil(schedule) ? { schedule, due } : undefined;
}

/** Starts a repair of drifting streams. Streams with an unfinished run are left to the next verify. */
async function repair(
  { state, streams: declared, startRepair, log }: PeriodicVerifyDeps,
  { streams }: VerifyResult,
): Promise<void> {
  // Frozen streams are left out. Otherwise each verify would start another repair that cannot send.
  const frozen = new Set((await listFrozen(state.db, [...declared.keys()])).map(({ stream }) => stream));
  const drifting = streams
    .filter((one) => countRepairable(one) > 0 && !frozen.has(one.stream))
    .map(({ stream }) => stream);
  if (drifting.length === 0) return;
  const fingerprints = fingerprintsOf(declared.values());
  const run = await startRepairRun(state.db, { streams: drifting, startedBy: 'schedule', fingerprints });
  if (run) await startRepair(run);
  log.info({ runId: run?.id, streams: drifting }, run ? 'repair started' : 'repair left to the next verify');
}
