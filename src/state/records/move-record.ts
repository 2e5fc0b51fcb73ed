// Moves a record and its object to another key, because an operator says that the row was renamed.
// sync/operator/rename-key.ts checks the rows in the mirror first.
import type { SQL } from 'drizzle-orm';
import { anyOf, query, queryCount, queryTogether, type Queries } from '../database.js';
import { isKindOf } from '../history.js';
import { addChanges } from '../inbox/add-changes.js';
import { deleteLinks, insertLinks, readLinksOfAndTo, readLinksToNumbers } from './links.js';
import { recordName, type RecordKey } from './outcome-types.js';
import { drift, exceptions, links } from '../schema.js';
import { checkAgain, PLANNED_AT } from './record-state.js';
import { BY_OPERATOR, letGo, transferObjects } from './transfer-objects.js';
import { wakeArrived } from './wake-waiting.js';

/** Reason why a record was not moved. `other`: record that is linked to the object. */
export type RenameRefusal =
  | { refused: 'claimed' | 'never_accepted' }
  /** `has_object`: both keys have accepted objects from a time when both rows existed. */
  | { refused: 'has_object' | 'linked'; externalId: string }
  | { refused: 'in_doubt' }
  | { refused: 'taken'; externalId: string; other: RecordKey };

export interface Renamed {
  externalId: string;
  /** True if the template yields another external id for the new key, so that a link to the object was made. */
  isLinked: boolean;
  /** External id of the object that the new key's record owned. No row has it any more. */
  former: string | undefined;
}

interface Renaming {
  stream: string;
  from: string;
  to: string;
  /** External id that the template yields for the new key's row. Undefined if that id cannot be sent. */
  templateId: string | undefined;
}

interface LockedRecord {
  localKey: string;
  externalId: string;
  destinationId: string | null;
  isAccepted: boolean;
  /** Time when the row was first seen, in seconds since 1970. */
  firstSeenAt: number;
  /**
   * Time when a whole plan last found the row or the service last accepted the object, in seconds since 1970. Null for
   * retired records.
   */
  thereUntil: number | null;
  /** True while a batch is writing the record. An expired claim does not count. */
  isClaimed: boolean;
  /** True if the record has a claim, even an expired one. */
  hasClaim: boolean;
  /** True if the service may have executed, or may still execute, a write of unknown result. */
  inDoubt: boolean;
}

/**
 * Moves a record to another key in one transaction, with its links, history and waiting records, and schedules a check
 * of its object. An object that a run has already created for the new key is kept as a former object. The caller must
 * hold claims on both objects, so that no batch writes them under another key meanwhile.
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
    // The time until which the service may still execute a write of an expired claim is unknown.
    if (replaced && (former === undefined ? replaced.inDoubt : replaced.hasClaim))
      return { refused: 'in_doubt' };
    const linked = await readLinksOfAndTo(tx, stream, [from, to], [externalId]);
    const otherLink = linked.ofKeys.get(to);
    // If a previous rename linked the new key to its current object, that link is removed together with the object.
    if (otherLink && (otherLink.linkedBy !== 'rename' || otherLink.externalId !== former))
      return { refused: 'linked', externalId: otherLink.externalId };
    const numbered = await readLinksToNumbers(tx, destinationId === null ? [] : [destinationId]);
    const other = [linked.to.get(externalId), ...numbered.values()].find(
      (link) => link && (link.stream !== stream || link.localKey !== from),
    );
    if (other) return { refused: 'taken', externalId, other };
    // The inserted row makes batches that claim the new key wait for this transaction.
    if (!replaced && !(await insertRecord(tx, stream, to))) return { refused: 'claimed' };

    if (former !== undefined) {
      await deleteLinks(tx, stream, [to]);
      await transferObjects(tx, [letGo({ stream, localKey: to, externalId: former })], BY_OPERATOR);
    }
    const isLinked = templateId !== externalId;
    if (!isLinked || linked.ofKeys.get(from)?.externalId !== externalId)
      await deleteLinks(tx, stream, [from]);
    await moveRows(tx, renaming);
    // A link that moves with the record stays as it was made.
    const link = { stream, localKey: to, externalId, destinationId, assignsId: false, fields: null };
    if (isLinked) await insertLinks(tx, [{ ...link, linkedBy: 'rename' }]);
    await checkAgain(tx, { stream, keys: [to] });
    await addChanges(tx, stream, [to]);
    await queryTogether(tx, checks);
    await wakeArrived(tx);
    return { externalId, isLinked, former };
  });
}

const lockRecords = (tx: Queries, stream: string, keys: readonly string[]) => query<LockedRecord>(tx)`
  SELECT local_key AS "localKey", external_id AS "externalId",
    destination_id AS "destinationId",
    in_doubt OR check_after > now() OR claimed_by IS NOT NULL AS "inDoubt",
    object_hash IS NOT NULL AND external_id IS NOT NULL AS "isAccepted",
    coalesce(claimed_until > now(), false) AS "isClaimed", claimed_by IS NOT NULL AS "hasClaim",
    extract(epoch FROM first_seen_at)::float8 AS "firstSeenAt",
    CASE WHEN status <> 'retired' THEN extract(epoch FROM greatest(synced_at, CASE WHEN status = 'synced' THEN
      CASE WHEN gone_since IS NULL THEN ${PLANNED_AT} ELSE there_until END END))::float8 END AS "thereUntil"
  FROM slotsync.records AS r WHERE stream = ${stream} AND local_key = ${anyOf(keys)} ORDER BY local_key FOR UPDATE`;

/** Inserts an empty record. Returns false if another transaction inserted it meanwhile. */
async function insertRecord(tx: Queries, stream: string, localKey: string): Promise<boolean> {
  const inserted = await queryCount(tx)`
    INSERT INTO slotsync.records (stream, local_key, status) VALUES (${stream}, ${localKey}, 'pending')
    ON CONFLICT DO NOTHING`;
  return inserted > 0;
}

/** Moves every row of the old key to the new key, replacing rows of the new key. */
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
    DELETE FROM slotsync.exceptions WHERE stream = ${stream} AND local_key = ${to}
      AND EXISTS (SELECT FROM slotsync.exceptions WHERE stream = ${stream} AND local_key = ${from})`;
  for (const table of [drift, exceptions, links])
    await query(tx)`UPDATE ${table} SET local_key = ${to} WHERE stream = ${stream} AND local_key = ${from}`;
  await query(tx)`
    UPDATE slotsync.history SET local_key = ${to} WHERE local_key = ${from} AND ${isKindOf(stream)}`;
  // Changes that a run has already taken from the inbox keep the old key.
  await query(tx)`
    UPDATE slotsync.changes SET local_key = ${to}
    WHERE stream = ${stream} AND local_key = ${from} AND run_id IS NULL`;
}
