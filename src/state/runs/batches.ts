// The keys of one request. A batch is a row before it is a job, and finished as a row: the queue may be lost at any time
// without losing a batch.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { FROZEN_STREAMS, reasonFrozen } from '../freezes.js';
import { batches, type BatchState, type HoldOperation, type LimitedOperation } from '../schema.js';

type BatchRow = typeof batches.$inferSelect;
/** A batch, with what of its run matters to it. */
export interface Batch extends Pick<
  BatchRow,
  'id' | 'runId' | 'stream' | 'level' | 'operation' | 'exempt' | 'keys' | 'state'
> {
  lane: string;
  isForced: boolean;
  isPaused: boolean;
  /** Why its stream is frozen; null: it is not. */
  frozen: string | null;
  /** Its run's. */
  configuration: string | null;
}
const ENDED: ReadonlySet<BatchState> = new Set(['done', 'failed', 'cancelled']);
export type NewBatch = Omit<typeof batches.$inferInsert, 'finishedAt'>;

/** Adds batches; those that have ended end now. */
export async function insertBatches(db: Queries, rows: readonly NewBatch[]): Promise<void> {
  // PostgreSQL before release 14 refuses several rows with a generated id without it.
  if (rows.length > 0)
    await db
      .insert(batches)
      .overridingSystemValue()
      .values(rows.map((row) => (ENDED.has(row.state) ? { ...row, finishedAt: sql`now()` } : row)));
}

/** Removes what a planning wrote of a stream. Only the planner of the run may: planner-token.ts. */
export async function deleteBatches(tx: Queries, runId: number, stream: string): Promise<void> {
  await query(tx)`
    DELETE FROM slotsync.batches WHERE run_id = ${runId}::bigint AND stream = ${stream}`;
}

/** A batch by its id. */
export async function readBatch(db: Queries, id: number): Promise<Batch | undefined> {
  const [row] = await query<Batch>(db)`
    SELECT b.id::float8 AS id, run_id::float8 AS "runId", stream, level, operation, exempt, keys, state, lane,
      coalesce((range->>'force')::boolean, false) AS "isForced", paused_at IS NOT NULL AS "isPaused",
      ${reasonFrozen(sql`b.stream`)} AS frozen, configuration
    FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id WHERE b.id = ${id}::bigint`;
  return row;
}

/** Whether more of a batch may be sent: it is neither ended nor held, its run not paused, and its stream not frozen. */
export async function isToBeSent(db: Queries, id: number): Promise<boolean> {
  const [row] = await query(db)`
    SELECT FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id
    WHERE b.id = ${id}::bigint AND state = 'queued' AND paused_at IS NULL
      AND b.stream <> ALL (${FROZEN_STREAMS})`;
  return row !== undefined;
}

/** A batch that should have a job; those of paused runs should not. */
export type QueuedBatch = Pick<Batch, 'id' | 'lane'>;

/** Queues the first level of a run that waits. */
export async function queueNextLevel(tx: Queries, runId: number): Promise<QueuedBatch[]> {
  const queued = await query<QueuedBatch & Pick<Batch, 'isPaused'>>(tx)`
    UPDATE slotsync.batches AS b SET state = 'queued' FROM slotsync.runs AS r
    WHERE r.id = ${runId}::bigint AND b.run_id = r.id AND state = 'planned' AND level = (
      SELECT min(level) FROM slotsync.batches WHERE run_id = ${runId}::bigint AND state = 'planned')
    RETURNING b.id::float8 AS id, lane, paused_at IS NOT NULL AS "isPaused"`;
  return queued.filter(({ isPaused }) => !isPaused).toSorted((a, b) => a.id - b.id);
}

export async function hasQueuedBatches(db: Queries, runId: number): Promise<boolean> {
  const queued = await query(db)`
    SELECT FROM slotsync.batches WHERE run_id = ${runId}::bigint AND state = 'queued' LIMIT 1`;
  return queued.length > 0;
}

/** The batches that should have a job, of one run or of all. */
export async function listQueuedBatches(db: Queries, runId?: number) {
  return query<QueuedBatch & Pick<Batch, 'configuration'>>(db)`
    SELECT b.id::float8 AS id, lane, configuration
    FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id
    WHERE state = 'queued' AND paused_at IS NULL AND r.id = coalesce(${runId ?? null}::bigint, r.id) ORDER BY b.id`;
}

/**
 * Ends the hold of an operation: its batches may go when it is their turn, or are cancelled. `isExempt`: they do not count
 * towards later limits.
 */
export async function releaseHeldBatches(
  db: Queries,
  { runId, stream, operation }: { runId: number; stream: string; operation: HoldOperation },
  { to, isExempt = false }: { to: 'planned' | 'cancelled'; isExempt?: boolean },
): Promise<void> {
  await query(db)`
    UPDATE slotsync.batches SET state = ${to}, exempt = exempt OR ${isExempt}, finished_at = CASE WHEN ${to === 'cancelled'} THEN now() END
    WHERE run_id = ${runId}::bigint AND stream = ${stream} AND operation = ${operation} AND state = 'held'`;
}

/** Whether creates or updates that go before this batch in its run, of its stream, are held, failed or not done yet. */
export async function hasUnsentWrites(
  db: Queries,
  { runId, stream, level }: Pick<Batch, 'runId' | 'stream' | 'level'>,
): Promise<boolean> {
  const { unsent } = await queryOne<{ unsent: boolean }>(db)`
    SELECT EXISTS (SELECT FROM slotsync.batches
      WHERE run_id = ${runId}::bigint AND stream = ${stream} AND level < ${level}
        AND state IN ('planned', 'queued', 'held', 'failed')) AS unsent`;
  return unsent;
}

/** Cancels what of a run is not finished. */
export async function cancelBatches(db: Queries, runId: number): Promise<void> {
  await query(db)`
    UPDATE slotsync.batches SET state = 'cancelled', finished_at = now()
    WHERE run_id = ${runId}::bigint AND state IN ('planned', 'queued', 'held')`;
}

/** Less than 24 hours: two nights do not count together because a run started late or clocks were changed. */
export const DAY = sql`interval '23 hours'`;

/**
 * Records of a stream that other runs of the last day created, updated, and so on, or still will. What a run that is being
 * planned may release counts too, so that runs planned side by side see each other. `isExact`: each key counts once, and
 * not at all when this run has it too; otherwise a key may count several times, which costs no sorting.
 */
export async function countWithinADay(
  db: Queries,
  { stream, operation, runId }: { stream: string; operation: LimitedOperation; runId: number },
  { isExact }: { isExact: boolean },
): Promise<number> {
  const batchesAndRuns = sql`slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id`;
  const counts = sql`b.stream = ${stream} AND b.operation = ${operation} AND b.created_at > now() - ${DAY} AND NOT b.exempt
    AND (b.state IN ('planned', 'queued', 'done', 'failed') OR (b.state = 'held' AND r.status = 'planning'))`;
  const { count } = isExact
    ? await queryOne<{ count: number }>(db)`
      SELECT (count(DISTINCT key) - count(DISTINCT key) FILTER (WHERE b.run_id = ${runId}::bigint))::int AS count
      FROM ${batchesAndRuns} CROSS JOIN unnest(b.keys) AS key WHERE ${counts}`
    : await queryOne<{ count: number }>(db)`
      SELECT coalesce(sum(cardinality(b.keys)), 0)::int AS count
      FROM ${batchesAndRuns} WHERE ${counts} AND b.run_id <> ${runId}::bigint`;
  return count;
}

/** Creates of a stream that other plans of the last day have sent without asking what they meet at the service. */
export async function countUnaskedWithinADay(db: Queries, stream: string, runId: number): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT coalesce(sum((plan->${stream}->>'unasked')::int), 0)::int AS count FROM slotsync.runs
    WHERE id <> ${runId}::bigint AND requested_at > now() - ${DAY}`;
  return count;
}
