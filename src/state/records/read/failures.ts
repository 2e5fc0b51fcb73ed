// Lists and counts the records that are not in sync. The list of causes counts records that wait for another record at
// the record for which they wait.
import { sql, type SQL } from 'drizzle-orm';
import { IS_EXCEPTED } from '../../exceptions.js';
import type { RecordStatus, records } from '../../schema.js';
import { UNSETTLED, waitsFor } from '../record-state.js';
import { query, queryColumn, type Queries, type RowOf } from '../../database.js';
import { type RecordKey, recordName } from '../outcome-types.js';
import { arrayLiteral } from '../../../text/sql-text.js';

export interface FailureFilter {
  stream?: string | undefined;
  /** `held` matches no record. The table `held` has those keys. */
  status?: RecordStatus | 'held' | undefined;
  code?: string | undefined;
  /** Only records that have been in their status since this time or later. */
  since?: Date | undefined;
  /** Only records that this run changed last. */
  runId?: number | undefined;
}

/** SQL: time since when record `r` is in its status. For a failed record, time of the last attempt. */
export const SINCE = sql`coalesce(r.waits_since, r.updated_at)`;

/** SQL: record `r` failed and is in the inbox, for example after an operator's retry. */
const IS_SENT_AGAIN = sql`(r.status = 'failed' AND EXISTS (
  SELECT FROM slotsync.changes AS c WHERE c.stream = r.stream AND c.local_key = r.local_key))`;

/** SQL: record `r` is not in sync, and no operator has excepted it. */
export const NOT_IN_SYNC = sql`(r.${UNSETTLED} AND NOT ${IS_EXCEPTED})`;

export function isWanted({ stream, status, code, since, runId }: FailureFilter): SQL {
  const conditions = [
    stream !== undefined && sql`r.stream = ${stream}`,
    status !== undefined && sql`r.status = ${status}`,
    code !== undefined && sql`r.error_code = ${code}`,
    since !== undefined && sql`${SINCE} >= ${since.toISOString()}::text::timestamptz`,
    runId !== undefined && sql`r.run_id = ${runId}::bigint`,
  ].filter((condition) => condition !== false);
  return conditions.length === 0 ? sql`true` : sql`(${sql.join(conditions, sql` AND `)})`;
}

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
export const listFailures = (
  db: Queries,
  { limit, after, ...filter }: FailureFilter & { limit: number; after?: RecordKey | undefined },
) => query<Failure>(db)`
  SELECT r.stream, r.local_key AS "localKey", coalesce(r.external_id, r.row_external_id) AS "externalId", r.status, r.error_code AS "errorCode",
    r.error_message AS "errorMessage", r.attempts, r.run_id::float8 AS "runId", r.updated_at AS "updatedAt",
    ${SINCE} AS since, ${IS_SENT_AGAIN} AS "isInInbox",
    ${waitsFor('r')} AS "waitsFor"
  FROM slotsync.records AS r WHERE ${NOT_IN_SYNC} AND ${isWanted(filter)}
    ${after && sql`AND (r.stream, r.local_key) > (${after.stream}, ${after.localKey})`}
  ORDER BY r.stream, r.local_key LIMIT ${limit}`;

const WAITS = sql`r.waits_for IS NOT NULL`;

/** Records of one stream with the same status and error code, without records that wait for another record. */
export interface FailureGroup {
  stream: string;
  status: RecordStatus;
  code: string | null;
  records: number;
  matching: number;
  /** Number of failed records that are in the inbox, to be sent again. */
  inInbox: number;
  messages: number;
  attempts: number;
  since: Date;
  /** First keys of the group, beginning with keys that match the filter. */
  keys: string[];
}

export const countFailures = (db: Queries, filter: FailureFilter, most: number) => query<FailureGroup>(db)`
  WITH counted AS (
    SELECT r.stream, r.status, r.error_code AS code, count(*)::int AS records,
      count(*) FILTER (WHERE ${isWanted(filter)})::int AS matching,
      count(*) FILTER (WHERE ${IS_SENT_AGAIN})::int AS "inInbox",
      count(DISTINCT hashtextextended(r.error_message, 0))::int AS messages,
      max(r.attempts) AS attempts, min(${SINCE}) AS since
    FROM slotsync.records AS r WHERE ${NOT_IN_SYNC} AND NOT ${WAITS}
    GROUP BY r.stream, r.status, r.error_code
  )
  SELECT c.*, ARRAY(
    SELECT r.local_key FROM slotsync.records AS r
    WHERE r.stream = c.stream AND r.status = c.status AND ${NOT_IN_SYNC} AND NOT ${WAITS}
      AND r.error_code IS NOT DISTINCT FROM c.code
    ORDER BY ${isWanted(filter)} IS TRUE DESC, r.local_key LIMIT ${most}) AS keys
  FROM counted AS c`;

/** Record for which other records wait directly. The waiting records are counted for one stream. */
export interface WaitedFor extends RecordKey {
  /** Null if the state has no record of the key. */
  status: RecordStatus | null;
  code: string | null;
  /** Record for which this record itself waits. */
  waitsFor: RecordKey | null;
  waitingStream: string;
  waiting: number;
  /** Number of the waiting records that match the filter. */
  matching: number;
  since: Date;
}

export const listWaitedFor = (db: Queries, filter: FailureFilter) => query<WaitedFor>(db)`
  WITH waiting AS MATERIALIZED (
    SELECT r.waits_for, r.stream, count(*)::int AS records,
      count(*) FILTER (WHERE ${isWanted(filter)})::int AS matching, min(${SINCE}) AS since
    FROM slotsync.records AS r WHERE ${NOT_IN_SYNC} AND ${WAITS}
    GROUP BY r.waits_for, r.stream
  )
  SELECT n.stream, n.local_key AS "localKey", p.status, p.error_code AS code,
    ${waitsFor('p')} AS "waitsFor",
    w.stream AS "waitingStream", w.records AS waiting, w.matching, w.since
  FROM waiting AS w
    CROSS JOIN LATERAL (SELECT w.waits_for::jsonb->>0, w.waits_for::jsonb->>1) AS n(stream, local_key)
    -- Looked up one by one: a join would read every record.
    LEFT JOIN LATERAL (SELECT * FROM slotsync.records AS r
      WHERE r.stream = n.stream AND r.local_key = n.local_key LIMIT 1) AS p ON true`;

export const listFailureCodes = (db: Queries) => queryColumn<string>(db)`
  SELECT DISTINCT r.error_code AS code FROM slotsync.records AS r
  WHERE ${NOT_IN_SYNC} AND r.error_code IS NOT NULL ORDER BY 1`;

/** Returns the error messages of these records, by `recordName`. */
export async function readMessages(
  db: Queries,
  wanted: readonly RecordKey[],
): Promise<Map<string, string | null>> {
  if (wanted.length === 0) return new Map();
  const streams = arrayLiteral(wanted.map(({ stream }) => stream));
  const keys = arrayLiteral(wanted.map(({ localKey }) => localKey));
  const rows = await query<RecordKey & { message: string | null }>(db)`
    SELECT r.stream, r.local_key AS "localKey", r.error_message AS message
    FROM unnest(${streams}::text[], ${keys}::text[]) AS w(stream, local_key)
      JOIN slotsync.records AS r ON r.stream = w.stream AND r.local_key = w.local_key`;
  return new Map(rows.map((row) => [recordName(row), row.message]));
}
