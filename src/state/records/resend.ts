// The wish to send a record again although nothing of it has changed. It stays with the record until the service has accepted it or
// given it up, whatever becomes of the run that made it.
import { anyOf, query, type Queries } from '../database.js';
import type { ResendReason } from '../schema.js';

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

/** An operator cancelled the run: the records that it has not sent are not wanted again. */
export async function withdrawWishes(tx: Queries, runId: number): Promise<void> {
  await query(tx)`
    UPDATE slotsync.records SET resend = NULL, resend_since = NULL, resend_run = NULL
    WHERE resend IS NOT NULL AND resend_run = ${runId}::bigint`;
}
