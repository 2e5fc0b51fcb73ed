// A batch: keys that are claimed, read and settled together, and sent in as many requests as necessary. A batch is a
// row before it is a job, and ends as a row, so that the queue can be lost without losing a batch.
import { sql } from 'drizzle-orm';
import { query, queryFirst, queryValue, type Queries } from '../database.js';
import { hasClaimedExcepted, IS_EXCEPTED } from '../exceptions.js';
import { isFrozen, reasonFrozen } from '../freezes.js';
import { EXTERNAL_ID_TAKEN } from '../records/outcome-types.js';
import { IS_FORMER, UNSETTLED } from '../records/record-state.js';
import { batches, type BatchState } from '../schema.js';

type BatchRow = typeof batches.$inferSelect;
export interface Batch extends Pick<
  BatchRow,
  'id' | 'runId' | 'stream' | 'level' | 'operation' | 'exempt' | 'keys' | 'state'
> {
  lane: string;
  isPaused: boolean;
  /** Reason why the stream of the batch is frozen. Null if it is not frozen. */
  frozen: string | null;
  /** Fingerprint of the configuration that the run belongs to. */
  configuration: string | null;
}
const ENDED: ReadonlySet<BatchState> = new Set(['done', 'failed', 'cancelled']);
export type NewBatch = Omit<typeof batches.$inferInsert, 'finishedAt'>;

/** Inserts batches. A batch in a final state gets the current time as its end. */
export async function insertBatches(db: Queries, rows: readonly NewBatch[]): Promise<void> {
  // PostgreSQL before version 14 needs this clause to insert several rows with a generated id.
  if (rows.length > 0)
    await db
      .insert(batches)
      .overridingSystemValue()
      .values(rows.map((row) => (ENDED.has(row.state) ? { ...row, finishedAt: sql`now()` } : row)));
}

/** Deletes the batches that a planning wrote for a stream. Only the planner of the run may call this. */
export async function deleteBatches(tx: Queries, runId: number, stream: string): Promise<void> {
  await query(tx)`
    DELETE FROM slotsync.batches WHERE run_id = ${runId}::bigint AND stream = ${stream}`;
}

export const readBatch = (db: Queries, id: number) => queryFirst<Batch>(db)`
  SELECT b.id::float8 AS id, run_id::float8 AS "runId", stream, level, operation, exempt, keys, state, lane,
    paused_at IS NOT NULL AS "isPaused",
    ${reasonFrozen(sql`b.stream`)} AS frozen, configuration
  FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id WHERE b.id = ${id}::bigint`;

/**
 * Returns true if more of the batch may be sent: it is queued, its run is not paused, its stream is not frozen, and no
 * record that was claimed with `token` has become an exception. Claims of killed processes are ignored.
 */
export async function isToBeSent(db: Queries, id: number, token: string): Promise<boolean> {
  const [row] = await query(db)`
    SELECT FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id
    WHERE b.id = ${id}::bigint AND state = 'queued' AND paused_at IS NULL
      AND NOT ${isFrozen(sql`b.stream`)} AND NOT ${hasClaimedExcepted(token)}`;
  return row !== undefined;
}

/** A batch whose row is `queued`: it should have a job, unless its run is paused. Only the queue knows whether it has one. */
export type QueuedBatch = Pick<Batch, 'id' | 'lane'>;

/** Marks the first level of a run that waits as `queued`. Returns its batches: the caller hands them to the queue, or works them. */
export async function markNextLevelQueued(tx: Queries, runId: number): Promise<QueuedBatch[]> {
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

/** Returns the batches that should have a job, of one run or of all runs. */
export const listQueuedBatches = (db: Queries, runId?: number) =>
  query<QueuedBatch & Pick<Batch, 'configuration'>>(db)`
    SELECT b.id::float8 AS id, lane, configuration
    FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = run_id
    WHERE state = 'queued' AND paused_at IS NULL AND r.id = coalesce(${runId ?? null}::bigint, r.id) ORDER BY b.id`;

/**
 * Returns true if creates or updates of the stream are held, failed, given up, in doubt, or unfinished in an earlier
 * level. Then no object may be deactivated, because it may belong to the row of such a record.
 */
export const hasUnsentWrites = (
  db: Queries,
  { runId, stream, level }: Pick<Batch, 'runId' | 'stream' | 'level'>,
) => queryValue<boolean>(db)`
  SELECT EXISTS (SELECT FROM slotsync.batches
      WHERE run_id = ${runId}::bigint AND stream = ${stream} AND level < ${level} AND state IN ('planned', 'queued', 'failed'))
    OR EXISTS (SELECT FROM slotsync.held
      WHERE stream = ${stream} AND coalesce(operation IN ('create', 'update', 'overwrite'), true))
    OR EXISTS (SELECT FROM slotsync.records AS r
      WHERE r.stream = ${stream} AND r.${UNSETTLED} AND r.status IN ('failed', 'dead') AND r.gone_since IS NULL AND NOT ${IS_FORMER}
        AND r.error_code IS DISTINCT FROM ${EXTERNAL_ID_TAKEN} AND NOT ${IS_EXCEPTED})
    OR EXISTS (SELECT FROM slotsync.records AS r
      WHERE r.stream = ${stream} AND r.in_doubt AND r.gone_since IS NULL AND NOT ${IS_FORMER} AND NOT ${IS_EXCEPTED}) AS unsent`;

export async function cancelBatches(db: Queries, runId: number): Promise<void> {
  await query(db)`
    UPDATE slotsync.batches SET state = 'cancelled', finished_at = now()
    WHERE run_id = ${runId}::bigint AND state IN ('planned', 'queued')`;
}
