// Runs with what they did so far: the state has the sums of a run only when it has ended.
import type { Queries } from '../state/database.js';
import { listRuns, sumOutcomes, type Run } from '../state/runs/read-runs.js';
import type { RunKind } from '../state/schema.js';

/** A run whose counts are those of its batches so far, if it has not ended. */
export async function readSoFar(db: Queries, run: Run): Promise<Run> {
  return run.finishedAt ? run : { ...run, counts: await sumOutcomes(db, run.id) };
}

/** The latest runs of these kinds, newest first, with what they did so far. */
export async function listRunsSoFar(db: Queries, limit: number, kinds?: readonly RunKind[]): Promise<Run[]> {
  return Promise.all((await listRuns(db, limit, kinds)).map((run) => readSoFar(db, run)));
}
