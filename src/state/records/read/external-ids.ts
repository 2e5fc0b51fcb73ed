// From records to external ids. From external ids to records: owners.ts.
import { query, type Queries } from '../../database.js';
import { recordName, type RecordKey } from '../outcome-types.js';
import { HAS_ARRIVED } from '../record-state.js';

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
      WHERE r.stream = w.stream AND r.local_key = w."localKey" AND ${HAS_ARRIVED}
      OFFSET 0) AS r`;
  const found = new Map(rows.map((row) => [recordName(row), row.externalId]));
  return (reference: RecordKey) => found.get(recordName(reference));
}
