// A run begins as a row. No two unfinished runs cover one stream, except incremental runs, which cover single keys that
// batches claim, and runs that only read.
import { and, isNull, ne, sql } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import type { Queries } from '../database.js';
import { takeLock, type Waiting } from '../locks.js';
import { runs } from '../schema.js';
import { insertRun, type RunRequest } from './insert-run.js';
import { ONLY_READS, selectRuns, type Run } from './read-runs.js';
import { endLeftRuns } from './run-configuration.js';

/** Starts a run, unless an unfinished one covers any of its streams: then that one is the answer. */
export async function startRun(
  db: Queries,
  request: RunRequest,
  waiting?: Waiting,
): Promise<{ run: Run; started: boolean }> {
  return db.transaction(async (tx) => {
    const [running] = await lockUnfinished(tx, request, waiting);
    if (running) return { run: running, started: false };
    return { run: await insertRun(tx, request), started: true };
  });
}

/**
 * Starts a run over those of its streams that no unfinished run covers, if there are any. `busy`: the runs that cover
 * the others, with the streams each of them covers.
 */
export async function startFreeRun(db: Queries, request: RunRequest) {
  return db.transaction(async (tx) => {
    const unfinished = await lockUnfinished(tx, request);
    const covered = new Set(unfinished.flatMap((run) => run.streams));
    const free = request.streams.filter((stream) => !covered.has(stream));
    return {
      run: free.length === 0 ? undefined : await insertRun(tx, { ...request, streams: free }),
      busy: unfinished.map((run) => ({
        run,
        streams: request.streams.filter((stream) => run.streams.includes(stream)),
      })),
    };
  });
}

/**
 * The unfinished runs that cover any of these streams; no other run starts until the transaction ends. One that nobody may
 * work any more is replaced: it ends here.
 */
async function lockUnfinished(
  tx: Queries,
  { streams, fingerprints }: RunRequest,
  waiting?: Waiting,
): Promise<Run[]> {
  await takeLock(tx, 'run_start', waiting);
  const isUnfinished = and(isNull(runs.finishedAt), ne(runs.kind, 'incremental'));
  const covers = sql`${runs.streams} && ${arrayLiteral(streams)}::text[] AND NOT ${ONLY_READS}`;
  const select = () => selectRuns(tx).where(and(isUnfinished, covers)).orderBy(runs.id);
  const [left, unfinished] = await Promise.all([
    fingerprints ? endLeftRuns(tx, fingerprints, { streams }) : 0,
    select(),
  ]);
  return left === 0 ? unfinished : select();
}
