// The states of a record, and the changes that several writers make. docs/architecture.md draws them.
//
// `status` is what people see. These states stand beside it, in other columns:
//
//   claimed          claimed_by         a batch may be writing the object; the claim expires at claimed_until
//   in doubt         in_doubt           a write may have been sent, and its answer is not known: the object is read back
//   late write       check_after        until then a write without an answer may still be carried out
//   second answer    refused_hash,      of a failed record: refused while the service accepted nothing, and sent once more
//                    check_after        at that time; nothing is in doubt
//   given up         refused_hash       of a dead record: only a row with another hash is sent
//   not relied on    object_hash = ''   the object was accepted, and what it holds is not known: its row is sent
//   former           former_key         it keeps an object that no row has since the external id of a record changed
//
// Writers, each a file beside this one: claim-records and settle-records for a batch, settle-records (`failRecords`) also for
// rows that a plan does not send and for a batch out of attempts, transfer-objects where an object gets another owner,
// link-records, move-record, retry-records, forget-key and gone-rows where the row is gone, adopt-records after the state was
// lost, wake-waiting when a reference arrives.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';

/** Code of a dead record whose row has another external id than the object that it owns. */
export const EXTERNAL_ID_CHANGED = 'external_id_changed';

/** The same where the object has another external id at the service, or none any more. */
export const EXTERNAL_ID_CHANGED_THERE = 'external_id_changed_there';

/** A condition on a record named r. `text`: for statements that take no parameters. */
const condition = (text: string) => Object.assign(sql.raw(`(${text})`), { text: `(${text})` });

/** The service accepted its object, or a write of it was sent without an answer. TypeScript: `wasSent`. */
export const WAS_SENT = condition('r.object_hash IS NOT NULL OR r.in_doubt');

export const wasSent = ({ objectHash, inDoubt }: { objectHash: string | null; inDoubt: boolean }): boolean =>
  objectHash !== null || inDoubt;

/** The service may hold its object, or is about to: a batch may be writing it. Readers return it as `mayBeAtService`. */
export const MAY_BE_AT_SERVICE = condition(`${WAS_SENT.text} OR r.claimed_by IS NOT NULL`);

/** No batch may write it. */
export const IS_FREE = condition('r.claimed_by IS NULL OR r.claimed_until < now()');

/**
 * The service refused it while it accepted nothing. When its check is due it is sent once more, and nothing about its object
 * is in doubt for that.
 */
export const AWAITS_SECOND_ANSWER = condition("r.status = 'failed' AND r.refused_hash IS NOT NULL");

/**
 * Records that refer to it may be sent. A record whose row has another external id than it owns, or whose object has another one at
 * the service, has not arrived: an operator decides which object it represents.
 */
export const HAS_ARRIVED = condition(`r.object_hash IS NOT NULL AND NOT (r.status = 'dead'
  AND coalesce(r.error_code IN ('${EXTERNAL_ID_CHANGED}', '${EXTERNAL_ID_CHANGED_THERE}'), false))`);

/**
 * The service accepted its object while an earlier write without an answer may still be carried out. A record in doubt is another
 * matter: what its accepted fields say was dropped when the write was lost, or its object is only checked again.
 */
export const MAY_BE_REPLACED = condition(
  `r.check_after IS NOT NULL AND NOT r.in_doubt AND NOT ${AWAITS_SECOND_ANSWER.text}`,
);

/** It keeps an object that no row has since the external id of a record changed, and no operator has decided about it. */
export const IS_FORMER = condition(
  "r.former_key IS NOT NULL AND r.source_hash IS NULL AND r.status <> 'retired'",
);

/** When a whole plan of its stream last ended; null: none has. */
export const PLANNED_AT = sql`(SELECT s.planned_at FROM slotsync.streams AS s WHERE s.stream = r.stream)`;

const IN_SYNC = "('synced', 'retired')";

/** Without the name of the record: it is not in sync. */
export const UNSETTLED = sql.raw(`status NOT IN ${IN_SYNC}`);

/** The record that a record with this name in the statement waits for, as JSON of a `RecordKey`; null: it waits for none. */
export const waitsFor = (name: string): SQL =>
  sql.raw(`CASE WHEN ${name}.waits_for IS NOT NULL AND ${name}.status NOT IN ${IN_SYNC}
    THEN jsonb_build_object('stream', ${name}.waits_for::jsonb->0, 'localKey', ${name}.waits_for::jsonb->1) END`);

/**
 * Columns with facts of the object that a record owns. They pass on with the object as they are (transfer-objects.ts), and a record
 * without an object has none of them.
 */
const OBJECT_FACTS = [
  'external_id',
  'destination_id',
  'object_hash',
  'accepted_fields',
  'synced_at',
] as const;

/** The columns of `OBJECT_FACTS` in a statement. `of`: the name of the record there, with a point. */
export const objectFacts = (of = ''): SQL => sql.raw(OBJECT_FACTS.map((column) => of + column).join(', '));

/**
 * New value of `accepted_fields` for a record (named r) after a write whose answer is unknown. The service may hold the values of that
 * write, and a field rule must not take them for a person's. streams/field-rules.ts marks the tokens that stay.
 */
export const FIELDS_IN_DOUBT = sql.raw(
  `nullif(array_to_string(ARRAY(SELECT t[1] FROM regexp_matches(r.accepted_fields, '[+!].{7}', 'g') AS t), ''), '')`,
);

/** A record (named r) after it lost its object. If its row has another external id, the next run sends it. */
export const WITHOUT_OBJECT = sql`${sql.raw(OBJECT_FACTS.map((column) => `${column} = NULL`).join(', '))},
  source_hash = NULL, in_doubt = false, check_after = NULL, updated_at = now(),
  refused_hash = CASE WHEN r.error_code IS DISTINCT FROM ${EXTERNAL_ID_CHANGED} THEN r.refused_hash END,
  status = CASE WHEN r.status IN ('synced', 'retired') THEN 'pending' WHEN r.error_code = ${EXTERNAL_ID_CHANGED} THEN 'failed'
    ELSE r.status END`;

/** Records of one stream. */
export interface RecordKeys {
  stream: string;
  keys: readonly string[];
}

/**
 * Lets the objects of records be read back by the next run although their rows have not changed, also those that a batch is
 * writing. Not those that the service cannot hold: they are sent anyway, and in doubt they would count as objects of ours,
 * which are overwritten without asking.
 */
export async function checkAgain(db: Queries, records: RecordKeys): Promise<void> {
  if (records.keys.length > 0) await query(db)`${checkingAgain(records)}`;
}

/** The same of records whose objects the write of another record has changed. */
export async function doubtObjects(db: Queries, records: RecordKeys): Promise<void> {
  if (records.keys.length > 0) await query(db)`${doubtingLost(records, MAY_BE_AT_SERVICE)}`;
}

/** The same of records whose number another record has as well: neither has one before the service answers it anew. */
export async function doubtNumber(db: Queries, records: RecordKeys): Promise<void> {
  await doubtObjects(db, records);
  await query(db)`UPDATE slotsync.records SET destination_id = NULL
    WHERE stream = ${records.stream} AND local_key = ${anyOf(records.keys)}`;
}

/** The statement of `checkAgain`. What was accepted of fields stays known: no write of the object was lost. */
export const checkingAgain = ({ stream, keys }: RecordKeys): SQL => sql`
  UPDATE slotsync.records AS r SET ${CHECK_AGAIN},
    accepted_fields = CASE WHEN ${MAY_BE_REPLACED} THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND ${MAY_BE_AT_SERVICE}`;

/** The statement that does so for those of which two batches may have written the object. `isLost`: a condition on a record named r. */
export const doubtingLost = ({ stream, keys }: RecordKeys, isLost: SQL): SQL => sql`
  UPDATE slotsync.records AS r SET ${CHECK_AGAIN}, accepted_fields = ${FIELDS_IN_DOUBT}
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND ${isLost}`;

const CHECK_AGAIN = sql`in_doubt = true, check_after = coalesce(r.check_after, now())`;
