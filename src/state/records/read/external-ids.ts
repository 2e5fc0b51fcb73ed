// Finds external ids of records. owners.ts finds the records of external ids.
import { query, type Queries } from '../../database.js';
import { recordName, type RecordKey } from '../outcome-types.js';
import { HAS_ARRIVED } from '../record-state.js';

/**
 * Returns a function that yields the external id of a referenced record. It yields undefined if the service has not
 * accepted the record, or if an operator must decide about its object.
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
