// Runs that a test writes as rows: what their plans and their ends would have written.
import { query, type Queries } from '../../src/state/database.js';
import { replaceEarlierRuns } from '../../src/state/runs/replaced-runs.js';

/** Writes which earlier runs each of the stored runs replaces, in their order. */
export async function replaceInOrder(db: Queries): Promise<void> {
  const runs = await query<{ id: number }>(db)`
    SELECT id::float8 AS id FROM slotsync.runs WHERE status <> 'planning' ORDER BY runs.id`;
  for (const { id } of runs) await db.transaction((tx) => replaceEarlierRuns(tx, id));
}

/** A statement that makes every run of this status hold 11 operations of a stream. */
export const holdRetirements = (stream: string, status = 'held') => `
  INSERT INTO slotsync.holds (run_id, stream, operation, count, facts, approvable)
    SELECT id, '${stream}', 'retire', 11, '{"accepted": 40}', true FROM slotsync.runs WHERE status = '${status}';`;
