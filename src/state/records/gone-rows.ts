// Records whose row is gone from the mirror: since when, where the stream waits some days before it retires, and the end of
// those the service never had.
import { anyOf, query, type Queries } from '../database.js';
import { wakeSharers } from './wake-waiting.js';

/** Notes that the rows of these keys are gone, those for which it was not noted yet. */
export async function noteGone(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.records SET gone_since = now()
    WHERE stream = ${stream} AND local_key = ${anyOf(keys)} AND gone_since IS NULL`;
}

/** Notes that the rows of these keys are back: the days are counted anew when they are gone again. */
export async function noteBack(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  await query(db)`
    UPDATE slotsync.records SET gone_since = NULL WHERE stream = ${stream} AND local_key = ${anyOf(keys)}`;
}

/** Those of the keys whose rows have been gone for so many days. */
export async function readLongGone(db: Queries, stream: string, keys: readonly string[], days: number) {
  const rows = await query<{ localKey: string }>(db)`
    SELECT local_key AS "localKey" FROM slotsync.records WHERE stream = ${stream} AND local_key = ${anyOf(keys)}
      AND gone_since <= now() - make_interval(secs => ${days * 24 * 60 * 60})`;
  return new Set(rows.map(({ localKey }) => localKey));
}

/** Deletes records that the service never had and no batch has claimed. */
export async function forgetRecords(db: Queries, stream: string, keys: readonly string[]): Promise<void> {
  const forgotten = await query<{ externalId: string | null }>(db)`
    DELETE FROM slotsync.records WHERE stream = ${stream} AND local_key = ${anyOf(keys)}
      AND object_hash IS NULL AND claimed_by IS NULL AND NOT in_doubt AND check_after IS NULL
    RETURNING coalesce(external_id, row_external_id) AS "externalId"`;
  await wakeSharers(
    db,
    forgotten.flatMap(({ externalId }) => externalId ?? []),
  );
}
