// Reads the state of polled keys: their records, and what the inbox and the gates hold of them.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../../database.js';
import { isExcepted } from '../../exceptions.js';
import { MARK } from './plan-marks.js';

export interface PolledRecord {
  localKey: string;
  /** Mark of the record, see plan-marks.ts. Null if there is no record. */
  mark: string | null;
  /** True if the key is in the inbox. */
  isWaiting: boolean;
  /** True if a gate holds the record or an exception protects it. */
  isHeld: boolean;
}

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
