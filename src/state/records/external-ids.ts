// Which external id a record has. Which record has an external id: standing-records.ts.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { HAS_ARRIVED, recordName, type RecordKey } from './outcome-types.js';

/**
 * External ids of the objects that rows refer to, by stream and key of their records: those the service has accepted, and
 * of which nothing is to be decided.
 */
export async function readExternalIds(db: Queries, wanted: readonly RecordKey[]) {
  if (wanted.length === 0) return () => undefined;
  const rows = await query<RecordKey & { externalId: string }>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId"
    FROM jsonb_to_recordset(${JSON.stringify(wanted)}::jsonb) AS w(stream text, "localKey" text)
    CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r
      WHERE r.stream = w.stream AND r.local_key = w."localKey" AND ${sql.raw(HAS_ARRIVED)}
      OFFSET 0) AS r`;
  const found = new Map(rows.map((row) => [recordName(row), row.externalId]));
  return (reference: RecordKey) => found.get(recordName(reference));
}

/** External ids of the objects that records of a stream own, accepted or not, by local key. */
export async function readRecordIds(db: Queries, stream: string, keys: readonly string[]) {
  const rows = await query<{ localKey: string; externalId: string }>(db)`
    SELECT local_key AS "localKey", external_id AS "externalId" FROM slotsync.records
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND external_id IS NOT NULL`;
  return new Map(rows.map(({ localKey, externalId }) => [localKey, externalId]));
}
