// Which external id a record has, and which records have an external id.
import { arrayLiteral } from '../../sql-text.js';
import { anyOf, query, type Queries } from '../database.js';
import { recordName, type RecordKey } from './outcome-types.js';

/** External ids of records the service has accepted, by stream and key. */
export async function readExternalIds(db: Queries, wanted: readonly RecordKey[]) {
  if (wanted.length === 0) return () => undefined;
  const rows = await query<RecordKey & { externalId: string }>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId"
    FROM jsonb_to_recordset(${JSON.stringify(wanted)}::jsonb) AS w(stream text, "localKey" text)
    CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r
      WHERE r.stream = w.stream AND r.local_key = w."localKey" AND r.object_hash IS NOT NULL
      OFFSET 0) AS r`;
  const found = new Map(rows.map((row) => [recordName(row), row.externalId]));
  return (reference: RecordKey) => found.get(recordName(reference));
}

/** External ids of records of a stream, accepted or not, by local key. */
export async function readRecordIds(db: Queries, stream: string, keys: readonly string[]) {
  const rows = await query<{ localKey: string; externalId: string }>(db)`
    SELECT local_key AS "localKey", external_id AS "externalId" FROM slotsync.records
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND external_id IS NOT NULL`;
  return new Map(rows.map(({ localKey, externalId }) => [localKey, externalId]));
}

/** A record that has an external id. */
export interface Owner extends RecordKey {
  /** The service has accepted its object. */
  isAccepted: boolean;
  /** A batch is writing it, or it is not known whether one has. */
  isWritten: boolean;
}

/** The records that have each of these external ids, without retired ones. */
export async function readOwners(db: Queries, externalIds: readonly string[]): Promise<Map<string, Owner[]>> {
  const rows = await query<Owner & { externalId: string }>(db)`
    SELECT r.external_id AS "externalId", r.stream, r.local_key AS "localKey",
      r.object_hash IS NOT NULL AS "isAccepted", r.claimed_by IS NOT NULL OR r.in_doubt AS "isWritten"
    FROM unnest(${arrayLiteral([...new Set(externalIds)])}::text[]) AS w(external_id)
    CROSS JOIN LATERAL (
      SELECT * FROM slotsync.records AS r
      WHERE r.external_id = w.external_id AND r.status <> 'retired'
      OFFSET 0) AS r`;
  const owners = new Map<string, Owner[]>();
  for (const { externalId, ...owner } of rows)
    owners.set(externalId, [...(owners.get(externalId) ?? []), owner]);
  return owners;
}
