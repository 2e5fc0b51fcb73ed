// All the state has about one record: its row, what waits for it, and the batches that touched it.
import { and, eq, sql } from 'drizzle-orm';
import { queryState, type Queries } from '../database.js';
import { records } from '../schema.js';

export type RecordRow = typeof records.$inferSelect;

export interface RecordBatch {
  runId: number;
  kind: string;
  batchId: number;
  operation: string | null;
  state: string;
  errorCode: string | null;
  at: string;
}

export async function readRecord(
  db: Queries,
  stream: string,
  localKey: string,
): Promise<RecordRow | undefined> {
  const [row] = await queryState(() =>
    db
      .select()
      .from(records)
      .where(and(eq(records.stream, stream), eq(records.localKey, localKey))),
  );
  return row;
}

/** The latest batches with this key, latest first. Batches are kept for fourteen days. */
export async function listBatchesOf(
  db: Queries,
  stream: string,
  localKey: string,
  limit: number,
): Promise<RecordBatch[]> {
  return queryState(() =>
    db.execute<RecordBatch & Record<string, unknown>>(sql`
      SELECT b.run_id::float8 AS "runId", r.kind, b.id::float8 AS "batchId", b.operation, b.state,
        b.error_code AS "errorCode", coalesce(b.finished_at, b.created_at) AS at
      FROM slotsync.batches AS b JOIN slotsync.runs AS r ON r.id = b.run_id
      WHERE b.stream = ${stream} AND ${localKey} = ANY (b.keys) ORDER BY b.id DESC LIMIT ${limit}`),
  );
}

/** How often the key stands in the inbox, not yet looked at. */
export async function countChangesOf(db: Queries, stream: string, localKey: string): Promise<number> {
  const [row] = await queryState(() =>
    db.execute<{ count: number }>(sql`
      SELECT count(*)::int AS count FROM slotsync.changes WHERE stream = ${stream} AND local_key = ${localKey}`),
  );
  return row?.count ?? 0;
}
