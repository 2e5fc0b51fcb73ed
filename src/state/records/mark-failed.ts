// Failures of records that no batch settles: found while planning, or of a batch that was given up.
import { query, type Queries } from '../database.js';
import { storable } from './outcome-types.js';

/** Writes the failures of records of a stream: the next run tries them again. */
export async function failRecords(
  db: Queries,
  stream: string,
  runId: number,
  failures: readonly { localKey: string; externalId?: string; code: string; message: string }[],
): Promise<void> {
  const rows = failures.map((failure) => ({ ...failure, message: storable(failure.message) }));
  await query(db)`
    INSERT INTO slotsync.records AS r (stream, local_key, status, external_id, error_code, error_message, attempts, run_id)
    SELECT ${stream}, f."localKey", 'failed', f."externalId", f.code, f.message, 1, ${runId}::bigint
    FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) AS f("localKey" text, "externalId" text, code text, message text)
    ON CONFLICT (stream, local_key) DO UPDATE SET
      status = 'failed', error_code = excluded.error_code, error_message = excluded.error_message,
      attempts = r.attempts + 1, run_id = excluded.run_id, updated_at = now()`;
}
