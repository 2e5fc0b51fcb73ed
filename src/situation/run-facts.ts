// A run: what it planned, did and holds, and why records of it are not in sync. For `runs`, `sync` and the page.
import { listCauses } from './causes.js';
import { readSoFar } from './runs.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { Queries } from '../state/database.js';
import { listActions } from '../state/actions.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import { listApprovalsOfRun } from '../state/runs/approvals.js';
import { readHolds } from '../state/runs/holds.js';
import { listRuns, listUnfinishedRuns, readProgress, type Run } from '../state/runs/read-runs.js';

/** Actions that are shown. */
const MOST_ACTIONS = 20;

export type RunFacts = Awaited<ReturnType<typeof readRunFacts>>;

/** `configured`: the streams of the configuration, where it could be read. */
export async function readRunFacts(db: Queries, run: Run, configured?: readonly string[]) {
  const [newest] = await listRuns(db, 1);
  const causes = await listCauses(db, { runId: run.id }, configured);
  return {
    run: await readSoFar(db, run),
    progress: await readProgress(db, run.id),
    planning: await readPlanning(db, run),
    holds: await readHolds(db, run.id),
    approvals: await listApprovalsOfRun(db, run.id),
    actions: await listActions(db, { runId: run.id, limit: MOST_ACTIONS }),
    /** A cause is counted whole, with what other runs left. The holds are named with the run. */
    causes: causes.filter(({ status }) => status !== 'held'),
    /** Records that are not in sync, whatever run left them. Undefined: of an older run that says nothing. */
    unsettled: newest?.id === run.id ? await countUnsettled(db) : undefined,
    verdicts: run.kind === 'reconcile' ? await countVerdicts(db, run.id) : undefined,
    drift: run.kind === 'verify' || run.kind === 'repair' ? await countDriftEvents(db, run.id) : undefined,
  };
}

/** A process has begun to plan it, or it waits: then `others` are the runs that are being planned. */
export async function readPlanning(db: Queries, run: Run) {
  if (run.status !== 'planning' || run.planner !== null) return { isBegun: true, others: [] };
  const unfinished = await listUnfinishedRuns(db);
  const others = unfinished.filter(({ status, planner }) => status === 'planning' && planner !== null);
  return { isBegun: false, others: others.map(({ id }) => id) };
}
