// The runs that the nightly schedule started.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';

/** A row `r` of `runs` is a nightly run. */
export const IS_NIGHTLY = sql.raw(`r.kind = 'sync' AND r.started_by = 'schedule' AND coalesce(
  (SELECT n.streams = '{}' OR n.streams && r.streams FROM slotsync.schedules AS n WHERE n.name = 'nightly'),
  NOT EXISTS (SELECT FROM slotsync.schedules AS o WHERE o.name <> 'verify'))`);

/** A nightly run. `finishedAt`: null while it is unfinished. */
export interface NightlyRun {
  id: number;
  streams: string[];
  finishedAt: Date | null;
}

/** The latest nightly run that has ended; undefined: none has. */
export async function readLatestNightly(db: Queries): Promise<NightlyRun | undefined> {
  const [row] = await query<NightlyRun>(db)`
    SELECT r.id::float8 AS id, r.streams, r.finished_at AS "finishedAt" FROM slotsync.runs AS r
    WHERE ${IS_NIGHTLY} AND r.finished_at IS NOT NULL ORDER BY r.id DESC LIMIT 1`;
  return row;
}
