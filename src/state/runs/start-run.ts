// A run begins as a row. No two unfinished runs cover one stream, except incremental runs, which cover single keys that
// batches claim, and runs that only read.
import { and, isNull, ne, sql } from 'drizzle-orm';
import { arrayLiteral } from '../../sql-text.js';
import { takeLock, type Queries } from '../database.js';
import { runs, type RunKind, type RunRange, type StartedBy } from '../schema.js';
import { ONLY_READS, type Run } from './read-runs.js';

/** Serializes the start of runs, so that two never cover one stream. */
const START_LOCK = 'slotsync run start';

export interface RunRequest {
  kind: RunKind;
  lane: string;
  startedBy: StartedBy;
  streams: readonly string[];
  range?: RunRange | undefined;
}

/** Starts a run, unless an unfinished one covers any of its streams: then that one is the answer. */
export async function startRun(db: Queries, request: RunRequest): Promise<{ run: Run; started: boolean }> {
  return db.transaction(async (tx) => {
    const [running] = await lockUnfinished(tx, request.streams);
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
    const unfinished = await lockUnfinished(tx, request.streams);
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

/** The unfinished runs that cover any of these streams; no other run starts until the transaction ends. */
async function lockUnfinished(tx: Queries, streams: readonly string[]): Promise<Run[]> {
  await takeLock(tx, START_LOCK);
  const isUnfinished = and(isNull(runs.finishedAt), ne(runs.kind, 'incremental'));
  const covers = sql`${runs.streams} && ${arrayLiteral(streams)}::text[] AND NOT ${ONLY_READS}`;
  return tx.select().from(runs).where(and(isUnfinished, covers)).orderBy(runs.id);
}

/** Writes the row of a run, without looking at others: as to be planned, or as under way already. */
export async function insertRun(
  tx: Queries,
  { streams, range, ...request }: RunRequest,
  status: 'planning' | 'running' = 'planning',
): Promise<Run> {
  const startedAt = status === 'running' ? sql`now()` : null;
  const row = { ...request, streams: [...streams], range: range ?? null, status, startedAt };
  const [run] = await tx.insert(runs).values(row).returning();
  if (!run) throw new Error('the run was not written');
  return run;
}
