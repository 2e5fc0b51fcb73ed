// Facts of runs: plan, progress, holds, causes of records that are not in sync, and the estimated time left.
import { listCauses } from './causes.js';
import { readTimeline } from './history.js';
import { countVerdicts } from '../state/bookings/read-reservations.js';
import type { Queries } from '../state/database.js';
import { listActions } from '../state/actions.js';
import { countDriftEvents } from '../state/drift.js';
import { countUnsettled } from '../state/records/read/count-records.js';
import { listRenamedRows } from '../state/records/gone-rows.js';
import { readGates } from '../state/gates/gates.js';
import { listRuns, readProgress, sumBatches, type Progress, type Run } from '../state/runs/read-runs.js';
import type { RunKind } from '../state/schema.js';

const MOST_ACTIONS = 20;
/** Share of finished records from which the run's own speed predicts the end better than its plan. */
const KNOWN_FROM = 0.05;
/** Number of requests for one batch: the first request reads the objects, the second writes them. */
const REQUESTS_OF_A_BATCH = 2;

export type RunFacts = Awaited<ReturnType<typeof readRunFacts>>;

/** `configured` has the names of the configured streams. Undefined if the configuration could not be read. */
export async function readRunFacts(db: Queries, run: Run, configured?: readonly string[]) {
  const { id, kind } = run;
  const readsBack = kind === 'verify' || kind === 'repair';
  const [[newest], causes, soFar, progress, gates, actions, unsettled, renamed, verdicts, drift, timeline] =
    await Promise.all([
      listRuns(db, 1),
      listCauses(db, { runId: id }, configured),
      readSoFar(db, run),
      readProgress(db, id),
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
    /** Gates that this run closed, or that this run found closed as the last whole sync. */
    gates,
    actions,
    /**
     * Causes of failed or waiting records of this run. A cause also counts records of other runs. Holds are left out.
     */
    causes: causes.filter(({ status }) => status !== 'held'),
    /** Number of records not in sync, whatever run left them. Undefined if a newer run exists. */
    unsettled: newest?.id === id ? unsettled : undefined,
    /** Deleted rows that the run found, each with a new row of the same values. Empty if a newer run exists. */
    renamed: newest?.id === id ? renamed : [],
    verdicts,
    drift,
    timeline,
  };
}

/** Returns a run with its counts so far. While a run is unfinished, its counts are sums over its batches. */
export async function readSoFar(db: Queries, run: Run): Promise<Run> {
  if (run.finishedAt) return run;
  const { outcomes: counts, accepted } = await sumBatches(db, run.id);
  return { ...run, counts, accepted };
}

export async function listRunsSoFar(db: Queries, limit: number, kinds?: readonly RunKind[]): Promise<Run[]> {
  return Promise.all((await listRuns(db, limit, kinds)).map((run) => readSoFar(db, run)));
}

/**
 * Estimates the seconds until a run is done. First from the requests that are left and the quota, later from the run's
 * speed. `recordsPerSecond` is a recently observed speed, if known. Returns undefined if the run is not sending.
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
