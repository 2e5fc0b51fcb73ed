// A paused run keeps its batches; none of them is sent until the run is resumed.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { ONLY_READS } from './read-runs.js';

/**
 * Pauses or resumes an unfinished run; without an id all that the queue carries, incremental ones excepted. Returns those
 * that were changed.
 */
export async function setPaused(db: Queries, paused: boolean, id?: number): Promise<number[]> {
  const isMeant =
    id === undefined ? sql`kind <> 'incremental' AND NOT ${ONLY_READS}` : sql`id = ${id}::bigint`;
  const rows = await query<{ id: number }>(db)`
    UPDATE slotsync.runs SET paused_at = CASE WHEN ${paused} THEN now() END
    WHERE finished_at IS NULL AND (paused_at IS NULL) = ${paused} AND ${isMeant} RETURNING id::float8 AS id`;
  return rows.map((run) => run.id).sort((a, b) => a - b);
}
