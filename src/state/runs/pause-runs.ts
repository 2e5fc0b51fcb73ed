// A paused run keeps its batches; none of them is sent until the run is resumed.
import { and, eq, isNotNull, isNull, notInArray, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { runs } from '../schema.js';

/**
 * Pauses or resumes an unfinished run; without an id all that the queue carries, incremental ones excepted. Returns those
 * that were changed.
 */
export async function setPaused(db: Queries, paused: boolean, id?: number): Promise<number[]> {
  const rows = await db
    .update(runs)
    .set({ pausedAt: paused ? sql`now()` : null })
    .where(
      and(
        isNull(runs.finishedAt),
        paused ? isNull(runs.pausedAt) : isNotNull(runs.pausedAt),
        id === undefined ? notInArray(runs.kind, ['incremental', 'reconcile']) : eq(runs.id, id),
      ),
    )
    .returning({ id: runs.id });
  return rows.map((run) => run.id).sort((a, b) => a - b);
}
