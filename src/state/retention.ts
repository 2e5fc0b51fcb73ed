// How long finished runs and the history of bookings and of drift are kept. Records are kept for good.
import { sql } from 'drizzle-orm';
import { query, queryTogether, type Queries } from './database.js';
import { ENDING_EXPIRED } from './exceptions.js';
import { KEEP_PROCESSES_DAYS } from './processes.js';

const KEEP_RUNS_DAYS = 365;
/** There may be as many incremental runs as changes, and workers reconcile every few minutes. */
const KEEP_FREQUENT_RUNS_DAYS = 14;
/** The same where there are very many: enough for a report of a long weekend. */
const KEEP_MANY_RUNS_DAYS = 4;
/** So many latest runs are not very many. */
const NOT_MANY_RUNS = 10_000;
const KEEP_BATCHES_DAYS = 14;
const KEEP_BOOKINGS_DAYS = 365;
const KEEP_DRIFT_DAYS = 365;
/** Retention of requests by the second. */
const KEEP_SECONDS_DAYS = 7;

/** Retention of what operators did. */
const KEEP_ACTIONS_DAYS = 3 * 365;
/** Retention of alerts, after they were over. */
const KEEP_ALERTS_DAYS = 90;

const daysAgo = (days: number) => sql`now() - make_interval(days => ${days})`;

/** Deletes runs and batches that are older than they are kept. */
export async function pruneRuns(db: Queries): Promise<void> {
  await queryTogether(db, [
    sql`DELETE FROM slotsync.runs AS r WHERE finished_at < ${daysAgo(KEEP_RUNS_DAYS)}
      OR (kind IN ('incremental', 'reconcile') AND finished_at < ${daysAgo(KEEP_FREQUENT_RUNS_DAYS)})
      OR (id <= (SELECT max(id) FROM slotsync.runs) - ${NOT_MANY_RUNS}::bigint
        AND finished_at < ${daysAgo(KEEP_MANY_RUNS_DAYS)} AND kind = 'incremental' AND status = 'succeeded')`,
    sql`DELETE FROM slotsync.batches AS b USING slotsync.runs AS r
      WHERE r.id = b.run_id AND r.finished_at < ${daysAgo(KEEP_BATCHES_DAYS)}`,
    sql`DELETE FROM slotsync.freezes WHERE ends_at < ${daysAgo(KEEP_ALERTS_DAYS)} AND NOT is_declared`,
    sql`WITH ended AS (${ENDING_EXPIRED})
      INSERT INTO slotsync.changes (stream, local_key) SELECT stream, local_key FROM ended`,
    sql`DELETE FROM slotsync.sent WHERE hour < ${daysAgo(2)}`,
    // Claims on objects that a process left behind: nothing it sent then can still be carried out.
    sql`DELETE FROM slotsync.object_claims WHERE claimed_until < ${daysAgo(1)}`,
  ]);
}

/** Deletes what processes told of themselves, what operators did, and alerts, when it is older than it is kept. */
export async function pruneNotes(db: Queries): Promise<void> {
  await queryTogether(db, [
    sql`DELETE FROM slotsync.processes WHERE seen_at < ${daysAgo(KEEP_PROCESSES_DAYS)}`,
    sql`DELETE FROM slotsync.alerts WHERE recovered_at < ${daysAgo(KEEP_ALERTS_DAYS)}`,
    sql`DELETE FROM slotsync.actions WHERE at < ${daysAgo(KEEP_ACTIONS_DAYS)}`,
    sql`DELETE FROM slotsync.request_seconds WHERE second < ${daysAgo(KEEP_SECONDS_DAYS)}`,
  ]);
}

/** Deletes the history of drift when it is older than it is kept. */
export async function pruneDrift(db: Queries): Promise<void> {
  await query(db)`DELETE FROM slotsync.drift_events WHERE at < ${daysAgo(KEEP_DRIFT_DAYS)}`;
}

/** Deletes the history of bookings, and bookings and cancellations that ended, when they are older than they are kept. */
export async function pruneBookings(db: Queries): Promise<void> {
  const before = daysAgo(KEEP_BOOKINGS_DAYS);
  await query(db)`DELETE FROM slotsync.reservation_events WHERE at < ${before}`;
  await query(db)`
    DELETE FROM slotsync.reservations WHERE greatest(end_here, end_there) < ${before} AND seen_at < ${before}`;
  await query(db)`DELETE FROM slotsync.cancellations WHERE "end" < ${before} AND seen_at < ${before}`;
}
