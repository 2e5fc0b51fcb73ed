// The life of a run: planning → running → succeeded | partial | failed, or held where an operator must approve. A run takes
// a step when the last batch of a level is finished; when a process ends in between, the next sweep lets it take the step.
import { and, eq, inArray, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { batches, runs, type Holds, type PlanCounts } from '../schema.js';
import { useApprovals } from './approvals.js';
import { finishRun } from './end-run.js';

/**
 * Marks the plan as complete; from here on the run is its batches, and `advanceRun` queues the first of them. Throws
 * SlotsyncError `approval_withdrawn` when the plan relies on an approval that is not valid any more.
 */
export async function finishPlanning(
  db: Queries,
  id: number,
  planned: { plan: Record<string, PlanCounts>; holds: Holds; approvals?: readonly number[] },
): Promise<void> {
  await db.transaction(async (tx) => {
    const [started] = await tx
      .update(runs)
      .set({ status: 'running', startedAt: new Date(), plan: planned.plan, holds: planned.holds })
      .where(and(eq(runs.id, id), eq(runs.status, 'planning')))
      .returning({ id: runs.id });
    if (started) await useApprovals(tx, planned.approvals ?? [], id);
  });
}

/**
 * Lets a run take its next step, if it is time: queue the next level of batches when the one before is finished, or
 * end. Returns whether it queued batches. Call it when a finished batch is committed, so that of several that finish at
 * once the last sees all others; in their own transactions each would wait for the run's row, one after the other.
 */
export async function advanceRun(db: Queries, id: number): Promise<boolean> {
  const queued = await db
    .select({ id: batches.id })
    .from(batches)
    .where(and(eq(batches.runId, id), eq(batches.state, 'queued')))
    .limit(1);
  return queued.length === 0 && db.transaction((tx) => takeStep(tx, id));
}

async function takeStep(tx: Queries, id: number): Promise<boolean> {
  const [run] = await tx.select().from(runs).where(eq(runs.id, id)).for('update');
  // A reconcile has no batches: the process that works it ends it.
  if (run?.status !== 'running' || run.kind === 'reconcile') return false;
  const [open] = await tx
    .select({
      queued: sql<number>`count(*) FILTER (WHERE state = 'queued')::int`,
      next: sql<number | null>`min(level) FILTER (WHERE state = 'planned')`,
    })
    .from(batches)
    .where(and(eq(batches.runId, id), inArray(batches.state, ['queued', 'planned'])));
  if (!open || open.queued > 0) return false;
  if (open.next === null) {
    await finishRun(tx, id);
    return false;
  }
  await tx
    .update(batches)
    .set({ state: 'queued' })
    .where(and(eq(batches.runId, id), eq(batches.state, 'planned'), eq(batches.level, open.next)));
  return true;
}
