// Runs that the nightly schedule started: how to recognize them, the latest run, and runs whose start or end no alert
// has reported yet.
import { sql } from 'drizzle-orm';
import { query, type Queries } from './database.js';
import type { AlertText, RunStatus } from './schema.js';

const IS_NIGHTLY = sql.raw(`r.kind = 'sync' AND r.started_by = 'schedule' AND coalesce(
  (SELECT n.streams = '{}' OR n.streams && r.streams FROM slotsync.schedules AS n WHERE n.name = 'nightly'),
  NOT EXISTS (SELECT FROM slotsync.schedules AS o WHERE o.name <> 'verify'))`);

/** Nightly run. `finishedAt` is null while the run is unfinished. */
export interface NightlyRun {
  id: number;
  streams: string[];
  finishedAt: Date | null;
}

export async function readLatestNightly(db: Queries): Promise<NightlyRun | undefined> {
  const [row] = await query<NightlyRun>(db)`
    SELECT r.id::float8 AS id, r.streams, r.finished_at AS "finishedAt" FROM slotsync.runs AS r
    WHERE ${IS_NIGHTLY} AND r.finished_at IS NOT NULL ORDER BY r.id DESC LIMIT 1`;
  return row;
}

/** Nightly run whose start or end was not reported yet. `alert` is the alert about its start, or null. */
interface UnnotedNightly extends NightlyRun {
  status: RunStatus;
  alert: { id: number; message: AlertText } | null;
}

/**
 * Returns nightly runs whose end was not reported. A run whose start was not reported either is included only if it is
 * the latest and ended less than a day ago.
 */
export async function listUnnotedNightly(db: Queries): Promise<UnnotedNightly[]> {
  return query<UnnotedNightly>(db)`
    SELECT r.id::float8 AS id, r.streams, r.status, r.finished_at AS "finishedAt",
      CASE WHEN a.id IS NOT NULL THEN jsonb_build_object('id', a.id, 'message', a.message) END AS alert
    FROM slotsync.runs AS r LEFT JOIN slotsync.alerts AS a ON a.condition = 'nightly_run' AND a.cause = 'nightly_run ' || r.id
    WHERE ${IS_NIGHTLY} AND a.recovered_at IS NULL AND (a.id IS NOT NULL OR (
      coalesce(r.finished_at, now()) > now() - interval '1 day'
      AND r.id = (SELECT max(r.id) FROM slotsync.runs AS r WHERE ${IS_NIGHTLY})))
    ORDER BY r.id`;
}
