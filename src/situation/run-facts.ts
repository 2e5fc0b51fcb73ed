// Runs with what they planned, did so far and hold, why records of them are not in sync, and when they will be done.
import { listCauses } from './causes.js';
import { readTimeline } from './history.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { Queries } from '../state/database.js';
import { listActions } from '../state/actions.js';
import { countDriftEvents } from '../state/drift/read-drift.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import { listRenamedRows } from '../state/records/read/renamed-rows.js';
import { readGates } from '../state/gates/gates.js';
import {
  listRuns,
  listUnfinishedRuns,
  readProgress,
  sumBatches,
  type Progress,
  type Run,
} from '../state/runs/read-runs.js';
import type { RunKind } from '../state/schema.js';

/** Actions that are shown. */
const MOST_ACTIONS = 20;
/** From this share on, a run's own pace says more than its plan. */
const KNOWN_FROM = 0.05;
/** The first reads the objects, the second writes them. */
const REQUESTS_OF_A_BATCH = 2;

export type RunFacts = Awaited<ReturnType<typeof readRunFacts>>;

/** `configured`: the streams of the configuration, where it could be read. */
export async function readRunFacts(db: Queries, run: Run, configured?: readonly string[]) {
  const { id, kind } = run;
  const readsBack = kind === 'verify' || kind === 'repair';
  const [
    [newest],
    causes,
    soFar,
    progress,
    planning,
    gates,
    actions,
    unsettled,
    renamed,
    verdicts,
    drift,
    timeline,
  ] = await Promise.all([
    listRuns(db, 1),
    listCauses(db, { runId: id }, configured),
    readSoFar(db, run),
    readProgress(db, id),
    readPlanning(db, run),
    readGates(db, { runId: id }),
    listActions(db, { runId: id, limit: MOST_ACTIONS }),
    countUnsettled(db),
    kind === 'sync' ? listRenamedRows(db, undefined, run.requestedAt) : [],
    kind === 'reconcile' ? countVerdicts(db, id) : undefined,
    readsBack ? countDriftEvents(db, id) : undefined,
    readTimeline(db, run),
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
    /** Rows that it found gone, each with a new one of the same values. Empty: of an older run. */
    renamed: newest?.id === id ? renamed : [],
    verdicts,
    drift,
    timeline,
  };
}

/** A process has begun to plan it, or it waits: then `others` are the runs that are being planned. */
export async function readPlanning(db: Queries, run: Run) {
  if (run.status !== 'planning' || run.planner !== null) return { isBegun: true, others: [] };
  const unfinished = await listUnfinishedRuns(db);
  const others = unfinished.filter(({ status, planner }) => status === 'planning' && planner !== null);
  return { isBegun: false, others: others.map(({ id }) => id) };
}

/** A run whose counts are those of its batches so far, if it has not ended. */
export async function readSoFar(db: Queries, run: Run): Promise<Run> {
  if (run.finishedAt) return run;
  const { outcomes: counts, accepted } = await sumBatches(db, run.id);
  return { ...run, counts, accepted };
}

/** The latest runs of these kinds, newest first, with what they did so far. */
export async function listRunsSoFar(db: Queries, limit: number, kinds?: readonly RunKind[]): Promise<Run[]> {
  return Promise.all((await listRuns(db, limit, kinds)).map((run) => readSoFar(db, run)));
}

/**
 * Seconds until a run is done: of the requests that its plan still has, at the quota's rate; when enough of it is done, at
 * its pace. `recordsPerSecond`: its pace lately, where that was observed. Undefined: it is not being sent.
 */
export function estimateSecondsLeft(
  { run, progress }: { run: Run; progress: Progress },
  {
    requestsPerSecond,
    recordsPerSecond = 0,
    now,
  }: { requestsPerSecond: number; recordsPerSecond?: number; now: Date },
): number | undefined {
  const { total, done, batchesLeft } = progress;
  if (run.status !== 'running' || run.pausedAt || total === 0) return undefined;
  const seconds = run.startedAt ? (now.getTime() - run.startedAt.getTime()) / 1000 : 0;
  const pace = recordsPerSecond > 0 ? recordsPerSecond : seconds > 0 ? done / seconds : 0;
  return done / total < KNOWN_FROM || pace === 0
    ? (batchesLeft * REQUESTS_OF_A_BATCH) / requestsPerSecond
    : (total - done) / pace;
}
