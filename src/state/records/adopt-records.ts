// Records made again from what the service holds, after the state was lost.
import { query, type Queries } from '../database.js';
import type { RecordKey } from './outcome-types.js';

/** Hashes as text. */
export interface AdoptedRecord extends RecordKey {
  externalId: string;
  destinationId: string;
  sourceHash: string;
  /** Empty: the object is not as its row says. */
  objectHash: string;
  acceptedFields?: string | null;
  endsAt?: string | undefined;
}

/** Makes the records that are not there yet, as accepted; returns those that were made. */
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
