// The run that an operator names by its number.
import { UsageError } from '../../errors/errors.js';
import type { Queries } from '../database.js';
import { readRun, type Run } from './read-runs.js';

/** Throws UsageError when there is no such run. */
export async function findRun(db: Queries, id: number): Promise<Run> {
  const run = await readRun(db, id);
  if (run) return run;
  throw new UsageError(`there is no run ${id}`, { remedy: 'slotsync runs --all lists them.' });
}

/** Throws UsageError unless the run exists and is unfinished. */
export async function findUnfinishedRun(db: Queries, id: number): Promise<Run> {
  const run = await findRun(db, id);
  if (run.finishedAt === null) return run;
  throw new UsageError(`run ${run.id} has ended (${run.status}); nothing was done`);
}

/** The same for a run that can be paused. */
export async function findPausableRun(db: Queries, id: number): Promise<Run> {
  const run = await findUnfinishedRun(db, id);
  if (run.kind !== 'reconcile') return run;
  throw new UsageError(`run ${run.id} is a reconcile run, which only reads and cannot be paused`, {
    remedy: `To end it: slotsync cancel ${run.id}`,
  });
}
