// Stores when each stream was last completely compared with the service.
import { query, type Queries, type RowOf } from '../database.js';
import type { verifications } from '../schema.js';

export type Verification = RowOf<typeof verifications>;

/** Stores a whole verify of a stream. Its result is valid for the time when the run began. */
export async function noteVerified(
  db: Queries,
  { runId, stream, objects }: { runId: number; stream: string; objects: number },
): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.verifications (stream, verified_at, objects, run_id)
    SELECT ${stream}, started_at, ${objects}::bigint, id FROM slotsync.runs WHERE id = ${runId}::bigint
    ON CONFLICT (stream) DO UPDATE SET verified_at = excluded.verified_at, objects = excluded.objects,
      run_id = excluded.run_id`;
}

export async function listVerifications(db: Queries): Promise<Verification[]> {
  return query<Verification>(db)`
    SELECT stream, verified_at AS "verifiedAt", objects::float8 AS objects, run_id::float8 AS "runId"
    FROM slotsync.verifications ORDER BY stream`;
}
