// How far each stream was polled by its cursor, and what polling must know of the records it meets.
import { sql } from 'drizzle-orm';
import { queryState, type Queries, type State } from '../database.js';
import { MARK } from '../records/plan-marks.js';
import { watermarks } from '../schema.js';

export type Watermark = typeof watermarks.$inferSelect;

/** A place in the order of a stream's cursor. The cursor's value is text at full precision. */
export type CursorPosition = Pick<Watermark, 'cursor' | 'localKey'>;

/** What the state knows of a key that was polled. */
export interface PolledRecord {
  localKey: string;
  /** See records/plan-marks.ts. Null: there is no record. */
  mark: string | null;
  /** It waits in the inbox. */
  isWaiting: boolean;
  /** A later run than any that has settled it holds it until an operator acts. */
  isHeld: boolean;
}

export async function listWatermarks(db: Queries): Promise<Watermark[]> {
  return queryState(() => db.select().from(watermarks).orderBy(watermarks.stream));
}

/**
 * Runs one poll of a stream: one at a time over all processes. Undefined when another is at it, or when the stream is
 * still to be synced or was not polled before and is just being synced: what that run brings need not go through the
 * inbox. What `poll` writes is one transaction.
 */
export async function withPoll<T>(
  { db }: Pick<State, 'db'>,
  stream: string,
  poll: (tx: Queries, watermark: Watermark | undefined) => Promise<T>,
): Promise<T | undefined> {
  return queryState(() =>
    db.transaction(async (tx) => {
      const [may] = await tx.execute<{ poll: boolean }>(sql`
        SELECT EXISTS (SELECT FROM slotsync.records WHERE stream = ${stream})
          AND (EXISTS (SELECT FROM slotsync.watermarks WHERE stream = ${stream})
            OR NOT EXISTS (SELECT FROM slotsync.runs
              WHERE finished_at IS NULL AND kind <> 'incremental' AND ${stream} = ANY (streams)))
          AND pg_try_advisory_xact_lock(hashtextextended('slotsync poll ' || ${stream}, 0)) AS poll`);
      if (!may?.poll) return undefined;
      const [watermark] = await tx
        .select()
        .from(watermarks)
        .where(sql`${watermarks.stream} = ${stream}`);
      return poll(tx, watermark);
    }),
  );
}

export async function moveWatermark(
  tx: Queries,
  stream: string,
  { cursor, localKey }: CursorPosition,
): Promise<void> {
  await tx
    .insert(watermarks)
    .values({ stream, cursor, localKey })
    .onConflictDoUpdate({ target: watermarks.stream, set: { cursor, localKey, movedAt: sql`now()` } });
}

/** Keys of a stream that wait in the inbox for their first look. */
export async function countWaiting(db: Queries, stream: string): Promise<number> {
  const [row] = await db.execute<{ count: number }>(sql`
    SELECT count(DISTINCT local_key)::int AS count FROM slotsync.changes
    WHERE stream = ${stream} AND run_id IS NULL AND not_before IS NULL`);
  return row?.count ?? 0;
}

/** What the state knows of these keys, by key. */
export async function readPolledRecords(
  db: Queries,
  stream: string,
  keys: readonly string[],
): Promise<Map<string, PolledRecord>> {
  const wanted = JSON.stringify(keys);
  const rows = await db.execute<Record<string, never>>(sql`
    WITH wanted AS (
      SELECT jsonb_array_elements_text(${wanted}::jsonb) COLLATE "C" AS key
    ), held AS (
      SELECT h.key COLLATE "C" AS key, max(b.run_id) AS run_id
      FROM slotsync.batches AS b CROSS JOIN unnest(b.keys) AS h(key)
      WHERE b.stream = ${stream} AND b.state = 'held' AND h.key IN (SELECT key FROM wanted)
      GROUP BY h.key
    )
    SELECT w.key AS "localKey", CASE WHEN r.local_key IS NOT NULL THEN ${sql.raw(MARK)} END AS mark,
      EXISTS (SELECT FROM slotsync.changes AS c
        WHERE c.stream = ${stream} AND c.local_key = w.key AND c.run_id IS NULL) AS "isWaiting",
      coalesce(held.run_id > coalesce(r.run_id, 0), false) AS "isHeld"
    FROM wanted AS w
    LEFT JOIN slotsync.records AS r ON r.stream = ${stream} AND r.local_key = w.key
    LEFT JOIN held ON held.key = w.key`);
  return new Map((rows as unknown as PolledRecord[]).map((row) => [row.localKey, row]));
}
