// Moves an object to another owner. All facts about an object (external id, number, accepted hashes, doubt, next check)
// are in the record that owns it and move together. A record of its own keeps an object that no row has any more.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { formerKey } from '../../streams/local-key.js';
import { addChanges } from '../inbox/add-changes.js';
import type { Claim } from './claim-records.js';
import { recordName, type RecordKey } from './outcome-types.js';
import { FIELDS_IN_DOUBT, IS_FREE, MAY_BE_REPLACED, objectFacts, WITHOUT_OBJECT } from './record-state.js';
import { wakeSharers } from './wake-waiting.js';

/** Record that is to become the owner of an object. */
export interface Taking extends RecordKey {
  externalId: string;
  from?: RecordKey | undefined;
  /** True if the row of the current owner is deleted. The owner's record is then deleted too. */
  isFormerGone?: boolean;
}

/** Facts about an object by column of `records`. JSON keeps times at full precision. */
interface ObjectFacts {
  external_id: string;
  object_hash: string | null;
}

/** SQL: facts about the object of record `r`. They say that it is in doubt if another batch may have written it. */
const factsOf = ({ token, lateSeconds }: Pick<Claim, 'token' | 'lateSeconds'>) => sql`(
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
 * Makes records the owners of objects, together with all facts about the objects. Returns the takings that succeeded. A
 * taking fails if the object has another owner by now, or if a batch is writing the owner and its stream is in `keyed`.
 * Must be called in a transaction, with the right to write every object.
 *
 * `keyed`: streams in which a claim on a key also covers the object. `lateSeconds`: seconds for which the service may
 * still execute a write of an expired batch.
 */
export async function takeObjects(
  tx: Queries,
  takings: readonly Taking[],
  { token, lateSeconds, keyed }: Pick<Claim, 'token' | 'lateSeconds'> & { keyed: readonly string[] },
): Promise<Taking[]> {
  const passing = takings.filter(({ from }) => from);
  const mayBeTaken = sql`(${IS_FREE} OR r.claimed_by = ${token}
    OR NOT r.stream = ${anyOf(keyed)})`;
  const facts = new Map<string, ObjectFacts>();
  if (passing.length > 0) {
    const former = await query<{ object: ObjectFacts }>(tx)`
      SELECT ${factsOf({ token, lateSeconds })} AS object FROM ${recordset(passing)} AS t("from" jsonb, "externalId" text)
      JOIN slotsync.records AS r
        ON r.stream = t."from"->>'stream' AND r.local_key = t."from"->>'localKey' AND r.external_id = t."externalId"
      WHERE ${mayBeTaken} ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
    for (const { object } of former) facts.set(object.external_id, object);
    const passed = passing.filter(({ externalId }) => facts.has(externalId));
    await removeOwners(tx, passed, token);
  }
  const possible = takings.filter(({ from, externalId }) => !from || facts.has(externalId));
  const rows = possible.map(({ stream, localKey, externalId }) => ({
    ...facts.get(externalId),
    stream,
    local_key: localKey,
    external_id: externalId,
  }));
  const taken = await query<RecordKey>(tx)`
    UPDATE slotsync.records AS r SET (${objectFacts()}) = (${objectFacts('t.')}), row_external_id = NULL, source_hash = NULL,
      in_doubt = r.in_doubt OR coalesce(t.in_doubt, false),
      check_after = greatest(r.check_after, t.check_after)
    FROM ${recordsOf(rows)} AS t
    WHERE r.stream = t.stream AND r.local_key = t.local_key AND (r.claimed_by = ${token} OR r.claimed_by IS NULL)
      AND NOT EXISTS (SELECT FROM slotsync.records AS o WHERE o.external_id = t.external_id)
    RETURNING r.stream, r.local_key AS "localKey"`;
  const names = new Set(taken.map(recordName));
  return takings.filter((taking) => names.has(recordName(taking)));
}

/** Takes the objects from their former owners. Deletes owners whose rows are deleted, and queues all other owners. */
async function removeOwners(tx: Queries, passed: readonly Taking[], token: string): Promise<void> {
  const owners = passed.map(({ from, isFormerGone = false }) => ({ ...from, isFormerGone }));
  const formerOwners = sql`${recordset(owners)} AS t(stream text, "localKey" text, "isFormerGone" boolean)`;
  await query(tx)`
    DELETE FROM slotsync.records AS r USING ${formerOwners}
    WHERE r.stream = t.stream AND r.local_key = t."localKey" AND t."isFormerGone"`;
  // Clears the claims of other batches, so that a batch with an expired claim cannot settle its write. Keeps the claims
  // of this batch.
  const left = await query<RecordKey & { isOurs: boolean }>(tx)`
    UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT},
      (claimed_by, claimed_until) = (SELECT r.claimed_by, r.claimed_until WHERE r.claimed_by = ${token})
    FROM ${formerOwners} WHERE r.stream = t.stream AND r.local_key = t."localKey"
    RETURNING r.stream, r.local_key AS "localKey", r.claimed_by IS NOT NULL AS "isOurs"`;
  await query(tx)`
    DELETE FROM slotsync.drift AS r USING ${formerOwners} WHERE r.stream = t.stream AND r.local_key = t."localKey"`;
  for (const { isOurs, stream, localKey } of left) if (!isOurs) await addChanges(tx, stream, [localKey]);
}

/**
 * Takes objects from records whose rows now have other external ids. A new record `#former …` in stream `keptBy` keeps
 * each object, as if its row were deleted. If `undecided`, nothing is planned for the object until an operator decides.
 * Must be called in a transaction that has locked or claimed the records.
 */
export async function letGo(
  tx: Queries,
  records: readonly (RecordKey & { keptBy?: string | undefined })[],
  { undecided, ...claim }: Pick<Claim, 'token' | 'lateSeconds'> & { undecided: boolean },
): Promise<void> {
  if (records.length === 0) return;
  const chosen = sql`${recordset(records)} AS t(stream text, "localKey" text, "keptBy" text)`;
  const owners = await query<RecordKey & { keptBy: string; object: ObjectFacts }>(tx)`
    SELECT ${factsOf(claim)} AS object, r.stream, r.local_key AS "localKey", coalesce(t."keptBy", r.stream) AS "keptBy" FROM slotsync.records AS r JOIN ${chosen}
      ON r.stream = t.stream AND r.local_key = t."localKey"
    WHERE r.external_id IS NOT NULL AND (${claim.token} = '' OR r.claimed_by = ${claim.token}) ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
  await query(tx)`
    UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT} FROM ${recordset(owners)} AS t(stream text, "localKey" text)
    WHERE r.stream = t.stream AND r.local_key = t."localKey"`;
  const kept = owners.map(({ object, localKey, keptBy }) => ({
    ...object,
    object_hash: object.object_hash ?? '',
    stream: keptBy,
    local_key: formerKey(object.external_id),
    former_key: localKey,
  }));
  await query(tx)`
    INSERT INTO slotsync.records
      (stream, local_key, former_key, ${objectFacts()}, source_hash, status, in_doubt, check_after, gone_since)
    SELECT stream, local_key, former_key, ${objectFacts()}, CASE WHEN NOT ${undecided} THEN 0 END,
      CASE WHEN status = 'retired' THEN status ELSE 'synced' END, in_doubt, check_after,
      CASE WHEN ${undecided} THEN now() END
    FROM ${recordsOf(kept)}
    ON CONFLICT (stream, local_key) DO UPDATE SET
      (former_key, ${objectFacts()}, source_hash, status, in_doubt, check_after, gone_since) = (excluded.former_key,
        ${objectFacts('excluded.')}, excluded.source_hash, excluded.status, excluded.in_doubt, excluded.check_after,
        excluded.gone_since)`;
  if (!undecided) for (const { stream, local_key: key } of kept) await addChanges(tx, stream, [key]);
  await wakeSharers(
    tx,
    kept.map(({ external_id: externalId }) => externalId),
  );
}
