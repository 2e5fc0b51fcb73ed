// Retries records on an operator's order, and retires objects that no longer have a row. Wishes are orders to send a
// record again although its row is unchanged. A wish ends only when the service accepts the record or the record is
// given up.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../database.js';
import { IS_EXCEPTED, isExcepted } from '../exceptions.js';
import { BY_OPERATOR, letGo, transferObjects } from './transfer-objects.js';
import { isWanted, type FailureFilter } from './read/failures.js';
import type { RecordKey } from './outcome-types.js';
import { AWAITS_SECOND_ANSWER, EXTERNAL_ID_CHANGED, IS_FORMER, IS_FREE } from './record-state.js';
import { addChanges } from '../inbox/add-changes.js';
import type { ResendReason } from '../schema.js';

/** Filter for records to retry. Fields that are undefined, and an empty list of keys, match all records. */
export interface ChosenRecords extends Pick<FailureFilter, 'stream' | 'status' | 'code'> {
  keys: readonly string[];
}

export interface RetriedRecord extends RecordKey {
  code: string | null;
}

/** Record, and external ids of the objects that the record no longer owns. */
export interface FormerObjects extends RecordKey {
  externalIds: string[];
}

const isChosen = ({ keys, ...filter }: ChosenRecords) =>
  sql`(${isWanted(filter)} AND ${keys.length === 0 ? sql`true` : sql`r.local_key = ${anyOf(keys)}`})`;

/** SQL: the row of a dead record has another external id than the object that the record owns. */
const OWNS_ANOTHER = sql`(r.status = 'dead' AND r.external_id IS NOT NULL
  AND r.error_code IS NOT DISTINCT FROM ${EXTERNAL_ID_CHANGED})`;
/** SQL: no batch may be sending the record, and no exception protects its object. */
const MAY_LET_GO = sql`(${IS_FREE} AND NOT ${IS_EXCEPTED})`;

type OwnerOfAnother = RecordKey & { externalId: string };

/** Locks and returns the chosen records that own an object with another external id than their rows. */
const lockOwnersOfAnother = (tx: Queries, chosen: ChosenRecords) => query<OwnerOfAnother>(tx)`
  SELECT r.stream, r.local_key AS "localKey", r.external_id AS "externalId" FROM slotsync.records AS r
  WHERE ${isChosen(chosen)} AND ${OWNS_ANOTHER} AND ${MAY_LET_GO} ORDER BY r.stream, r.local_key FOR UPDATE`;

/** Lets records go of their objects, of which an operator decides. */
async function letGoUndecided(tx: Queries, owners: readonly OwnerOfAnother[]): Promise<void> {
  const transfers = owners.map((owner) => ({ ...letGo(owner), kept: 'undecided' as const }));
  await transferObjects(tx, transfers, BY_OPERATOR);
}

/**
 * Lets the next run send dead and failed records again. Without keys, all records of the filter are sent. If a record's
 * external id changed, a new record `#former …` keeps the old object, and the next run creates the new object. Returns
 * the changed records.
 */
export async function retryRecords(db: Queries, chosen: ChosenRecords): Promise<RetriedRecord[]> {
  return db.transaction(async (tx) => {
    const owners = await lockOwnersOfAnother(tx, chosen);
    const retried = await query<RetriedRecord>(tx)`
      UPDATE slotsync.records AS r SET status = 'failed', refused_hash = NULL, updated_at = now(),
        resend = 'retry', resend_since = now(), resend_run = NULL,
        check_after = CASE WHEN NOT ${AWAITS_SECOND_ANSWER} THEN r.check_after END
      WHERE r.status IN ('dead', 'failed') AND ${isChosen(chosen)} AND (${MAY_LET_GO} OR NOT ${OWNS_ANOTHER})
      RETURNING r.stream, r.local_key AS "localKey", r.error_code AS code`;
    await letGoUndecided(tx, owners);
    return retried;
  });
}

/**
 * Lets the next plan retire former objects, subject to all gates and limits. Includes objects of chosen records whose
 * rows have another external id. Skips objects that a batch has claimed. Returns the changed records.
 */
export async function retireFormer(
  db: Queries,
  {
    streams,
    ...chosen
  }: { stream?: string | undefined; keys: readonly string[]; streams: readonly string[] },
): Promise<FormerObjects[]> {
  return db.transaction(async (tx) => {
    const owners = await lockOwnersOfAnother(tx, chosen);
    await letGoUndecided(
      tx,
      owners.filter(({ stream }) => streams.includes(stream)),
    );
    const isMeant = chosen.keys.length === 0 ? sql`true` : sql`r.former_key = ${anyOf(chosen.keys)}`;
    return query<FormerObjects>(tx)`
      WITH former AS (
        SELECT * FROM slotsync.records AS r
        WHERE ${IS_FORMER} AND r.stream = ${anyOf(streams)} AND ${isMeant}
          AND r.stream = coalesce(${chosen.stream ?? null}, r.stream) AND ${IS_FREE}
          AND NOT ${isExcepted(sql`r.stream`, sql`r.former_key`)} FOR UPDATE
      ), changed AS (
        UPDATE slotsync.records AS r SET gone_since = NULL, source_hash = 0,
          object_hash = coalesce(r.object_hash, ''), updated_at = now()
        FROM former AS f WHERE r.stream = f.stream AND r.local_key = f.local_key
      )
      SELECT stream, former_key AS "localKey", array_agg(external_id ORDER BY external_id) AS "externalIds"
      FROM former GROUP BY stream, former_key ORDER BY stream, former_key`;
  });
}

export interface Wish {
  stream: string;
  keys: readonly string[];
  reason: ResendReason;
  runId: number;
}

/** Stores a wish of a run's plan in the records of these keys. Keys without a record are ignored. */
export async function wishAgain(tx: Queries, { stream, keys, reason, runId }: Wish): Promise<void> {
  if (keys.length === 0) return;
  await query(tx)`
    UPDATE slotsync.records SET resend = ${reason}, resend_since = now(), resend_run = ${runId}::bigint
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
}

/**
 * Stores an operator's wish that the mirror's values win once in some fields (`text`, from `takeText`), and adds the
 * key to the inbox. Refused while a batch is writing the record, because the batch's outcome would clear the wish. Must
 * be called in a transaction.
 */
export async function takeFields(
  tx: Queries,
  { stream, localKey }: RecordKey,
  text: string,
): Promise<'taken' | 'being written' | 'not accepted'> {
  const isAccepted = sql`r.stream = ${stream} AND r.local_key = ${localKey} AND r.status = 'synced'`;
  const { accepted, taken } = await queryOne<{ accepted: number; taken: number }>(tx)`
    WITH taken AS (
      UPDATE slotsync.records AS r SET accepted_fields = coalesce(accepted_fields, '') || ${text}, resend = 'forced',
        resend_since = now(), resend_run = NULL
      WHERE ${isAccepted} AND ${IS_FREE} RETURNING 1)
    SELECT (SELECT count(*)::int FROM slotsync.records AS r WHERE ${isAccepted}) AS accepted,
      (SELECT count(*)::int FROM taken) AS taken`;
  if (taken === 0) return accepted === 0 ? 'not accepted' : 'being written';
  await addChanges(tx, stream, [localKey]);
  return 'taken';
}

/** Removes the wishes of a cancelled run from records that the run has not sent. */
export async function withdrawWishes(tx: Queries, runId: number): Promise<void> {
  await query(tx)`
    UPDATE slotsync.records SET resend = NULL, resend_since = NULL, resend_run = NULL
    WHERE resend IS NOT NULL AND resend_run = ${runId}::bigint`;
}
