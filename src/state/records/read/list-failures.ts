// Lists the records that are not in sync, with the reasons.
import { sql } from 'drizzle-orm';
import { query, type Queries, type RowOf } from '../../database.js';
import type { records } from '../../schema.js';
import { waitsFor } from '../record-state.js';
import { IS_SENT_AGAIN } from './count-records.js';
import { isWanted, NOT_IN_SYNC, SINCE, type FailureFilter } from './failure-filter.js';
import type { RecordKey } from '../outcome-types.js';

type RecordColumn =
  'externalId' | 'status' | 'errorCode' | 'errorMessage' | 'attempts' | 'runId' | 'updatedAt';
export interface Failure extends RecordKey, Pick<RowOf<typeof records>, RecordColumn> {
  /** Time since when the record is in its status. For a failed record, time of the last attempt. */
  since: Date;
  waitsFor: RecordKey | null;
  /** True if the record failed and is in the inbox, to be sent again. */
  isInInbox: boolean;
}

/** Returns up to `limit` records that match the filter, ordered by stream and key, beginning after `after`. */
export async function listFailures(
  db: Queries,
  { limit, after, ...filter }: FailureFilter & { limit: number; after?: RecordKey | undefined },
): Promise<Failure[]> {
  return query<Failure>(db)`
    SELECT r.stream, r.local_key AS "localKey", coalesce(r.external_id, r.row_external_id) AS "externalId", r.status, r.error_code AS "errorCode",
      r.error_message AS "errorMessage", r.attempts, r.run_id::float8 AS "runId", r.updated_at AS "updatedAt",
      ${SINCE} AS since, ${IS_SENT_AGAIN} AS "isInInbox",
      ${waitsFor('r')} AS "waitsFor"
    FROM slotsync.records AS r WHERE ${NOT_IN_SYNC} AND ${isWanted(filter)}
      ${after && sql`AND (r.stream, r.local_key) > (${after.stream}, ${after.localKey})`}
    ORDER BY r.stream, r.local_key LIMIT ${limit}`;
}
