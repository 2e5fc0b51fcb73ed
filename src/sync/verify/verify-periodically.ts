// Workers verify after each nightly sync, or by a schedule of their own. An occurrence is verified once, whichever worker
// does it; one that was interrupted is verified from the beginning.
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
  /** After a nightly sync the bookings are reconciled first. */
  isReconciled: boolean;
  /** Objects that drift are sent again, within limits. */
  repairs: boolean;
  /** Queues the run of a repair. */
  startRepair: (run: Run) => Promise<void>;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const LOOK_EVERY_MS = 15 * SECOND;
/** A whole type is not read again at once after a failure. */
const AFTER_FAILURE_MS = 15 * MINUTE;

/** Runs until stopped. One of `turns` is taken for a reading, which keeps one of the few connections of the state. */
export function verifyPeriodically(deps: PeriodicVerifyDeps, turns: Turns): Stoppable {
  const pauses = { everyMs: LOOK_EVERY_MS, afterFailureMs: AFTER_FAILURE_MS };
  return readPeriodically('verify', deps.log, pauses, async (stopping) => {
    if (await findDue(deps.state.db, deps)) await turns.take(() => verifyWhenDue(deps, undefined, stopping));
  });
}

/**
 * Verifies once for each occurrence, and starts the repair of what drifts where that is configured. Undefined when nothing is
 * due, or another process is at it. `now`: the time of the state, unless given.
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

/** The occurrence that is due and was not verified yet. */
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

/** Starts a run over those of the drifting streams that no unfinished run covers; the others are left to the next verify. */
async function repair(
  { state, streams: declared, startRepair, log }: PeriodicVerifyDeps,
  { streams }: VerifyResult,
): Promise<void> {
  // Each verify of a frozen stream would have a repair of its own held.
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
