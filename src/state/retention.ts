// Retention periods of finished runs and of histories. Records are kept indefinitely.
import { sql } from 'drizzle-orm';
import { query, queryTogether, type Queries } from './database.js';
import { ENDING_EXPIRED } from './exceptions.js';
import { KEEP_PROCESSES_DAYS } from './processes.js';

const KEEP_RUNS_DAYS = 365;
/** Retention of incremental and reconcile runs, which may start every few minutes. */
const KEEP_FREQUENT_RUNS_DAYS = 14;
/** Retention of successful incremental runs older than the latest 10 000 runs. Covers a report of a long weekend. */
const KEEP_MANY_RUNS_DAYS = 4;
/** Number of latest runs to which the shorter retention does not apply. */
const NOT_MANY_RUNS = 10_000;
const KEEP_BATCHES_DAYS = 14;
const KEEP_BOOKINGS_DAYS = 365;
const KEEP_DRIFT_DAYS = 365;
const KEEP_SECONDS_DAYS = 7;

const KEEP_ACTIONS_DAYS = 3 * 365;
/** Retention of alerts after their recovery. */
const KEEP_ALERTS_DAYS = 90;

const daysAgo = (days: number) => sql`now() - make_interval(days => ${days})`;

/** Deletes expired runs, batches, freezes, exceptions, counts and claims. */
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
    // Claims that a dead process left. The service can no longer execute a write from that time.
    sql`DELETE FROM slotsync.object_claims WHERE claimed_until < ${daysAgo(1)}`,
  ]);
}

/** Deletes expired rows of processes, alerts, actions and request counts. */
export async function pruneNotes(db: Queries): Promise<void> {
  await queryTogether(db, [
    sql`DELETE FROM slotsync.processes WHERE seen_at < ${daysAgo(KEEP_PROCESSES_DAYS)}`,
    sql`DELETE FROM slotsync.alerts WHERE recovered_at < ${daysAgo(KEEP_ALERTS_DAYS)}`,
    sql`DELETE FROM slotsync.actions WHERE at < ${daysAgo(KEEP_ACTIONS_DAYS)}`,
    sql`DELETE FROM slotsync.request_seconds WHERE second < ${daysAgo(KEEP_SECONDS_DAYS)}`,
  ]);
}

export async function pruneDrift(db: Queries): Promise<void> {
  await query(db)`DELETE FROM slotsync.drift_events WHERE at < ${daysAgo(KEEP_DRIFT_DAYS)}`;
}

/** Deletes the expired history of bookings, and bookings and cancellations that ended long ago. */
export async function pruneBookings(db: Queries): Promise<void> {
  const before = daysAgo(KEEP_BOOKINGS_DAYS);
  await query(db)`DELETE FROM slotsync.reservation_events WHERE at < ${before}`;
  await query(db)`
    DELETE FROM slotsync.reservations WHERE greatest(end_here, end_there) < ${before} AND seen_at < ${before}`;
  await query(db)`DELETE FROM slotsync.cancellations WHERE "end" < ${before} AND seen_at < ${before}`;
}
