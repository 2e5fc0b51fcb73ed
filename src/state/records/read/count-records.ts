// Counts records by status, records that are not in sync, and records that the service is assumed to hold.
import { query, queryColumn, queryOne, queryValue, type Queries } from '../../database.js';
import type { RecordStatus } from '../../schema.js';
import { IS_FORMER, WAS_SENT } from '../record-state.js';
import { isWanted, NOT_IN_SYNC, type FailureFilter } from './failures.js';

/** Counts records by stream and status. Leaves out records that only keep an object which their key owned before. */
export const countRecords = (db: Queries) => query<{ stream: string; status: RecordStatus; count: number }>(
  db,
)`
  SELECT stream, status, count(*)::int AS count FROM slotsync.records AS r WHERE NOT ${IS_FORMER}
  GROUP BY stream, status ORDER BY stream, status`;

export const countUnsettled = (db: Queries, filter: FailureFilter = {}) => queryValue<number>(db)`
  SELECT count(*)::int AS count FROM slotsync.records AS r WHERE ${NOT_IN_SYNC} AND ${isWanted(filter)}`;

export const listRecordedStreams = (db: Queries) => queryColumn<string>(db)`
  WITH RECURSIVE names AS (
    SELECT min(stream) AS stream FROM slotsync.records
    UNION ALL SELECT (SELECT min(r.stream) FROM slotsync.records AS r WHERE r.stream > names.stream)
    FROM names WHERE names.stream IS NOT NULL
  ) SELECT stream FROM names WHERE stream IS NOT NULL`;

/** Returns true if the service is assumed to hold an object of the stream. */
export const hasAccepted = (db: Queries, stream: string) => queryValue<boolean>(db)`
  SELECT EXISTS (SELECT FROM slotsync.records AS r
    WHERE stream = ${stream} AND ${WAS_SENT}) AS found`;

/** Counts the stream's records whose objects the service is assumed to hold, without retired records. */
export const countAccepted = (db: Queries, stream: string) => queryValue<number>(db)`
  SELECT count(*)::int AS count FROM slotsync.records AS r
  WHERE stream = ${stream} AND status <> 'retired' AND ${WAS_SENT}`;

/** Counts records whose objects will be read again. `latest` is the time of the last of these checks. */
export async function countInDoubt(db: Queries): Promise<{ count: number; latest: Date | null }> {
  return queryOne<{ count: number; latest: Date | null }>(db)`
    SELECT count(*)::int AS count, max(check_after) AS latest FROM slotsync.records AS r
    WHERE (in_doubt OR check_after IS NOT NULL) AND NOT ${IS_FORMER}`;
}
