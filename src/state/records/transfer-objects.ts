// Transfers an object from one record to another, with everything that the state knows about the object: its external id,
// its number, its hash as accepted last, the doubt and the pending check. Afterwards the former owner has no object.
// `transferObjects` makes each of these transitions:
//
//   former owner              reason                                              new owner              former owner afterwards
//   none                      a batch sends the row with this external id         the row's record       -
//   any record                its row is gone, or has another external id         the row's record       deleted if its row is gone
//   retired or `#former` one  an operator or a match links a key to the object    the key's record       deleted
//   any record                its row has another external id, at nobody's loss   #former                sent as its row says
//   record of a taker         the service refuses the type of the taker           #former, other stream  dead
//   dead record               an operator retries `external_id_changed`           #former, undecided     sent as its row says
//   record of the new key     an operator renames another key to this key         #former                replaced by the renamed record
//
// A renamed key keeps its whole record (move-record.ts). Lost records are made of what the service holds (`insertAdopted`).
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { formerKey } from '../../streams/local-key.js';
import { addChanges } from '../inbox/add-changes.js';
import type { Claim } from './claims.js';
import { recordName, type RecordKey } from './outcome-types.js';
import { objectFacts, WITHOUT_OBJECT } from './record-columns.js';
import { FIELDS_IN_DOUBT, IS_FREE, MAY_BE_REPLACED } from './record-state.js';
import { wakeSharers } from './wake-waiting.js';

/** Record that is to become the owner of an object. */
export interface Transfer extends RecordKey {
  externalId: string;
  from?: RecordKey | undefined;
  /** True if the row of the current owner is deleted. The owner's record is then deleted too. */
  isFormerGone?: boolean;
  /** The new owner is a `#former` record, whose row counts as gone. `undecided`: nothing is planned before an operator decides. */
  kept?: 'planned' | 'undecided';
}

/** The transfer of an object that no row has any more to a record of its own, `#former <external id>`. `keptBy`: its stream. */
export const letGo = (
  { externalId, ...from }: RecordKey & { externalId: string },
  keptBy = from.stream,
): Transfer => ({ stream: keptBy, localKey: formerKey(externalId), externalId, from, kept: 'planned' });

/** The right to transfer objects. */
interface Right extends Pick<Claim, 'lateSeconds'> {
  /** The token of a batch. Empty: no batch may send for these records any more, and whatever one has sent is in doubt. */
  token: string;
  /** Streams whose claims on keys are their claims on objects. */
  keyed?: readonly string[];
}

/** The right of an operator's command that has locked the records. */
export const BY_OPERATOR: Right = { token: '', lateSeconds: 0 };

/** Facts about an object by column of `records`. JSON keeps times at full precision. */
interface ObjectFacts {
  external_id: string;
  object_hash: string | null;
}

/** SQL: facts about the object of record `r`. They say that it is in doubt if another batch may have written it. */
const factsOf = ({ token, lateSeconds }: Right) => sql`(
  SELECT to_jsonb(f) || CASE WHEN coalesce(r.claimed_by <> ${token}, false) OR ${MAY_BE_REPLACED}
    THEN jsonb_build_object('accepted_fields', ${FIELDS_IN_DOUBT}) ELSE '{}' END
  FROM (SELECT ${objectFacts('r.')}, r.status, r.in_doubt OR w.was_written AS in_doubt,
    CASE WHEN r.claimed_by <> ${token} THEN greatest(r.check_after, now() + make_interval(secs => ${lateSeconds}))
      WHEN r.check_after > now() THEN r.check_after END AS check_after
    FROM (SELECT coalesce(r.claimed_by <> ${token} OR r.check_after <= now(), false) AS was_written) AS w) AS f)`;

const recordset = (rows: readonly object[]) => sql`jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)`;

const recordsOf = (rows: readonly object[]) =>
  sql`jsonb_populate_recordset(NULL::slotsync.records, ${JSON.stringify(rows)}::jsonb)`;

/**
 * SQL: record `r` may take the object of `t`. No other batch has claimed the record, and the record owns no other object that
 * the service may hold: it would lose all that is known of that object.
 */
const mayTake = (token: string) => sql`(r.claimed_by = ${token} OR r.claimed_by IS NULL)
  AND (coalesce(r.external_id = t.external_id, true)
    OR (r.object_hash IS NULL AND (r.claimed_by = ${token} OR NOT r.in_doubt)))`;

/**
 * Lets records own objects, with all that is known of the objects. Returns the transfers that were made. A transfer is left out
 * when the object has another owner by now, when the owner is being written under a claim on its key alone, when the new owner
 * may not take the object, and when the batch has no claim on a record that is to let go. The owner keeps the object then. Call
 * this in a transaction, with the right to write every object in it.
 * `lateSeconds`: how long a write may still be carried out that was sent by a batch which is gone.
 */
export async function transferObjects(
  tx: Queries,
  transfers: readonly Transfer[],
  right: Right,
): Promise<Transfer[]> {
  if (!transfers.some(({ from }) => from)) return (await transferAll(tx, transfers, right)).made;
  for (let open = transfers; ;) {
    let stranded: readonly Transfer[] = [];
    const made = await tx
      .transaction(async (savepoint) => {
        const all = await transferAll(savepoint, open, right);
        ({ stranded } = all);
        return stranded.length > 0 ? savepoint.rollback() : all.made;
      })
      .catch((error: unknown) => {
        if (stranded.length === 0) throw error;
        return undefined;
      });
    if (made) return made;
    // Begins again without these transfers. Their owners keep the objects, so that others of a chain may not be made either.
    const isStranded = new Set(stranded);
    open = open.filter((one) => !isStranded.has(one));
  }
}

/** Makes the transfers. `stranded`: those that took an object from its owner, but that the new owner may not take. */
async function transferAll(
  tx: Queries,
  transfers: readonly Transfer[],
  right: Right,
): Promise<Record<'made' | 'stranded', Transfer[]>> {
  const { token } = right;
  const facts = await takeFromOwners(tx, transfers, right);
  const rows = transfers.flatMap(({ stream, localKey, externalId, from, kept }) => {
    const object = facts.get(externalId);
    if (from && !object) return [];
    const row = { ...object, stream, local_key: localKey, external_id: externalId };
    if (!kept) return [row];
    const source_hash = kept === 'planned' ? 0 : null;
    return [{ ...row, former_key: from?.localKey, object_hash: object?.object_hash ?? '', source_hash }];
  });
  const kept = transfers.filter((one) => one.kept && facts.has(one.externalId));
  if (kept.length > 0)
    await query(tx)`
      INSERT INTO slotsync.records (stream, local_key, former_key, status, gone_since)
      SELECT stream, local_key, former_key, CASE WHEN status = 'retired' THEN status ELSE 'synced' END,
        CASE WHEN source_hash IS NULL THEN now() END
      FROM ${recordsOf(rows)} WHERE former_key IS NOT NULL
      ON CONFLICT (stream, local_key) DO UPDATE SET (former_key, status, gone_since, claimed_by, claimed_until) =
        (excluded.former_key, excluded.status, excluded.gone_since, NULL, NULL)`;
  const made = await query<RecordKey>(tx)`
    UPDATE slotsync.records AS r SET (${objectFacts()}) = (${objectFacts('t.')}), row_external_id = NULL,
      source_hash = t.source_hash, in_doubt = r.in_doubt OR coalesce(t.in_doubt, false),
      check_after = greatest(r.check_after, t.check_after)
    FROM ${recordsOf(rows)} AS t
    WHERE r.stream = t.stream AND r.local_key = t.local_key AND ${mayTake(token)}
      AND NOT EXISTS (SELECT FROM slotsync.records AS o WHERE o.external_id = t.external_id)
    RETURNING r.stream, r.local_key AS "localKey"`;
  for (const one of kept) if (one.kept === 'planned') await addChanges(tx, one.stream, [one.localKey]);
  await wakeSharers(
    tx,
    kept.map(({ externalId }) => externalId),
  );
  const names = new Set(made.map(recordName));
  const isMade = (transfer: Transfer) => names.has(recordName(transfer));
  return {
    made: transfers.filter(isMade),
    stranded: transfers.filter((one) => facts.has(one.externalId) && !isMade(one)),
  };
}

/**
 * Takes objects from their owners, and returns the facts of each object by external id. An owner whose row is gone is deleted;
 * any other owner is sent as its row says.
 */
async function takeFromOwners(
  tx: Queries,
  transfers: readonly Transfer[],
  right: Right,
): Promise<Map<string, ObjectFacts>> {
  const { token, keyed = [] } = right;
  const passing = transfers.flatMap(({ from, externalId, isFormerGone = false, kept }) =>
    from ? { ...from, externalId, isFormerGone, isKept: kept !== undefined } : [],
  );
  if (passing.length === 0) return new Map();
  const owners = (list: readonly object[]) =>
    sql`${recordset(list)} AS t(stream text, "localKey" text, "externalId" text, "isFormerGone" boolean, "isKept" boolean)`;
  const isOwner = sql`r.stream = t.stream AND r.local_key = t."localKey"`;
  const found = await query<{ object: ObjectFacts }>(tx)`
    SELECT ${factsOf(right)} AS object FROM ${owners(passing)}
    JOIN slotsync.records AS r ON ${isOwner} AND r.external_id = t."externalId"
    WHERE r.claimed_by = ${token} OR ${token} = ''
      OR (NOT t."isKept" AND (${IS_FREE} OR NOT r.stream = ${anyOf(keyed)}))
    ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
  const facts = new Map(found.map(({ object }) => [object.external_id, object]));
  const former = owners(passing.filter(({ externalId }) => facts.has(externalId)));
  await query(tx)`DELETE FROM slotsync.records AS r USING ${former} WHERE ${isOwner} AND t."isFormerGone"`;
  // Clears the claims of other batches, so that a batch with an expired claim cannot settle its write. Keeps the claims
  // of this batch.
  const left = await query<RecordKey & { isToBeSent: boolean }>(tx)`
    UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT},
      (claimed_by, claimed_until) = (SELECT r.claimed_by, r.claimed_until WHERE r.claimed_by = ${token})
    FROM ${former} WHERE ${isOwner}
    RETURNING r.stream, r.local_key AS "localKey", r.claimed_by IS NULL AND NOT t."isKept" AS "isToBeSent"`;
  await query(tx)`DELETE FROM slotsync.drift AS r USING ${former} WHERE ${isOwner}`;
  for (const { isToBeSent, stream, localKey } of left)
    if (isToBeSent) await addChanges(tx, stream, [localKey]);
  return facts;
}
