// Claims on objects. Needed if records of several keys, streams or runs may have the same external id, because only one
// batch may write the object at a time.
import { randomUUID } from 'node:crypto';
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, queryTogether, type Queries } from '../database.js';

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
  const renewed = await query(db)`
    UPDATE slotsync.object_claims SET claimed_until = now() + make_interval(secs => ${seconds})
    WHERE external_id = ${anyOf(externalIds)} AND claimed_by = ${token}`;
  return renewed.count === externalIds.length;
}

export const releasingObjects = (token: string, externalIds: readonly string[]): SQL[] =>
  externalIds.length === 0
    ? []
    : [
        sql`DELETE FROM slotsync.object_claims WHERE external_id = ${anyOf(externalIds)} AND claimed_by = ${token}`,
      ];
