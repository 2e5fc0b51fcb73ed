// The life of a run: planning → running → succeeded | partial | failed, or held where an operator must approve. A run takes
// a step when the last batch of a level is finished; when a process ends in between, the next sweep lets it take the step.
import { query, queryOne, type Queries } from '../database.js';
import type { Holds, PlanCounts } from '../schema.js';
import { useApprovals, type UsedApproval } from './approvals.js';
import { finishRun } from './end-run.js';
import { closeHolds, insertHolds } from './holds.js';
import { onlyReads, type Run } from './read-runs.js';
import { replaceEarlierRuns } from './replaced-runs.js';

/**
 * Marks the plan as complete; from here on the run is its batches, and `advanceRun` queues the first of them. Call it as
 * the run's planner.
 */
export async function finishPlanning(
  db: Queries,
  id: number,
  planned: { plan: Record<string, PlanCounts>; holds: Holds; approvals?: readonly UsedApproval[] },
): Promise<void> {
  await db.transaction(async (tx) => {
    const started = await query(tx)`
      UPDATE slotsync.runs SET status = 'running', started_at = now(), plan = ${JSON.stringify(planned.plan)}::jsonb
      WHERE id = ${id}::bigint AND status = 'planning'`;
    if (started.count === 0) return;
    await insertHolds(tx, id, planned.holds);
    await useApprovals(tx, planned.approvals ?? []);
    await replaceEarlierRuns(tx, id);
    // Approvals of streams that could not be planned end too.
    await closeHolds(tx, id, { isCancelled: false });
  });
}

/**
 * Lets a run take its next step, if it is time: queue the next level of batches when the one before is finished, or
 * end. Returns whether it queued batches. Call it when a finished batch is committed, so that of several that finish at
 * once the last sees all others; in their own transactions each would wait for the run's row, one after the other.
 */
export async function advanceRun(db: Queries, id: number): Promise<boolean> {
  const queued = await query(db)`
    SELECT FROM slotsync.batches WHERE run_id = ${id}::bigint AND state = 'queued' LIMIT 1`;
  return queued.length === 0 && db.transaction((tx) => takeStep(tx, id));
}

async function takeStep(tx: Queries, id: number): Promise<boolean> {
  const [run] = await query<Pick<Run, 'status' | 'kind' | 'range'>>(tx)`
    SELECT status, kind, range FROM slotsync.runs WHERE id = ${id}::bigint FOR NO KEY UPDATE`;
  // A run that only reads has no batches: the process that works it ends it.
  if (run?.status !== 'running' || onlyReads(run)) return false;
  const open = await queryOne<{ queued: number; next: number | null }>(tx)`
    SELECT count(*) FILTER (WHERE state = 'queued')::int AS queued, min(level) FILTER (WHERE state = 'planned') AS next
    FROM slotsync.batches WHERE run_id = ${id}::bigint AND state IN ('queued', 'planned')`;
  if (open.queued > 0) return false;
  if (open.next === null) {
    await finishRun(tx, id);
    return false;
  }
  await query(tx)`
    UPDATE slotsync.batches SET state = 'queued'
    WHERE run_id = ${id}::bigint AND state = 'planned' AND level = ${open.next}`;
  return true;
}
