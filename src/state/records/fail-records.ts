// Failures of records that no batch settles: found while planning, or of a batch that was given up.
import { query, type Queries } from '../database.js';
import { storable } from './outcome-types.js';

interface Failure {
  localKey: string;
  externalId?: string;
  code: string;
  message: string;
  deadHash?: string;
}

/**
 * Writes the failures of records of a stream: the next run tries them again. Those with a `deadHash` are given up
 * until their row has another hash.
 */
export async function failRecords(
  db: Queries,
  stream: string,
  runId: number,
  failures: readonly Failure[],
): Promise<void> {
  const rows = failures.map((failure) => ({ ...failure, message: storable(failure.message) }));
  await query(db)`
    INSERT INTO slotsync.records AS r
      (stream, local_key, status, refused_hash, row_external_id, error_code, error_message, attempts, run_id)
    SELECT ${stream}, f."localKey", CASE WHEN f."deadHash" IS NULL THEN 'failed' ELSE 'dead' END, f."deadHash",
      f."externalId", f.code, f.message, 1, ${runId}::bigint
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)
      AS f("localKey" text, "deadHash" bigint, "externalId" text, code text, message text)
    ON CONFLICT (stream, local_key) DO UPDATE SET
      status = excluded.status, refused_hash = excluded.refused_hash,
      row_external_id = nullif(excluded.row_external_id, r.external_id), error_code = excluded.error_code, error_message = excluded.error_message,
      attempts = r.attempts + 1, run_id = excluded.run_id, updated_at = now()`;
}
