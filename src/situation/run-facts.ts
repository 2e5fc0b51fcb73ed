// A run: what it planned, did and holds, and why records of it are not in sync. For `runs`, `sync` and the page.
import { listCauses } from './causes.js';
import { readSoFar } from './runs.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { Queries } from '../state/database.js';
import { listActions } from '../state/actions.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import { readGates } from '../state/gates/gates.js';
import { listRuns, listUnfinishedRuns, readProgress, type Run } from '../state/runs/read-runs.js';

/** Actions that are shown. */
const MOST_ACTIONS = 20;

export type RunFacts = Awaited<ReturnType<typeof readRunFacts>>;

/** `configured`: the streams of the configuration, where it could be read. */
export async function readRunFacts(db: Queries, run: Run, configured?: readonly string[]) {
  const { id, kind } = run;
  const readsBack = kind === 'verify' || kind === 'repair';
  const [[newest], causes, soFar, progress, planning, gates, actions, unsettled, verdicts, drift] =
    await Promise.all([
      listRuns(db, 1),
      listCauses(db, { runId: id }, configured),
      readSoFar(db, run),
      readProgress(db, id),
      readPlanning(db, run),
      readGates(db, { runId: id }),
      listActions(db, { runId: id, limit: MOST_ACTIONS }),
      countUnsettled(db),
      kind === 'reconcile' ? countVerdicts(db, id) : undefined,
      readsBack ? countDriftEvents(db, id) : undefined,
    ]);
  return {
    run: soFar,
    progress,
    planning,
    /** Closed gates that this run met last. */
    gates,
    actions,
    /** A cause is counted whole, with what other runs left. The holds are named with the run. */
    causes: causes.filter(({ status }) => status !== 'held'),
    /** Records that are not in sync, whatever run left them. Undefined: of an older run that says nothing. */
    unsettled: newest?.id === id ? unsettled : undefined,
    verdicts,
    drift,
  };
}

/** A process has begun to plan it, or it waits: then `others` are the runs that are being planned. */
export async function readPlanning(db: Queries, run: Run) {
  if (run.status !== 'planning' || run.planner !== null) return { isBegun: true, others: [] };
  const unfinished = await listUnfinishedRuns(db);
  const others = unfinished.filter(({ status, planner }) => status === 'planning' && planner !== null);
  return { isBegun: false, others: others.map(({ id }) => id) };
}
