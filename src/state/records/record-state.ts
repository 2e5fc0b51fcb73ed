// States of a record, and SQL that several writers share. docs/architecture.md has a diagram.
//
// `status` is the state that people see. Other columns hold further states:
//
//   claimed          claimed_by         a batch may be writing the object; the claim expires at claimed_until
//   in doubt         in_doubt           the answer to a write was lost: the object is read back
//   late write       check_after        until then the service may still execute a write whose answer was lost
//   second answer    refused_hash,      of a failed record: refused while the service accepted nothing, and sent once more
//                    check_after        at that time; the object is not in doubt
//   given up         refused_hash       of a dead record: only a row with another hash is sent
//   not relied on    object_hash = ''   the object was accepted, but its content is unknown: the row is sent
//   former           former_key         the record keeps an object that lost its row when an external id changed
//
// Each writer is a file of this folder. Batches use claims and settle-records, by the table of record-columns. Its
// `failRecords` also serves plans and batches out of attempts, its `insertAdopted` a lost state. For other events: transfer-objects (change of owner), links,
// move-record, retry-records, forget-key, gone-rows (deleted rows), wake-waiting (arrived references).
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';

/** Error code of a dead record whose row has another external id than the object that the record owns. */
export const EXTERNAL_ID_CHANGED = 'external_id_changed';

/** Error code of a dead record whose object now has another external id, or none, at the service. */
export const EXTERNAL_ID_CHANGED_THERE = 'external_id_changed_there';

/** Builds an SQL condition on a record named `r`. The property `text` is for statements without parameters. */
const condition = (text: string) => Object.assign(sql.raw(`(${text})`), { text: `(${text})` });

/** SQL: the service accepted the object, or the answer to a write was lost. In TypeScript: `wasSent`. */
export const WAS_SENT = condition('r.object_hash IS NOT NULL OR r.in_doubt');

export const wasSent = ({ objectHash, inDoubt }: { objectHash: string | null; inDoubt: boolean }): boolean =>
  objectHash !== null || inDoubt;

/** SQL: the service may hold the object, or a batch may be sending it. Queries return this as `mayBeAtService`. */
export const MAY_BE_AT_SERVICE = condition(`${WAS_SENT.text} OR r.claimed_by IS NOT NULL`);

/** SQL: no batch may write the record. */
export const IS_FREE = condition('r.claimed_by IS NULL OR r.claimed_until < now()');

/** SQL: record `r` was refused while the service accepted nothing. It is sent once more, but is not in doubt. */
export const AWAITS_SECOND_ANSWER = condition("r.status = 'failed' AND r.refused_hash IS NOT NULL");

/**
 * SQL: records that refer to record `r` may be sent. After a change of external id they must wait, because an operator
 * decides which object belongs to record `r`.
 */
export const HAS_ARRIVED = condition(`r.object_hash IS NOT NULL AND NOT (r.status = 'dead'
  AND coalesce(r.error_code IN ('${EXTERNAL_ID_CHANGED}', '${EXTERNAL_ID_CHANGED_THERE}'), false))`);

/**
 * SQL: the service accepted the object, but may still execute an older write whose answer was lost, which would replace
 * the object. A record in doubt does not count.
 */
export const MAY_BE_REPLACED = condition(
  `r.check_after IS NOT NULL AND NOT r.in_doubt AND NOT ${AWAITS_SECOND_ANSWER.text}`,
);

/** SQL: record `r` keeps an object whose row got another external id, and no operator has decided about the object. */
export const IS_FORMER = condition(
  "r.former_key IS NOT NULL AND r.source_hash IS NULL AND r.status <> 'retired'",
);

/** SQL: time when a whole plan of the record's stream last ended. Null if none has. */
export const PLANNED_AT = sql`(SELECT s.planned_at FROM slotsync.streams AS s WHERE s.stream = r.stream)`;

const IN_SYNC = "('synced', 'retired')";

/** SQL: the record is not in sync. Used in queries with a single table. */
export const UNSETTLED = sql.raw(`status NOT IN ${IN_SYNC}`);

/** SQL: record that record `name` waits for, as the JSON of a `RecordKey`. Null if it waits for no record. */
export const waitsFor = (name: string): SQL =>
  sql.raw(`CASE WHEN ${name}.waits_for IS NOT NULL AND ${name}.status NOT IN ${IN_SYNC}
    THEN jsonb_build_object('stream', ${name}.waits_for::jsonb->0, 'localKey', ${name}.waits_for::jsonb->1) END`);

/**
 * SQL: new `accepted_fields` of record `r` after a lost answer. The service may now hold the written values, and a
 * field rule must not mistake them for values that a person entered. streams/field-rules.ts marks the tokens that
 * remain.
 */
export const FIELDS_IN_DOUBT = sql.raw(
  `nullif(array_to_string(ARRAY(SELECT t[1] FROM regexp_matches(r.accepted_fields, '[+!].{7}', 'g') AS t), ''), '')`,
);

export interface RecordKeys {
  stream: string;
  keys: readonly string[];
}

/**
 * Puts records in doubt, so that the next run reads their objects back although their rows are unchanged. Skips records
 * that the service cannot hold, because in doubt they would count as our objects, which may be overwritten without
 * approval.
 */
export async function checkAgain(db: Queries, records: RecordKeys): Promise<void> {
  if (records.keys.length > 0) await query(db)`${checkingAgain(records)}`;
}

/** Puts records in doubt after the write of another record may have changed their objects. */
export async function doubtObjects(db: Queries, records: RecordKeys): Promise<void> {
  if (records.keys.length > 0) await query(db)`${doubtingLost(records, MAY_BE_AT_SERVICE)}`;
}

/** Puts records in doubt and clears their service ids, because another record has the same service id. */
export async function doubtNumber(db: Queries, records: RecordKeys): Promise<void> {
  await doubtObjects(db, records);
  await query(db)`UPDATE slotsync.records SET destination_id = NULL
    WHERE stream = ${records.stream} AND local_key = ${anyOf(records.keys)}`;
}

/** Returns the statement of `checkAgain`. Accepted field values are kept, because no write was lost. */
export const checkingAgain = ({ stream, keys }: RecordKeys): SQL => sql`
  UPDATE slotsync.records AS r SET ${CHECK_AGAIN},
    accepted_fields = CASE WHEN ${MAY_BE_REPLACED} THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND ${MAY_BE_AT_SERVICE}`;

/**
 * Returns a statement that puts records in doubt, if two batches may have written them. `isLost`: condition on `r`.
 */
export const doubtingLost = ({ stream, keys }: RecordKeys, isLost: SQL): SQL => sql`
  UPDATE slotsync.records AS r SET ${CHECK_AGAIN}, accepted_fields = ${FIELDS_IN_DOUBT}
  WHERE r.stream = ${stream} AND r.local_key = ${anyOf(keys)} AND ${isLost}`;

const CHECK_AGAIN = sql`in_doubt = true, check_after = coalesce(r.check_after, now())`;
