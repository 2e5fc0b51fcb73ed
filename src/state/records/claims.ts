// Claims on records and objects. A batch claims a record before it reads the row, and releases the claim with the
// outcome. If a claim expires without an outcome, the record is in doubt, and its object is read back. Claims on objects
// are needed if records of several keys, streams or runs may have the same external id, because only one batch may write
// the object at a time.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, queryCount, queryTogether, type Queries, type RowOf } from '../database.js';
import type { destination, records } from '../schema.js';
import { isExcepted } from '../exceptions.js';
import { CLAIMED_COLUMNS, type ColumnsFor } from './record-columns.js';
import { AWAITS_SECOND_ANSWER, FIELDS_IN_DOUBT, IS_FREE, MAY_BE_REPLACED, WAS_SENT } from './record-state.js';
import { randomUUID } from 'node:crypto';

export type ClaimedRecord = Pick<RowOf<typeof records>, ColumnsFor<'claimed'>> & {
  /** True if a write with a lost answer may still be executed later, or if a refusal is not final yet. */
  isCheckPending: boolean;
  /** Seconds since the service last accepted the record's object. Null if it never did. */
  acceptedSecondsAgo: number | null;
};

export interface Claim {
  token: string;
  stream: string;
  seconds: number;
  /** Seconds for which the service may still execute a write whose answer was lost. */
  lateSeconds: number;
}

const secondsFromNow = (seconds: number) => sql`now() + make_interval(secs => ${seconds})`;

/** SQL: an expired batch, or a write with a lost answer, may have changed the object of record `r`. */
const MAY_BE_WRITTEN = sql`(r.claimed_by IS NOT NULL OR coalesce(r.check_after <= now() AND NOT ${AWAITS_SECOND_ANSWER}, false))`;

const CLAIMED = sql`${CLAIMED_COLUMNS}, r.check_after IS NOT NULL AS "isCheckPending",
  extract(epoch FROM now() - r.synced_at)::float8 AS "acceptedSecondsAgo"`;

/**
 * Claims records for a batch. Returns the claimed records by key. Skips excepted records, and records that another
 * batch is writing. Claims nothing if the state now belongs to another service or organization.
 *
 * A record is put in doubt by an expired claim, or by a check that is due unless it follows a refusal. `externalIds`
 * has the external ids of the template by key. A record that the service never accepted gets the external id of its
 * link, or else of its template, unless another record or link has that id. `OFFSET 0` keeps PostgreSQL from scanning
 * the table when statistics are outdated, as during a first load.
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

/** Reads claimed records again, because an object's owner may have changed before the batch claimed the object. */
export async function readClaimed(db: Queries, { token, stream }: Claim, keys: readonly string[]) {
  const rows = await query<ClaimedRecord>(db)`
    SELECT ${CLAIMED} FROM slotsync.records AS r
    WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`;
  return new Map(rows.map((row) => [row.localKey, row]));
}

/** SQL for the time after which the service can no longer execute a write that was sent just now. */
const lateAfter = ({ lateSeconds }: Pick<Claim, 'lateSeconds'>) =>
  sql`greatest(r.check_after, ${secondsFromNow(lateSeconds)})`;

/** Renews a claim. Returns false if another batch took over any record. The caller must send nothing then. */
export async function renewClaim(db: Queries, claim: Claim, keys: readonly string[]): Promise<boolean> {
  return updateClaimed(db, claim, keys, sql`claimed_until = ${secondsFromNow(claim.seconds)}`);
}

/** Returns the statement that releases claims without writing an outcome. */
export const releasingClaim = (claim: Pick<Claim, 'token' | 'stream'>, keys: readonly string[]): SQL[] =>
  keys.length === 0 ? [] : [updatingClaimed(claim, keys, sql`claimed_by = NULL, claimed_until = NULL`)];

/**
 * Puts claimed records in doubt after the answer to a write was lost. Their objects are read back now, and again when
 * the service can no longer execute the write.
 */
export async function doubtRecords(db: Queries, claim: Claim, keys: readonly string[]) {
  const change = sql`in_doubt = true, accepted_fields = ${FIELDS_IN_DOUBT}, check_after = ${lateAfter(claim)}`;
  await updateClaimed(db, claim, keys, change);
}

async function updateClaimed(db: Queries, claim: Claim, keys: readonly string[], change: SQL) {
  if (keys.length === 0) return true;
  return (await queryCount(db)`${updatingClaimed(claim, keys, change)}`) === keys.length;
}

const updatingClaimed = (
  { token, stream }: Pick<Claim, 'token' | 'stream'>,
  keys: readonly string[],
  change: SQL,
): SQL => sql`
  UPDATE slotsync.records AS r SET ${change}
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND r.claimed_by = ${token}`;

/**
 * Claims the objects that no other batch holds, without waiting. Returns the claimed external ids. `isTakenOver` is
 * true if the claim of another batch had expired: the service may still execute a write of that batch.
 */
export async function claimObjects(
  db: Queries,
  { token, seconds }: { token: string; seconds: number },
  externalIds: Iterable<string>,
): Promise<Map<string, { isTakenOver: boolean }>> {
  const ids = sql`${arrayLiteral([...new Set(externalIds)])}::text[]`;
  const rows = await query<{ externalId: string; isTakenOver: boolean }>(db)`
    WITH expired AS (
      SELECT external_id FROM slotsync.object_claims
      WHERE external_id = ANY (${ids}) AND claimed_until < now() AND claimed_by <> ${token}
    ), claimed AS (
      INSERT INTO slotsync.object_claims AS c (external_id, claimed_by, claimed_until)
      SELECT id, ${token}, now() + make_interval(secs => ${seconds}) FROM unnest(${ids}) AS id ORDER BY id COLLATE "C"
      ON CONFLICT (external_id) DO UPDATE SET claimed_by = excluded.claimed_by, claimed_until = excluded.claimed_until
      WHERE c.claimed_by = excluded.claimed_by OR c.claimed_until < now()
      RETURNING external_id
    )
    SELECT external_id AS "externalId", external_id IN (SELECT external_id FROM expired) AS "isTakenOver" FROM claimed`;
  return new Map(rows.map(({ externalId, isTakenOver }) => [externalId, { isTakenOver }]));
}

/** Expiry of a command's claims. Commands finish much earlier unless the mirror is slow. */
const COMMAND_SECONDS = 60;

/** Calls `work` while a command holds claims on the objects that no batch has claimed, then releases the claims. */
export async function whileClaimed<T>(
  db: Queries,
  command: string,
  externalIds: readonly string[],
  work: (
    claimed: { has(externalId: string): boolean },
    token: string,
    /** Renews the claims in the caller's transaction. Returns false if a batch has taken over any of them. */
    renew: (tx: Queries) => Promise<boolean>,
  ) => Promise<T>,
): Promise<T> {
  const token = `${command} ${randomUUID()}`;
  const claimed = await claimObjects(db, { token, seconds: COMMAND_SECONDS }, externalIds);
  try {
    const renew = (tx: Queries) =>
      renewObjectClaims(tx, { token, seconds: COMMAND_SECONDS }, [...claimed.keys()]);
    return await work(claimed, token, renew);
  } finally {
    await queryTogether(db, releasingObjects(token, [...claimed.keys()]));
  }
}

/** Renews claims on objects. Returns false if another batch took over any claim. The caller must send nothing then. */
export async function renewObjectClaims(
  db: Queries,
  { token, seconds }: { token: string; seconds: number },
  externalIds: readonly string[],
): Promise<boolean> {
  if (externalIds.length === 0) return true;
  const renewed = await queryCount(db)`
    UPDATE slotsync.object_claims SET claimed_until = now() + make_interval(secs => ${seconds})
    WHERE external_id = ${anyOf(externalIds)} AND claimed_by = ${token}`;
  return renewed === externalIds.length;
}

export const releasingObjects = (token: string, externalIds: readonly string[]): SQL[] =>
  externalIds.length === 0
    ? []
    : [
        sql`DELETE FROM slotsync.object_claims WHERE external_id = ${anyOf(externalIds)} AND claimed_by = ${token}`,
      ];
