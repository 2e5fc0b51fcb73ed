// Objects that no row has since the external id of a record changed: each is kept by a record of its own.
import { anyOf, query, queryOne, type Queries } from '../../database.js';
import type { RecordKey } from '../outcome-types.js';
import { IS_FORMER } from '../record-state.js';

/** Former objects that nobody has decided about. Of one stream when given. */
export async function countFormerObjects(db: Queries, stream?: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.records AS r
    WHERE ${IS_FORMER} AND stream = coalesce(${stream ?? null}, stream)`;
  return count;
}

/** Streams with former objects, other than these. */
export async function listOtherFormerStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const rows = await query<{ stream: string }>(db)`
    SELECT DISTINCT stream FROM slotsync.records AS r
    WHERE ${IS_FORMER} AND NOT stream = ${anyOf(streams)} ORDER BY stream`;
  return rows.map(({ stream }) => stream);
}

/** The objects that records of these keys had before, retired ones too, with the record that keeps each. */
export async function listFormerObjects(db: Queries, stream: string, keys: readonly string[]) {
  if (keys.length === 0) return [];
  return query<RecordKey & { externalId: string; formerKey: string; isUndecided: boolean }>(db)`
    SELECT stream, local_key AS "localKey", external_id AS "externalId", former_key AS "formerKey",
      ${IS_FORMER} AS "isUndecided"
    FROM slotsync.records AS r WHERE stream = ${stream} AND former_key = ${anyOf(keys)} ORDER BY external_id`;
}
