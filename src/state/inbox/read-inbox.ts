// Queries of the inbox and its triggers, for people and metrics.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryColumn, queryOne, queryValue, type Queries } from '../database.js';
import { isFrozen, lastFrozen } from '../freezes.js';
import { FUNCTION_COMMENT, functionName } from '../../streams/trigger-functions.js';

export interface InboxCounts {
  /** Number of keys that no run has taken. `later`: number of these keys that failed and are retried later. */
  waiting: number;
  later: number;
  /** Number of keys that a run has taken. */
  inFlight: number;
  /** Seconds since the oldest key was added, or since the last freeze of its stream ended. */
  oldestSeconds: number;
}

/** SQL for the rows `c` of a stream: time of the oldest row, or of the end of the last freeze if that is later. */
const OLDEST = sql`greatest(min(c.requested_at), ${lastFrozen(sql`c.stream`)})`;

/** Maximum number of unknown streams that are listed by name. Other programs may add any name. */
const MOST_UNKNOWN = 10;

/** Counts the keys in the inbox by stream. Unknown streams with few rows are summed in `others`. */
export async function readInbox(db: Queries, known: readonly string[]) {
  const rows = await query<InboxCounts & { stream: string | null; streams: number }>(db)`
    WITH by_stream AS (
      SELECT stream, stream = ${anyOf(known)} AS is_known, count(*) AS changes, ${OLDEST} AS oldest,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NULL) AS waiting,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NULL AND not_before > now()) AS later,
        count(DISTINCT local_key) FILTER (WHERE run_id IS NOT NULL) AS in_flight
      FROM slotsync.changes AS c GROUP BY stream
    ), named AS (
      SELECT *, CASE WHEN is_known OR ${MOST_UNKNOWN} >=
        row_number() OVER (PARTITION BY is_known ORDER BY changes DESC, stream) THEN stream END AS name FROM by_stream
    )
    SELECT name AS stream, count(*)::int AS streams, sum(waiting)::int AS waiting, sum(later)::int AS later,
      sum(in_flight)::int AS "inFlight", greatest(0, extract(epoch FROM now() - min(oldest)))::float8 AS "oldestSeconds"
    FROM named GROUP BY name`;
  const streams: (InboxCounts & { stream: string })[] = [];
  let others: (InboxCounts & { streams: number }) | null = null;
  for (const { stream, streams: count, ...counts } of rows) {
    if (stream === null) others = { streams: count, ...counts };
    else streams.push({ stream, ...counts });
  }
  return { streams: streams.toSorted((a, b) => (a.stream < b.stream ? -1 : 1)), others };
}

export const hasChanges = (db: Queries) => queryValue<boolean>(db)`
  SELECT EXISTS (SELECT FROM slotsync.changes) AS found`;

/** Returns the number of keys of a stream that wait for their first attempt. */
export const countWaiting = (db: Queries, stream: string) => queryValue<number>(db)`
  SELECT count(DISTINCT local_key)::int AS count FROM slotsync.changes
  WHERE stream = ${stream} AND run_id IS NULL AND not_before IS NULL`;

/** Reads the number of waiting rows, and the age of the oldest outside of freezes. Counting keys would take longer. */
export const readInboxAge = (db: Queries) => queryOne<{ changes: number; oldestSeconds: number }>(db)`
  SELECT coalesce(sum(changes), 0)::int AS changes,
    coalesce(greatest(0, extract(epoch FROM now() - min(oldest))), 0)::float8 AS "oldestSeconds"
  FROM (SELECT count(*) AS changes, CASE WHEN NOT ${isFrozen(sql`c.stream`)} THEN ${OLDEST} END AS oldest
    FROM slotsync.changes AS c WHERE run_id IS NULL GROUP BY stream) AS by_stream`;

/**
 * Returns streams whose trigger function exists, but is not called by three enabled triggers of its table. A table that
 * is created anew loses its triggers, and only the next sync finds its changes. PostgreSQL keeps the trigger functions,
 * which are in the same database as the state.
 */
export async function listLostTriggers(db: Queries, streams: readonly string[]): Promise<string[]> {
  const names = await queryColumn<string>(db)`
    SELECT p.proname::text FROM pg_catalog.pg_proc AS p
    WHERE p.proname = ${anyOf(streams.map(functionName))} AND p.prorettype = 'trigger'::regtype AND 3 > (
      SELECT count(*) FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
      WHERE t.tgfoid = p.oid AND t.tgenabled IN ('O', 'A') AND c.relnamespace = p.pronamespace
        AND pg_catalog.obj_description(p.oid, 'pg_proc') = ${FUNCTION_COMMENT} || c.relname)`;
  const lost = new Set(names);
  return streams.filter((stream) => lost.has(functionName(stream)));
}
