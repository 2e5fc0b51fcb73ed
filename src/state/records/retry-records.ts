// An operator's retry of records that were given up.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import type { RecordKey } from './outcome-types.js';

/**
 * Lets dead and failed records be sent again by the next run; without keys all of them. One whose external id changed lets
 * go of the object it had: the next run creates the new one. Returns those that were changed.
 */
export async function retryRecords(
  db: Queries,
  { stream, keys }: { stream?: string | undefined; keys: readonly string[] },
): Promise<RecordKey[]> {
  return query<RecordKey>(db)`
    UPDATE slotsync.records SET status = 'failed', refused_hash = NULL, updated_at = now(),
      (external_id, destination_id, object_hash, source_hash) = (
        SELECT external_id, destination_id, object_hash, source_hash
        WHERE error_code IS DISTINCT FROM 'external_id_changed')
    WHERE status IN ('dead', 'failed') AND stream = coalesce(${stream ?? null}, stream)
      AND ${keys.length === 0 ? sql`true` : sql`local_key = ${anyOf(keys)}`}
    RETURNING stream, local_key AS "localKey"`;
}
