// Runs with what they did so far: the state has the sums of a run only when it has ended.
import type { Queries } from '../state/database.js';
import { listRuns, sumBatches, type Run } from '../state/runs/read-runs.js';
import type { RunKind } from '../state/schema.js';

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
