// A record is claimed before it is looked at and settled with its outcome. A claim that was never settled leaves the
// record in doubt: the service may hold something else than was accepted last, so it is sent again.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries, type RowOf } from '../database.js';
import type { records } from '../schema.js';

/** What the state knows of a record when a batch claims it. */
export type ClaimedRecord = Pick<
  RowOf<typeof records>,
  | ('localKey' | 'status' | 'externalId' | 'destinationId' | 'sourceHash' | 'objectHash')
  | ('inDoubt' | 'waitsSince' | 'errorCode' | 'refusedHash')
> & {
  /** It is looked at again at a time that has not come. */
  isCheckPending: boolean;
};

/** Whose records, and whose claim on them. */
export interface Claim {
  token: string;
  stream: string;
}

/** How long a claim is valid unless renewed, in seconds. */
export const CLAIM_SECONDS = 60;
const CLAIMED_UNTIL = sql`now() + make_interval(secs => ${CLAIM_SECONDS})`;

/**
 * Claims the records that no other batch is writing; the answer has no others. `externalIds`, by key: those known
 * already, noted with records the service has never accepted.
 */
export async function claimRecords(
  db: Queries,
  claim: Claim & { keys: readonly string[]; runId: number; externalIds?: ReadonlyMap<string, string> },
): Promise<Map<string, ClaimedRecord>> {
  const externalIds = JSON.stringify(Object.fromEntries(claim.externalIds ?? []));
  const rows = await query<ClaimedRecord>(db)`
    INSERT INTO slotsync.records AS r (stream, local_key, external_id, status, claimed_by, claimed_until, run_id)
    SELECT ${claim.stream}, k, ${externalIds}::jsonb->>k, 'pending', ${claim.token}, ${CLAIMED_UNTIL}, ${claim.runId}::bigint
    FROM jsonb_array_elements_text(${JSON.stringify(claim.keys)}::jsonb) AS k ORDER BY k COLLATE "C"
    ON CONFLICT (stream, local_key) DO UPDATE SET
      in_doubt = r.in_doubt OR r.claimed_by IS NOT NULL,
      external_id = CASE WHEN r.object_hash IS NULL AND NOT r.in_doubt AND r.claimed_by IS NULL
        THEN coalesce(excluded.external_id, r.external_id) ELSE r.external_id END,
      claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
    WHERE r.claimed_by IS NULL OR r.claimed_until < now()
    RETURNING local_key AS "localKey", status, external_id AS "externalId", destination_id::float8 AS "destinationId",
      source_hash::text AS "sourceHash", object_hash AS "objectHash", in_doubt AS "inDoubt",
      waits_since AS "waitsSince", error_code AS "errorCode", refused_hash::text AS "refusedHash",
      coalesce(check_after > now(), false) AS "isCheckPending"`;
  return new Map(rows.map((row) => [row.localKey, row]));
}

/**
 * Notes the external ids of claimed records, by key, so that the write of a worker that dies is known and others see
 * what is being written. Returns false when another batch took any of the claim over: then nothing may be sent.
 */
export async function noteExternalIds(db: Queries, claim: Claim, externalIds: ReadonlyMap<string, string>) {
  const ids = JSON.stringify(Object.fromEntries(externalIds));
  return updateClaimed(db, claim, [...externalIds.keys()], sql`external_id = ${ids}::jsonb->>r.local_key`);
}

/** Prolongs a claim. Returns false when another batch took any of it over: then nothing may be sent. */
export async function renewClaim(db: Queries, claim: Claim, keys: readonly string[]): Promise<boolean> {
  return updateClaimed(db, claim, keys, sql`claimed_until = ${CLAIMED_UNTIL}`);
}

/** Gives claims back without an outcome. `inDoubt`: a request was sent and its answer is not known. */
export async function releaseClaim(db: Queries, claim: Claim, keys: readonly string[], inDoubt: boolean) {
  const release = sql`claimed_by = NULL, claimed_until = NULL, in_doubt = in_doubt OR ${inDoubt}`;
  await updateClaimed(db, claim, keys, release);
}

async function updateClaimed(db: Queries, { token, stream }: Claim, keys: readonly string[], change: SQL) {
  if (keys.length === 0) return true;
  const updated = await query(db)`
    UPDATE slotsync.records AS r SET ${change}
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`;
  return updated.count === keys.length;
}
