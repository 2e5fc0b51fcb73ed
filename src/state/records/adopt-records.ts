// Creates records from objects that the service holds, after the state was lost.
import { query, type Queries } from '../database.js';
import type { RecordKey } from './outcome-types.js';

export interface AdoptedRecord extends RecordKey {
  externalId: string;
  destinationId: string;
  sourceHash: string;
  /** Hash of the object. Empty if the object differs from its row. */
  objectHash: string;
  acceptedFields?: string | null;
  endsAt?: string | undefined;
}

/**
 * Inserts the records as accepted, without overwriting existing records. Returns the inserted records. `isEqual` is
 * true if the object equals its row.
 */
export async function insertAdopted(
  db: Queries,
  runId: number,
  adopted: readonly AdoptedRecord[],
): Promise<(RecordKey & { isEqual: boolean })[]> {
  if (adopted.length === 0) return [];
  return query<RecordKey & { isEqual: boolean }>(db)`
    INSERT INTO slotsync.records (stream, local_key, external_id, destination_id, source_hash, object_hash,
      accepted_fields, ends_at, status, run_id, synced_at)
    SELECT stream, "localKey", "externalId", "destinationId", "sourceHash", "objectHash", "acceptedFields", "endsAt", 'synced',
      ${runId}::bigint, now()
    FROM jsonb_to_recordset(${JSON.stringify(adopted)}::jsonb) AS a(stream text, "localKey" text, "externalId" text,
      "destinationId" text, "sourceHash" bigint, "objectHash" text, "acceptedFields" text, "endsAt" timestamptz)
    ON CONFLICT DO NOTHING
    RETURNING stream, local_key AS "localKey", object_hash <> '' AS "isEqual"`;
}
