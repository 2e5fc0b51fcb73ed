// Moves a record to another key, with the object that it owns: the object follows the row to which an operator says it belongs.
// What is checked in the mirror before: sync/operator/rename-key.ts.
import type { SQL } from 'drizzle-orm';
import { anyOf, query, queryTogether, type Queries } from '../database.js';
import { isKindOf } from '../history.js';
import { addChanges } from '../inbox/add-changes.js';
import { deleteLinks, insertLinks, readLinks, readLinksTo, readLinksToNumbers } from './links.js';
import { recordName, type RecordKey } from './outcome-types.js';
import { checkAgain, PLANNED_AT } from './record-state.js';
import { letGo } from './transfer-objects.js';
import { wakeArrived } from './wake-waiting.js';

/** Why a record was not renamed. `other`: whose object it is. */
export type RenameRefusal =
  | { refused: 'claimed' | 'never_accepted' }
  /** `has_object`: both records were accepted while both rows were in the mirror. */
  | { refused: 'has_object' | 'linked'; externalId: string }
  | { refused: 'in_doubt' }
  | { refused: 'taken'; externalId: string; other: RecordKey };

export interface Renamed {
  externalId: string;
  /** The template makes another external id of the new row, so that the record is linked to the object. */
  isLinked: boolean;
  /** The object that the record of the new key had: no row has it any more. */
  former: string | undefined;
}

interface Renaming {
  stream: string;
  from: string;
  to: string;
  /** The external id that the template makes of the new key's row; undefined: none that can be sent. */
  templateId: string | undefined;
}

interface LockedRecord {
  localKey: string;
  externalId: string;
  destinationId: string | null;
  isAccepted: boolean;
  /** When its row was first seen, in seconds since 1970. */
  firstSeenAt: number;
  /**
   * When its row was last seen, in seconds since 1970: a whole plan found it, or its object was accepted. Null: that is not
   * known of a retired record.
   */
  thereUntil: number | null;
  /** A batch is writing it. A claim that has expired goes with the record, which is in doubt then. */
  isClaimed: boolean;
  /** A batch is writing it, or is gone with its claim. */
  hasClaim: boolean;
  /** A write of it may have been sent, or may still be. */
  inDoubt: boolean;
}

/** No batch may send for these records any more: whatever one has sent is in doubt by then. */
const BY_OPERATOR = { token: '', lateSeconds: 0, undecided: false };

/**
 * Changes the key of a record, with what waits for it and what was seen of it, and lets it be checked again. What a run has
 * made for the new key meanwhile is kept as an object whose row is gone. All or nothing. The objects of both must be
 * claimed: then no batch begins to write them meanwhile under another key.
 */
export async function moveRecord(
  db: Queries,
  renaming: Renaming,
  { renewClaims, checks }: { renewClaims: (tx: Queries) => Promise<boolean>; checks: readonly SQL[] },
): Promise<Renamed | RenameRefusal> {
  return db.transaction(async (tx) => {
    const { stream, from, to, templateId } = renaming;
    if (!(await renewClaims(tx))) return { refused: 'claimed' };
    const records = await lockRecords(tx, stream, [from, to]);
    const [record, replaced] = [from, to].map((key) => records.find(({ localKey }) => localKey === key));
    if (record?.isClaimed || replaced?.isClaimed) return { refused: 'claimed' };
    if (!record?.isAccepted) return { refused: 'never_accepted' };
    const { externalId, destinationId } = record;
    const former = replaced?.isAccepted ? replaced.externalId : undefined;
    if (former !== undefined && replaced && replaced.firstSeenAt <= (record.thereUntil ?? 0))
      return { refused: 'has_object', externalId: former };
    // The claim of a batch that is gone says nothing of when what it has sent may still be carried out.
    if (replaced && (former === undefined ? replaced.inDoubt : replaced.hasClaim))
      return { refused: 'in_doubt' };
    const links = await readLinks(tx, stream, [from, to]);
    const otherLink = links.get(to);
    // The link by which a rename gave it the object that it has now goes with that object.
    if (otherLink && (otherLink.linkedBy !== 'rename' || otherLink.externalId !== former))
      return { refused: 'linked', externalId: otherLink.externalId };
    const other = await findLinkedKey(tx, renaming, { externalId, destinationId });
    if (other) return { refused: 'taken', externalId, other };
    // A batch that claims the new key from here on waits for this transaction, and gets the record as it is then.
    if (!replaced && !(await insertRecord(tx, stream, to))) return { refused: 'claimed' };

    if (former !== undefined) {
      await deleteLinks(tx, stream, [to]);
      await letGo(tx, [{ stream, localKey: to }], BY_OPERATOR);
    }
    await moveRows(tx, renaming);
    const isLinked = templateId !== externalId;
    const was = links.get(from);
    if (was?.externalId === externalId && isLinked)
      await query(
        tx,
      )`UPDATE slotsync.links SET local_key = ${to} WHERE stream = ${stream} AND local_key = ${from}`;
    else {
      await deleteLinks(tx, stream, [from]);
      const link = { stream, localKey: to, externalId, destinationId, assignsId: false, fields: null };
      if (isLinked) await insertLinks(tx, [{ ...link, linkedBy: 'rename' }]);
    }
    await checkAgain(tx, { stream, keys: [to] });
    await addChanges(tx, stream, [to]);
    await queryTogether(tx, checks);
    await wakeArrived(tx);
    return { externalId, isLinked, former };
  });
}

async function lockRecords(tx: Queries, stream: string, keys: readonly string[]): Promise<LockedRecord[]> {
  return query<LockedRecord>(tx)`
    SELECT local_key AS "localKey", external_id AS "externalId",
      destination_id AS "destinationId",
      in_doubt OR check_after > now() OR claimed_by IS NOT NULL AS "inDoubt",
      object_hash IS NOT NULL AND external_id IS NOT NULL AS "isAccepted",
      coalesce(claimed_until > now(), false) AS "isClaimed", claimed_by IS NOT NULL AS "hasClaim",
      extract(epoch FROM first_seen_at)::float8 AS "firstSeenAt",
      CASE WHEN status <> 'retired' THEN extract(epoch FROM greatest(synced_at, CASE WHEN status = 'synced' THEN
        CASE WHEN gone_since IS NULL THEN ${PLANNED_AT} ELSE there_until END END))::float8 END AS "thereUntil"
    FROM slotsync.records AS r WHERE stream = ${stream} AND local_key = ${anyOf(keys)} ORDER BY local_key FOR UPDATE`;
}

/** Another key that is linked to the object. */
async function findLinkedKey(
  tx: Queries,
  { stream, from }: Renaming,
  { externalId, destinationId }: Pick<LockedRecord, 'externalId' | 'destinationId'>,
): Promise<RecordKey | undefined> {
  const links: (RecordKey | undefined)[] = [
    (await readLinksTo(tx, [externalId])).get(externalId),
    destinationId === null ? undefined : (await readLinksToNumbers(tx, [destinationId])).get(destinationId),
  ];
  return links.find((link) => link && (link.stream !== stream || link.localKey !== from));
}

/** Returns false when another transaction has inserted it meanwhile. */
async function insertRecord(tx: Queries, stream: string, localKey: string): Promise<boolean> {
  const inserted = await query(tx)`
    INSERT INTO slotsync.records (stream, local_key, status) VALUES (${stream}, ${localKey}, 'pending')
    ON CONFLICT DO NOTHING`;
  return inserted.count > 0;
}

/** Moves every row of the old key to the new one; rows of the new one are replaced. */
async function moveRows(tx: Queries, { stream, from, to }: Renaming): Promise<void> {
  const [name, former] = [to, from].map((localKey) => recordName({ stream, localKey }));
  await query(tx)`DELETE FROM slotsync.records WHERE stream = ${stream} AND local_key = ${to}`;
  await query(tx)`
    UPDATE slotsync.records SET local_key = ${to}, first_seen_at = now(), gone_since = NULL, renamed_to = NULL, updated_at = now()
    WHERE stream = ${stream} AND local_key = ${from}`;
  await query(tx)`
    UPDATE slotsync.records SET former_key = ${to} WHERE stream = ${stream} AND former_key = ${from}`;
  await query(tx)`UPDATE slotsync.records SET waits_for = ${name} WHERE waits_for = ${former}`;
  await query(tx)`DELETE FROM slotsync.drift WHERE stream = ${stream} AND local_key = ${to}`;
  await query(tx)`
    UPDATE slotsync.drift SET local_key = ${to} WHERE stream = ${stream} AND local_key = ${from}`;
  await query(tx)`
    WITH moved AS (DELETE FROM slotsync.exceptions WHERE stream = ${stream} AND local_key = ${from} RETURNING *)
    INSERT INTO slotsync.exceptions AS e (stream, local_key, since, until, reason, by)
    SELECT stream, ${to}, since, until, reason, by FROM moved
    ON CONFLICT (stream, local_key) DO UPDATE SET since = excluded.since, until = excluded.until, reason = excluded.reason, by = excluded.by`;
  await query(tx)`
    UPDATE slotsync.history SET local_key = ${to} WHERE local_key = ${from} AND ${isKindOf(stream)}`;
  // Changes that a run has taken stay with the run.
  await query(tx)`
    UPDATE slotsync.changes SET local_key = ${to}
    WHERE stream = ${stream} AND local_key = ${from} AND run_id IS NULL`;
}
