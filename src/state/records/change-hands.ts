// An object changes hands. What is known of an object stands in the one record that owns it. When another record is to be
// written to it, all of that passes on: external id, number, what was accepted last, the doubt and the pending look. The
// former owner has no object afterwards. An object that no row gives any more is kept by a record of its own.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../database.js';
import { shortenKey } from '../../streams/local-key.js';
import { addChanges } from '../inbox/add-changes.js';
import type { Claim } from './claims.js';
import { EXTERNAL_ID_CHANGED, type RecordKey } from './outcome-types.js';
import { wakeSharers } from './wake-waiting.js';

const PREFIX = '#former ';

/** The key of the record that keeps an object which no row gives: no row has it. */
export const formerKey = (externalId: string): string => shortenKey(PREFIX + externalId);

/**
 * In SQL, of a row of `records`: it keeps an object that no row gives since the external id of a record changed, and that no
 * operator has decided about.
 */
export const IS_FORMER = sql`(former_key IS NOT NULL AND source_hash IS NULL AND status <> 'retired')`;

/** Which record is to own an object. */
export interface Taking extends RecordKey {
  externalId: string;
  /** The record that owns the object now. */
  from?: RecordKey | undefined;
  /** The row of that record is gone, so that the record goes as well. */
  isFormerGone?: boolean;
}

/** What is known of an object, as it passes from record to record. */
interface ObjectFacts {
  externalId: string;
  destinationId: string | null;
  objectHash: string | null;
  inDoubt: boolean;
  checkAfter: string | null;
  syncedAt: string | null;
  status: string;
}

/** Of a record named r. What another batch may have sent, which is gone, is doubtful of the object, whoever owns it. */
const factsOf = ({
  token,
  lateSeconds,
}: Pick<
  Claim,
  'token' | 'lateSeconds'
>) => sql`r.external_id AS "externalId", r.destination_id::text AS "destinationId",
  r.object_hash AS "objectHash", r.status, r.synced_at::text AS "syncedAt",
  r.in_doubt OR coalesce(r.claimed_by <> ${token} OR r.check_after <= now(), false) AS "inDoubt",
  CASE WHEN r.claimed_by <> ${token} THEN greatest(r.check_after, now() + make_interval(secs => ${lateSeconds}))
    WHEN r.check_after > now() THEN r.check_after END::text AS "checkAfter"`;

/** What a record (named r) becomes without its object. If its row gives another one, the next run sends it. */
const WITHOUT_OBJECT = sql`external_id = NULL, destination_id = NULL, source_hash = NULL, object_hash = NULL,
  in_doubt = false, check_after = NULL, synced_at = NULL, updated_at = now(),
  refused_hash = CASE WHEN r.error_code IS DISTINCT FROM ${EXTERNAL_ID_CHANGED} THEN r.refused_hash END,
  status = CASE WHEN r.status IN ('synced', 'retired') THEN 'pending' WHEN r.error_code = ${EXTERNAL_ID_CHANGED} THEN 'failed'
    ELSE r.status END`;

const given = (records: readonly object[]) => sql`jsonb_to_recordset(${JSON.stringify(records)}::jsonb)`;

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
  const mayBeTaken = sql`(r.claimed_by IS NULL OR r.claimed_until < now() OR r.claimed_by = ${token}
    OR NOT r.stream = ${anyOf(keyed)})`;
  const facts = new Map<string, ObjectFacts>();
  if (passing.length > 0) {
    const former = await query<ObjectFacts>(tx)`
      SELECT ${factsOf({ token, lateSeconds })} FROM ${given(passing)} AS t("from" jsonb, "externalId" text)
      JOIN slotsync.records AS r
        ON r.stream = t."from"->>'stream' AND r.local_key = t."from"->>'localKey' AND r.external_id = t."externalId"
      WHERE ${mayBeTaken} ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
    for (const one of former) facts.set(one.externalId, one);
    const passed = passing.filter(({ externalId }) => facts.has(externalId));
    await removeOwners(tx, passed, token);
  }
  const possible = takings.filter(({ from, externalId }) => !from || facts.has(externalId));
  const rows = possible.map(({ stream, localKey, externalId }) => ({
    stream,
    localKey,
    externalId,
    ...facts.get(externalId),
  }));
  const taken = await query<RecordKey>(tx)`
    UPDATE slotsync.records AS r SET external_id = t."externalId", row_external_id = NULL,
      destination_id = t."destinationId", source_hash = NULL, object_hash = t."objectHash",
      synced_at = t."syncedAt", in_doubt = r.in_doubt OR coalesce(t."inDoubt", false),
      check_after = greatest(r.check_after, t."checkAfter")
    FROM ${given(rows)} AS t(stream text, "localKey" text, "externalId" text, "destinationId" bigint,
      "objectHash" text, "inDoubt" boolean, "checkAfter" timestamptz, "syncedAt" timestamptz)
    WHERE r.stream = t.stream AND r.local_key = t."localKey" AND (r.claimed_by = ${token} OR r.claimed_by IS NULL)
      AND NOT EXISTS (SELECT FROM slotsync.records AS o WHERE o.external_id = t."externalId")
    RETURNING r.stream, r.local_key AS "localKey"`;
  const names = new Set(taken.map((one) => JSON.stringify([one.stream, one.localKey])));
  return takings.filter((one) => names.has(JSON.stringify([one.stream, one.localKey])));
}

/** The former owners have no object any more. Those whose rows are gone go, and the others are sent as their rows say. */
async function removeOwners(tx: Queries, passed: readonly Taking[], token: string): Promise<void> {
  const owners = passed.map(({ from, isFormerGone = false }) => ({ ...from, isFormerGone }));
  const own = sql`${given(owners)} AS t(stream text, "localKey" text, "isFormerGone" boolean)`;
  await query(tx)`
    DELETE FROM slotsync.records AS r USING ${own}
    WHERE r.stream = t.stream AND r.local_key = t."localKey" AND t."isFormerGone"`;
  // A batch whose claim has expired must not settle what it wrote as its own; the batch that takes keeps its claims.
  const left = await query<RecordKey & { isOurs: boolean }>(tx)`
    UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT},
      (claimed_by, claimed_until) = (SELECT r.claimed_by, r.claimed_until WHERE r.claimed_by = ${token})
    FROM ${own} WHERE r.stream = t.stream AND r.local_key = t."localKey"
    RETURNING r.stream, r.local_key AS "localKey", r.claimed_by IS NOT NULL AS "isOurs"`;
  await query(tx)`
    DELETE FROM slotsync.drift AS r USING ${own} WHERE r.stream = t.stream AND r.local_key = t."localKey"`;
  for (const { isOurs, stream, localKey } of left) if (!isOurs) await addChanges(tx, stream, [localKey]);
}

/**
 * Takes their objects from records whose rows give others now. Each object is kept by a record of its own, with all that is
 * known of it. It counts as an object whose row is gone, and its key goes into the inbox; `undecided`: nothing is planned of
 * it before an operator decides. Call it in a transaction that has locked or claimed the records.
 */
export async function letGo(
  tx: Queries,
  records: readonly RecordKey[],
  { undecided, ...claim }: Pick<Claim, 'token' | 'lateSeconds'> & { undecided: boolean },
): Promise<void> {
  if (records.length === 0) return;
  const own = sql`${given(records)} AS t(stream text, "localKey" text)`;
  const facts = await query<ObjectFacts & RecordKey>(tx)`
    SELECT ${factsOf(claim)}, r.stream, r.local_key AS "localKey" FROM slotsync.records AS r JOIN ${own}
      ON r.stream = t.stream AND r.local_key = t."localKey"
    WHERE r.external_id IS NOT NULL AND (${claim.token} = '' OR r.claimed_by = ${claim.token}) ORDER BY r.stream, r.local_key FOR UPDATE OF r`;
  await query(tx)`
    UPDATE slotsync.records AS r SET ${WITHOUT_OBJECT} FROM ${given(facts)} AS t(stream text, "localKey" text)
    WHERE r.stream = t.stream AND r.local_key = t."localKey"`;
  const kept = facts.map((one) => ({ ...one, key: formerKey(one.externalId) }));
  await query(tx)`
    INSERT INTO slotsync.records (stream, local_key, former_key, external_id, destination_id, source_hash,
      object_hash, status, in_doubt, check_after, synced_at, gone_since)
    SELECT stream, key, "localKey", "externalId", "destinationId", CASE WHEN NOT ${undecided} THEN 0 END,
      coalesce("objectHash", ''),
      CASE WHEN status = 'retired' THEN status ELSE 'synced' END, "inDoubt", "checkAfter", "syncedAt",
      CASE WHEN ${undecided} THEN now() END
    FROM ${given(kept)} AS t(stream text, key text, "localKey" text, "externalId" text, "destinationId" bigint,
      "objectHash" text, status text, "inDoubt" boolean, "checkAfter" timestamptz, "syncedAt" timestamptz)
    ON CONFLICT (stream, local_key) DO UPDATE SET former_key = excluded.former_key, external_id = excluded.external_id,
      destination_id = excluded.destination_id, source_hash = excluded.source_hash, object_hash = excluded.object_hash,
      status = excluded.status, in_doubt = excluded.in_doubt, check_after = excluded.check_after,
      synced_at = excluded.synced_at, gone_since = excluded.gone_since`;
  if (!undecided) for (const { stream, key } of kept) await addChanges(tx, stream, [key]);
  await wakeSharers(
    tx,
    kept.map(({ externalId }) => externalId),
  );
}

/** Former objects that nobody has decided about. Of one stream when given. */
export async function countFormerObjects(db: Queries, stream?: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.records
    WHERE ${IS_FORMER} AND stream = coalesce(${stream ?? null}, stream)`;
  return count;
}

/** Streams with former objects, other than these. */
export async function listOtherFormerStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const rows = await query<{ stream: string }>(db)`
    SELECT DISTINCT stream FROM slotsync.records
    WHERE ${IS_FORMER} AND NOT stream = ${anyOf(streams)} ORDER BY stream`;
  return rows.map(({ stream }) => stream);
}

/** The objects that records of these keys had before, retired ones too, with the record that keeps each. */
export async function listFormerObjects(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return [];
  return query<RecordKey & { externalId: string; formerKey: string; isUndecided: boolean }>(db)`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", former_key AS "formerKey",
      ${IS_FORMER} AS "isUndecided"
    FROM slotsync.records WHERE stream = ${stream} AND former_key = ${anyOf(keys)} ORDER BY external_id`;
}
