// The keys of one request. A batch is a row before it is a job, and finished as a row: the queue may be lost
// at any time without losing a batch.
import { and, eq, inArray, isNull, sql } from 'drizzle-orm';
import { queryState, type Queries, type State } from '../database.js';
import { settleRecords, type Settled } from '../records/claims.js';
import { countOutcomes, NO_OUTCOMES } from '../records/outcomes.js';
import { advanceRun } from './runs.js';
import { batches, runs, type BatchState, type LimitedOperation, type OutcomeCounts } from '../schema.js';

export interface Batch {
  id: number;
  runId: number;
  stream: string;
  level: number;
  /** Undefined: whatever the rows ask for. */
  operation: LimitedOperation | undefined;
  keys: string[];
  state: BatchState;
  /** Of its run. */
  lane: string;
  isForced: boolean;
  isPaused: boolean;
}

export interface NewBatch {
  runId: number;
  stream: string;
  level: number;
  keys: string[];
  state: BatchState;
  operation?: LimitedOperation | undefined;
  counts?: OutcomeCounts;
  finishedAt?: Date;
  errorCode?: string;
  errorMessage?: string;
}

export async function insertBatches(db: Queries, rows: readonly NewBatch[]): Promise<void> {
  if (rows.length === 0) return;
  await queryState(() => db.insert(batches).values([...rows]));
}

/**
 * Removes what an interrupted planning left, of one stream or of all, so that it can start again. Of a run that is
 * planned already nothing is removed: a planner that slept through that must not touch its batches.
 */
export async function deleteBatches(db: Queries, runId: number, stream?: string): Promise<void> {
  const ofStream = stream === undefined ? undefined : eq(batches.stream, stream);
  await queryState(() =>
    db.delete(batches).where(and(eq(batches.runId, runId), ofStream, stillPlanning(runId))),
  );
}

export async function readBatch(db: Queries, id: number): Promise<Batch | undefined> {
  const [row] = await queryState(() =>
    db
      .select({
        id: batches.id,
        runId: batches.runId,
        stream: batches.stream,
        level: batches.level,
        operation: batches.operation,
        keys: batches.keys,
        state: batches.state,
        lane: runs.lane,
        isForced: sql<boolean>`coalesce((${runs.range}->>'force')::boolean, false)`,
        isPaused: sql<boolean>`${runs.pausedAt} IS NOT NULL`,
      })
      .from(batches)
      .innerJoin(runs, eq(runs.id, batches.runId))
      .where(eq(batches.id, id)),
  );
  return row && { ...row, operation: row.operation ?? undefined };
}

function stillPlanning(runId: number) {
  return sql`EXISTS (SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND status = 'planning')`;
}

/** Ids and lanes of every batch that should be in the queue; those of paused runs should not. */
export async function listQueuedBatches(db: Queries): Promise<{ id: number; lane: string }[]> {
  return queryState(() =>
    db
      .select({ id: batches.id, lane: runs.lane })
      .from(batches)
      .innerJoin(runs, eq(runs.id, batches.runId))
      .where(and(eq(batches.state, 'queued'), isNull(runs.pausedAt)))
      .orderBy(batches.id),
  );
}

/** Changes the state of a run's batches of one stream that still wait for approval or their turn. */
export async function setBatchStates(
  db: Queries,
  which: { runId: number; stream: string; operation: LimitedOperation; from: BatchState; to: BatchState },
): Promise<void> {
  await queryState(() =>
    db
      .update(batches)
      .set({ state: which.to })
      .where(
        and(
          eq(batches.runId, which.runId),
          eq(batches.stream, which.stream),
          eq(batches.operation, which.operation),
          eq(batches.state, which.from),
        ),
      ),
  );
}

/**
 * Records of a stream that incremental runs of the last day retire or have retired, one run left out. What a run that
 * is still being planned may let go counts too, so that runs planned side by side see each other.
 */
export async function countRetiringToday(db: Queries, stream: string, exceptRun: number): Promise<number> {
  const [row] = await queryState(() =>
    db.execute<{ count: number }>(sql`
      SELECT count(DISTINCT k)::int AS count
      FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id, unnest(b.keys) AS k
      WHERE r.kind = 'incremental' AND r.id <> ${exceptRun}::bigint AND b.stream = ${stream} AND b.operation = 'retire'
        AND b.created_at > now() - interval '1 day'
        AND (b.state IN ('planned', 'queued', 'done') OR (b.state = 'held' AND r.status = 'planning'))`),
  );
  return row?.count ?? 0;
}

/**
 * One transaction: the outcomes of a batch's records, and the batch itself. When every key has its outcome the
 * batch is done, and then its run takes its next step; otherwise the settled keys become a finished batch of their own
 * and this one keeps the rest. Returns the batches to queue now, and the keys that remain.
 */
export async function settleBatch(
  { db }: Pick<State, 'db'>,
  batch: Batch,
  settled: Settled,
): Promise<{ queue: number[]; remaining: string[] }> {
  const { finished, remaining } = await queryState(() =>
    db.transaction(async (tx) => {
      const { lost } = await settleRecords(tx, { ...settled, stream: batch.stream, runId: batch.runId });
      const open = new Set(lost);
      const outcomes = settled.outcomes.filter(({ localKey }) => !open.has(localKey));
      const done = new Set(outcomes.map(({ localKey }) => localKey));
      const remaining = batch.keys.filter((key) => !done.has(key));
      const counts = countOutcomes(outcomes);
      if (remaining.length === 0)
        return { finished: await finishBatch(tx, batch, { state: 'done', counts }), remaining };
      if (done.size > 0) {
        await tx.insert(batches).values({
          runId: batch.runId,
          stream: batch.stream,
          level: batch.level,
          operation: batch.operation,
          keys: [...done],
          state: 'done',
          counts,
          finishedAt: new Date(),
        });
        await tx.update(batches).set({ keys: remaining }).where(eq(batches.id, batch.id));
      }
      return { finished: false, remaining };
    }),
  );
  return { queue: finished ? await advanceRun(db, batch.runId) : [], remaining };
}

/** Gives a batch up after its last attempt. Its records are `failed`: the next run tries them again. */
export async function failBatch(
  { db }: Pick<State, 'db'>,
  batch: Batch,
  error: { code: string; message: string },
): Promise<{ queue: number[] }> {
  const finished = await queryState(() =>
    db.transaction(async (tx) => {
      await tx.execute(sql`
        INSERT INTO slotsync.records AS r (stream, local_key, status, error_code, error_message, attempts, run_id)
        SELECT ${batch.stream}, k, 'failed', ${error.code}, ${error.message}, 1, ${batch.runId}::bigint
        FROM jsonb_array_elements_text(${JSON.stringify(batch.keys)}::jsonb) AS k
        ON CONFLICT (stream, local_key) DO UPDATE SET
          status = 'failed', error_code = excluded.error_code, error_message = excluded.error_message,
          attempts = r.attempts + 1, run_id = excluded.run_id, updated_at = now()`);
      const counts = { ...NO_OUTCOMES, failed: batch.keys.length };
      return finishBatch(tx, batch, { state: 'failed', counts, error });
    }),
  );
  return { queue: finished ? await advanceRun(db, batch.runId) : [] };
}

async function finishBatch(
  tx: Queries,
  batch: Batch,
  end: { state: BatchState; counts: OutcomeCounts; error?: { code: string; message: string } },
): Promise<boolean> {
  const finished = await tx
    .update(batches)
    .set({
      state: end.state,
      counts: sql`${JSON.stringify(end.counts)}::jsonb`,
      finishedAt: new Date(),
      errorCode: end.error?.code ?? null,
      errorMessage: end.error?.message ?? null,
    })
    .where(and(eq(batches.id, batch.id), inArray(batches.state, ['queued', 'planned'])))
    .returning({ id: batches.id });
  return finished.length > 0;
}
