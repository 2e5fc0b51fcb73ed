// The run that a command names by its number.
import { UsageError } from '../errors.js';
import type { Queries } from '../state/database.js';
import { readRun, type Run } from '../state/runs/read-runs.js';
import { readWholeNumber } from './work-run.js';

/** Throws UsageError when there is no such run. */
export async function findRun(db: Queries, id: string): Promise<Run> {
  const run = await readRun(db, readWholeNumber(id, 'a run is'));
  if (run) return run;
  throw new UsageError(`there is no run ${id}`, { remedy: 'slotsync runs --all lists them.' });
}

/** Throws UsageError unless the run exists and is unfinished. */
export async function findUnfinishedRun(db: Queries, id: string): Promise<Run> {
  const run = await findRun(db, id);
  if (run.finishedAt === null) return run;
  throw new UsageError(`run ${run.id} has ended (${run.status}); nothing was done`);
}
