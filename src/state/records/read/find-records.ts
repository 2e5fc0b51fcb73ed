// Finds the records for a text that an operator enters as a key or external id.
import { anyOf, query, type Queries } from '../../database.js';
import type { RecordStatus } from '../../schema.js';
import { listRecordedStreams } from './count-records.js';
import type { RecordKey } from '../outcome-types.js';

/** Finds records of all streams whose key or external id equals the text that an operator searches for. */
export async function findRecords(db: Queries, text: string, limit: number) {
  const streams = await listRecordedStreams(db);
  return query<RecordKey & { externalId: string | null; status: RecordStatus }>(db)`
    SELECT stream, local_key AS "localKey", coalesce(external_id, row_external_id) AS "externalId", status FROM slotsync.records
    WHERE stream = ${anyOf(streams)} AND local_key = ${text} OR external_id = ${text} OR row_external_id = ${text}
    ORDER BY stream, local_key LIMIT ${limit}`;
}
