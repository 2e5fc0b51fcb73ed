// A poll asks of the keys it reads: their records, and what already waits for them.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../../database.js';
import { isExcepted } from '../../exceptions.js';
import { MARK } from './plan-marks.js';

/** A key that was polled, as the state knows it. */
export interface PolledRecord {
  localKey: string;
  /** See plan-marks.ts. Null: there is no record. */
  mark: string | null;
  /** It waits in the inbox. */
  isWaiting: boolean;
  /** True while a gate or an exception keeps the record back. */
  isHeld: boolean;
}

/** These keys as the state knows them, by key. */
export async function readPolledRecords(db: Queries, stream: string, keys: readonly string[]) {
  const rows = await query<PolledRecord>(db)`
    WITH wanted AS (
      SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) COLLATE "C" AS key
    )
    SELECT w.key AS "localKey", CASE WHEN r.local_key IS NOT NULL THEN ${sql.raw(MARK)} END AS mark,
      EXISTS (SELECT FROM slotsync.changes AS c
        WHERE c.stream = ${stream} AND c.local_key = w.key AND c.run_id IS NULL) AS "isWaiting",
      EXISTS (SELECT FROM slotsync.held AS h WHERE h.stream = ${stream} AND h.local_key = w.key)
        OR ${isExcepted(sql`${stream}`, sql`w.key`)} AS "isHeld"
    FROM wanted AS w
    LEFT JOIN slotsync.records AS r ON r.stream = ${stream} AND r.local_key = w.key`;
  return new Map(rows.map((row) => [row.localKey, row]));
}
