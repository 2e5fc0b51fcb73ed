// Wishes: orders to send a record again although its row is unchanged. A wish ends only when the service accepts the
// record or the record is given up.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../database.js';
import { addChanges } from '../inbox/add-changes.js';
import type { ResendReason } from '../schema.js';
import type { RecordKey } from './outcome-types.js';
import { IS_FREE } from './record-state.js';

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
