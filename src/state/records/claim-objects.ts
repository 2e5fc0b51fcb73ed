// Claims on objects, for those whose external id does not follow from the key of their record alone: records of several
// keys, streams or runs may represent one of them, and only one batch may write it.
import { randomUUID } from 'node:crypto';
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../../text/sql-text.js';
import { anyOf, query, queryTogether, type Queries } from '../database.js';

/**
 * Claims the objects that no other batch has; waits for none. Returns those it got, by external id, with whether the
 * claim of another batch had expired: that batch may have sent a write that is still to be carried out.
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

/** A command takes far less, unless the mirror is slow. */
const COMMAND_SECONDS = 60;

/** Lets a command do something to objects while it has the claims on them: on those that no batch has. */
export async function whileClaimed<T>(
  db: Queries,
  command: string,
  externalIds: readonly string[],
  work: (
    claimed: { has(externalId: string): boolean },
    token: string,
    /** In the transaction that relies on the claims: false when a batch took any of them over meanwhile. */
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

/** Prolongs claims. Returns false when another batch took any of them over: then nothing may be sent. */
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

/** The statement that releases claims. */
export const releasingObjects = (token: string, externalIds: readonly string[]): SQL[] =>
  externalIds.length === 0
    ? []
    : [
        sql`DELETE FROM slotsync.object_claims WHERE external_id = ${anyOf(externalIds)} AND claimed_by = ${token}`,
      ];
