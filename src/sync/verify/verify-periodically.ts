// Verifies in a worker, after each nightly sync or by a schedule of its own. Each due time is verified once, by any
// worker. An interrupted verify starts again from the beginning.
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
  /** If true, bookings are reconciled after a nightly sync, before the verify. */
  isReconciled: boolean;
  /** If true, drifting objects are sent again, within limits. */
  repairs: boolean;
  /** Queues the run of a repair. */
  startRepair: (run: Run) => Promise<void>;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const LOOK_EVERY_MS = 15 * SECOND;
/** Pause after a failure, in milliseconds, because a verify reads whole types. */
const AFTER_FAILURE_MS = 15 * MINUTE;

/** Runs until stopped. Takes one of `turns` for a verify, which holds one of the state's few connections. */
export function verifyPeriodically(deps: PeriodicVerifyDeps, turns: Turns): Stoppable {
  const pauses = { everyMs: LOOK_EVERY_MS, afterFailureMs: AFTER_FAILURE_MS };
  return readPeriodically('verify', deps.log, pauses, async (stopping) => {
    if (await findDue(deps.state.db, deps)) await turns.take(() => verifyWhenDue(deps, undefined, stopping));
  });
}

/**
 * Verifies once for each due time, and starts a repair of the drift if configured. Returns undefined if nothing is due,
 * or another process is verifying. `now`: by default, the database's time.
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

/** Returns the due time that was not verified yet. */
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

/** Starts a repair run of the drifting streams that no unfinished run covers. The next verify repairs the others. */
async function repair(
  { state, streams: declared, startRepair, log }: PeriodicVerifyDeps,
  { streams }: VerifyResult,
): Promise<void> {
  // A frozen stream is left out. Otherwise each verify would start another repair, which the freeze would hold.
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
