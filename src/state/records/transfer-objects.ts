// An object changes hands. What is known of an object stands in the one record that owns it. When another record is to be
// written to it, all of that passes on: external id, number, what was accepted last, the doubt and the pending look. The
// former owner has no object afterwards. An object that no row has any more is kept by a record of its own.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import { formerKey } from '../../streams/local-key.js';
import { addChanges } from '../inbox/add-changes.js';
import type { Claim } from './claim-records.js';
import { recordName, type RecordKey } from './outcome-types.js';
import { FIELDS_IN_DOUBT, IS_FREE, MAY_BE_REPLACED, objectFacts, WITHOUT_OBJECT } from './record-state.js';
import { wakeSharers } from './wake-waiting.js';

/** A record that is to own an object. */
export interface Taking extends RecordKey {
  externalId: string;
  /** The record that owns the object now. */
  from?: RecordKey | undefined;
  /** The row of that record is gone, so that the record goes as well. */
  isFormerGone?: boolean;
}

/** The facts of an object by their columns in `records`, as JSON, which keeps times at full precision. */
interface ObjectFacts {
  external_id: string;
  object_hash: string | null;
}

/** The facts of the object of a record named r. What a batch that is gone may have sent leaves the object in doubt, whoever owns it. */
const factsOf = ({ token, lateSeconds }: Pick<Claim, 'token' | 'lateSeconds'>) => sql`(
  SELECT to_jsonb(f) || CASE WHEN coalesce(r.claimed_by <> ${token}, false) OR ${MAY_BE_REPLACED}
    THEN jsonb_build_object('accepted_fields', ${FIELDS_IN_DOUBT}) ELSE '{}' END
  FROM (SELECT ${objectFacts('r.')}, r.status, r.in_doubt OR w.was_written AS in_doubt,
    CASE WHEN r.claimed_by <> ${token} THEN greatest(r.check_after, now() + make_interval(secs => ${lateSeconds}))
      WHEN r.check_after > now() THEN r.check_after END AS check_after
    FROM (SELECT coalesce(r.claimed_by <> ${token} OR r.check_after <= now(), false) AS was_written) AS w) AS f)`;

const recordset = (rows: readonly object[]) => sql`jsonb_to_recordset(${JSON.stringify(rows)}::jsonb)`;

/** Rows as records are: by the columns of the table. */
const recordsOf = (rows: readonly object[]) =>
  sql`jsonb_populate_recordset(NULL::slotsync.records, ${JSON.stringify(rows)}::jsonb)`;

/**
 * Lets records own objects, with all that is known of them. Returns those that could: not where the object has another owner
 * by now, or its owner is being written under a claim on its key alone. Call it in a transaction, with the right to write
 * every object in it. `keyed`: streams whose claims on keys are their claims on objects. `lateSeconds`: how long
 * a write may be carried out that a batch which is gone may have sent.
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

/** The former owners have no object any more. Those whose rows are gone go, and the others are sent as their rows say. */
async function removeOwners(tx: Queries, passed: readonly Taking[], token: string): Promise<void> {
  const owners = passed.map(({ from, isFormerGone = false }) => ({ ...from, isFormerGone }));
  const formerOwners = sql`${recordset(owners)} AS t(stream text, "localKey" text, "isFormerGone" boolean)`;
  await query(tx)`
    DELETE FROM slotsync.records AS r USING ${formerOwners}
    WHERE r.stream = t.stream AND r.local_key = t."localKey" AND t."isFormerGone"`;
  // A batch whose claim has expired must not settle what it wrote as its own; the batch that takes keeps its claims.
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
 * Takes their objects from records whose rows have other external ids now. Each object is kept by a record of its own, with all that is
 * known of it. It counts as an object whose row is gone, and its key goes into the inbox; `undecided`: nothing is planned of
 * it before an operator decides. `keptBy`: the stream that keeps the object, by default its own. Call it in a transaction that has locked or claimed the records.
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
