// Former objects lost their row when the external id of their record changed. A record of its own keeps each.
import { anyOf, query, queryOne, type Queries } from '../../database.js';
import type { RecordKey } from '../outcome-types.js';
import { IS_FORMER } from '../record-state.js';

/** Counts former objects about which no operator has decided, optionally of one stream only. */
export async function countFormerObjects(db: Queries, stream?: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.records AS r
    WHERE ${IS_FORMER} AND stream = coalesce(${stream ?? null}, stream)`;
  return count;
}

export async function listOtherFormerStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const rows = await query<{ stream: string }>(db)`
    SELECT DISTINCT stream FROM slotsync.records AS r
    WHERE ${IS_FORMER} AND NOT stream = ${anyOf(streams)} ORDER BY stream`;
  return rows.map(({ stream }) => stream);
}

/** Returns former objects of these keys, including retired objects, with the record that keeps each object. */
export async function listFormerObjects(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return [];
  return query<RecordKey & { externalId: string; formerKey: string; isUndecided: boolean }>(db)`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", former_key AS "formerKey",
      ${IS_FORMER} AS "isUndecided"
    FROM slotsync.records AS r WHERE stream = ${stream} AND former_key = ${anyOf(keys)} ORDER BY external_id`;
}
