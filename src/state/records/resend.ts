// The wish to send a record again although nothing of it has changed. It stays with the record until the service has accepted it or
// given it up, whatever becomes of the run that made it.
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
  /** The run whose plan makes it. */
  runId: number;
}

/** Notes the wish of a run's plan for those of these keys that have a record. */
export async function wishAgain(tx: Queries, { stream, keys, reason, runId }: Wish): Promise<void> {
  if (keys.length === 0) return;
  await query(tx)`
    UPDATE slotsync.records SET resend = ${reason}, resend_since = now(), resend_run = ${runId}::bigint
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
}

/**
 * An operator's wish that the mirror wins once in some fields; `text` is their `takeText`. The record goes into the inbox. A batch
 * that writes the record would settle it without the wish, so the wish waits for its end. Call it in a transaction.
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

/** An operator cancelled the run: the records that it has not sent are not wanted again. */
export async function withdrawWishes(tx: Queries, runId: number): Promise<void> {
  await query(tx)`
    UPDATE slotsync.records SET resend = NULL, resend_since = NULL, resend_run = NULL
    WHERE resend IS NOT NULL AND resend_run = ${runId}::bigint`;
}
