// A record is claimed before its row is read and settled with its outcome. A claim that was never settled leaves the
// record in doubt: the service may hold something else than was accepted last, so its object is read back.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, type Queries, type RowOf } from '../database.js';
import type { destination, records } from '../schema.js';
import { isExcepted } from '../exceptions.js';
import { AWAITS_SECOND_ANSWER, FIELDS_IN_DOUBT, IS_FREE, MAY_BE_REPLACED, WAS_SENT } from './record-state.js';

/** A record as the state knows it when a batch claims it. */
export type ClaimedRecord = Pick<
  RowOf<typeof records>,
  | ('localKey' | 'status' | 'externalId' | 'destinationId' | 'sourceHash' | 'objectHash' | 'acceptedFields')
  | ('inDoubt' | 'waitsSince' | 'errorCode' | 'errorMessage' | 'refusedHash' | 'resend')
> & {
  /**
   * A write whose answer was lost may still be carried out, also after the next one; or a refusal is not yet to be taken
   * for the last word.
   */
  isCheckPending: boolean;
  /** Seconds since the service accepted its object last; null: it never did. */
  acceptedSecondsAgo: number | null;
};

/** A claim of a batch on records of one stream. */
export interface Claim {
  token: string;
  stream: string;
  /** How long it is valid unless renewed. */
  seconds: number;
  /** How long a write may still be carried out of which nothing is known but that it may have been sent. */
  lateSeconds: number;
}

const secondsFromNow = (seconds: number) => sql`now() + make_interval(secs => ${seconds})`;

/** A batch that is gone, or a write whose answer was lost, may have changed the object of a record named r. */
const MAY_BE_WRITTEN = sql`(r.claimed_by IS NOT NULL OR coalesce(r.check_after <= now() AND NOT ${AWAITS_SECOND_ANSWER}, false))`;

/** A record (named r) as a batch has claimed it. */
const CLAIMED = sql`r.local_key AS "localKey", r.status, r.external_id AS "externalId",
  r.destination_id AS "destinationId", r.source_hash::text AS "sourceHash", r.object_hash AS "objectHash",
  r.accepted_fields AS "acceptedFields", r.in_doubt AS "inDoubt", r.waits_since AS "waitsSince", r.error_code AS "errorCode",
  r.error_message AS "errorMessage", r.refused_hash::text AS "refusedHash", r.resend, r.check_after IS NOT NULL AS "isCheckPending",
  extract(epoch FROM now() - r.synced_at)::float8 AS "acceptedSecondsAgo"`;

/**
 * Claims the records that no other batch is writing and of which no exception stands; the answer has no others, and none at all
 * where the state belongs to another service or organization by now. One whose claim has expired may have been
 * written by a batch that is gone, and one whose check is due may have been overwritten, unless it was refused: both are in
 * doubt from here on.
 * `externalIds`, by key: those of the template. Records that the service has never accepted own these objects from here on,
 * where no other record does, or those that they are linked to: such an object belongs to no key whose template names it.
 * OFFSET: with statistics of a smaller table the planner would read all of it for each batch of a first load.
 */
export async function claimRecords(
  db: Queries,
  claim: Claim & {
    keys: readonly string[];
    runId: number;
    externalIds?: ReadonlyMap<string, string>;
    binding: Pick<RowOf<typeof destination>, 'baseUrl' | 'organizationId'>;
  },
): Promise<Map<string, ClaimedRecord & { isLinked: boolean }>> {
  const { keys, binding } = claim;
  const externalIds = keys.map((key) => claim.externalIds?.get(key));
  const linkOf = (key: SQL) =>
    sql`SELECT external_id FROM slotsync.links AS l WHERE l.stream = ${claim.stream} AND l.local_key = ${key}`;
  const rows = await query<ClaimedRecord & { isLinked: boolean }>(db)`
    INSERT INTO slotsync.records AS r (stream, local_key, external_id, status, claimed_by, claimed_until, run_id)
    WITH wanted AS MATERIALIZED (
      SELECT key, CASE WHEN template_id IS NOT NULL THEN coalesce((${linkOf(sql`key`)}), CASE
        WHEN NOT EXISTS (SELECT FROM slotsync.links AS l WHERE l.external_id = template_id) THEN template_id END) END AS id
      FROM unnest(${arrayLiteral(keys)}::text[], ${arrayLiteral(externalIds)}::text[]) AS k(key, template_id)
      WHERE NOT ${isExcepted(sql`${claim.stream}`, sql`key`)}
    )
    SELECT ${claim.stream}, key, CASE WHEN NOT EXISTS (SELECT FROM slotsync.records AS o WHERE o.external_id = id OFFSET 0) THEN id END,
      'pending', ${claim.token}, ${secondsFromNow(claim.seconds)}, ${claim.runId}::bigint
    FROM wanted
    WHERE NOT EXISTS (SELECT FROM slotsync.destination
      WHERE (base_url, organization_id) <> (${binding.baseUrl}, ${binding.organizationId}))
    ORDER BY key COLLATE "C"
    ON CONFLICT (stream, local_key) DO UPDATE SET
      in_doubt = r.in_doubt OR ${MAY_BE_WRITTEN},
      accepted_fields = CASE WHEN r.claimed_by IS NOT NULL OR (${MAY_BE_REPLACED} AND r.check_after <= now())
        THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END,
      check_after = CASE WHEN r.claimed_by IS NOT NULL THEN ${lateAfter(claim)}
        WHEN r.check_after > now() THEN r.check_after END,
      external_id = CASE WHEN NOT ${WAS_SENT} AND r.claimed_by IS NULL
        THEN coalesce(excluded.external_id, r.external_id) ELSE r.external_id END,
      claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
    WHERE ${IS_FREE}
    RETURNING ${CLAIMED}, EXISTS (${linkOf(sql`r.local_key`)}) AS "isLinked"`;
  return new Map(rows.map((row) => [row.localKey, row]));
}

/** Claimed records as they are now: an object may have changed hands before the batch had the claim on it. */
export async function readClaimed(db: Queries, { token, stream }: Claim, keys: readonly string[]) {
  const rows = await query<ClaimedRecord>(db)`
    SELECT ${CLAIMED} FROM slotsync.records AS r
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`;
  return new Map(rows.map((row) => [row.localKey, row]));
}

/** When a write that may have been sent just now cannot be carried out any more. */
const lateAfter = ({ lateSeconds }: Pick<Claim, 'lateSeconds'>) =>
  sql`greatest(r.check_after, ${secondsFromNow(lateSeconds)})`;

/** Prolongs a claim. Returns false when another batch took any of it over: then nothing may be sent. */
export async function renewClaim(db: Queries, claim: Claim, keys: readonly string[]): Promise<boolean> {
  return updateClaimed(db, claim, keys, sql`claimed_until = ${secondsFromNow(claim.seconds)}`);
}

/** The statement that releases claims without an outcome. */
export const releasingClaim = (claim: Pick<Claim, 'token' | 'stream'>, keys: readonly string[]): SQL[] =>
  keys.length === 0 ? [] : [updatingClaimed(claim, keys, sql`claimed_by = NULL, claimed_until = NULL`)];

/**
 * Notes that a write of claimed records was sent, or may have been, and that its answer is not known: they are looked at
 * again, and once more when the write cannot be carried out any more.
 */
export async function doubtRecords(db: Queries, claim: Claim, keys: readonly string[]) {
  const change = sql`in_doubt = true, accepted_fields = ${FIELDS_IN_DOUBT}, check_after = ${lateAfter(claim)}`;
  await updateClaimed(db, claim, keys, change);
}

async function updateClaimed(db: Queries, claim: Claim, keys: readonly string[], change: SQL) {
  if (keys.length === 0) return true;
  const updated = await query(db)`${updatingClaimed(claim, keys, change)}`;
  return updated.count === keys.length;
}

const updatingClaimed = (
  { token, stream }: Pick<Claim, 'token' | 'stream'>,
  keys: readonly string[],
  change: SQL,
): SQL => sql`
  UPDATE slotsync.records AS r SET ${change}
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`;
