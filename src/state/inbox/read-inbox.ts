// The content of the inbox, for people and metrics.
import { query, queryOne, type Queries } from '../database.js';

/** A stream's keys in the inbox. */
export interface InboxOfStream {
  stream: string;
  /** Keys that wait, and of them those that failed and are tried again later. */
  waiting: number;
  later: number;
  /** Keys that a run has taken. */
  inFlight: number;
  /** Since the oldest of all these was added, in seconds. */
  oldestSeconds: number;
}

/** Streams that are read: those with most rows. Another program may add any name. */
const MOST_STREAMS = 500;

export async function readInbox(db: Queries): Promise<InboxOfStream[]> {
  const streams = await query<InboxOfStream>(db)`
    SELECT stream,
      count(DISTINCT local_key) FILTER (WHERE run_id IS NULL)::int AS waiting,
      count(DISTINCT local_key) FILTER (WHERE run_id IS NULL AND not_before > now())::int AS later,
      count(DISTINCT local_key) FILTER (WHERE run_id IS NOT NULL)::int AS "inFlight",
      greatest(0, extract(epoch FROM now() - min(requested_at)))::float8 AS "oldestSeconds"
    FROM slotsync.changes GROUP BY stream ORDER BY count(*) DESC, stream LIMIT ${MOST_STREAMS}`;
  return streams.toSorted((a, b) => (a.stream < b.stream ? -1 : 1));
}

/** Keys of a stream that wait for their first attempt. */
export async function countWaiting(db: Queries, stream: string): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(DISTINCT local_key)::int AS count FROM slotsync.changes
    WHERE stream = ${stream} AND run_id IS NULL AND not_before IS NULL`;
  return count;
}

/** Changes that no run has taken, and how long the oldest of them has waited. Counting keys takes longer. */
export const readInboxAge = (db: Queries) => queryOne<{ changes: number; oldestSeconds: number }>(db)`
  SELECT count(*)::int AS changes,
    coalesce(greatest(0, extract(epoch FROM now() - min(requested_at))), 0)::float8 AS "oldestSeconds"
  FROM slotsync.changes WHERE run_id IS NULL`;
