// Life of a run: planning → running → succeeded, partial or failed, or held if gates hold records. A run advances when
// the last batch of a level has ended. If a process dies in between, the next sweep advances the run.
import { query, queryColumn, type Queries } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { Holds, PlanCounts } from '../schema.js';
import { hasQueuedBatches, markNextLevelQueued, type QueuedBatch } from './batches.js';
import { finishRun, readEnds } from './end-run.js';
import { LIMIT_IDLE, PlannerReplaced, type Planner } from './claim-planning.js';
import { onlyReads, type Run, ONLY_READS } from './read-runs.js';
import { planAgain } from './send-again.js';
import { sql } from 'drizzle-orm';

/**
 * Ends the planning of a run, and advances the run. Returns the batches that should get jobs. `writeRest` writes the
 * rest of the plan in the same transaction, and may still correct the counts. Throws PlannerReplaced, and writes
 * nothing, if another process plans the run.
 */
export async function finishPlanning(
  db: Queries,
  { runId, token }: Planner,
  { plan, holds }: { plan: Record<string, PlanCounts>; holds: Holds },
  writeRest: (tx: Queries) => Promise<void> = async () => undefined,
): Promise<QueuedBatch[]> {
  return db.transaction(async (tx) => {
    // Sends two statements without a wait in between. PlannerReplaced takes precedence over an error of `writeRest`.
    const written = JSON.stringify([plan, holds]);
    const [taken, rest] = await Promise.allSettled([
      query(tx)`
        UPDATE slotsync.runs SET status = 'running', started_at = now(), plan = ${JSON.stringify(plan)}::jsonb,
          holds = ${toStorableJson(holds)}::jsonb
        WHERE id = ${runId}::bigint AND planner = ${token} AND status = 'planning' RETURNING ${LIMIT_IDLE}`,
      writeRest(tx),
    ]);
    if (taken.status === 'rejected') throw taken.reason;
    if (taken.value.length === 0) throw new PlannerReplaced();
    if (rest.status === 'rejected') throw rest.reason;
    if (JSON.stringify([plan, holds]) !== written)
      await query(tx)`
        UPDATE slotsync.runs SET plan = ${JSON.stringify(plan)}::jsonb, holds = ${toStorableJson(holds)}::jsonb
        WHERE id = ${runId}::bigint`;
    const hasBatches = Object.values(plan).some(({ inBatches }) => inBatches !== 0);
    const queued = await (hasBatches ? markNextLevelQueued(tx, runId) : takeStep(tx, runId));
    return queued.length > 0 || !hasBatches ? queued : takeStep(tx, runId);
  });
}

/**
 * Lets a run take its next step, if it is time: mark the next level of batches as `queued` when the one before is finished, or
 * end. Returns the batches that should have jobs now. Call it when a finished batch is committed, so that of several that
 * finish at once the last sees all others. Unless its batches are few, it is looked first whether any is under way: in their
 * own transactions each that finishes would wait for the run's row.
 */
export async function advanceRun(
  db: Queries,
  id: number,
  { hasFewBatches = false } = {},
): Promise<QueuedBatch[]> {
  if (!hasFewBatches && (await hasQueuedBatches(db, id))) return [];
  return db.transaction((tx) => takeStep(tx, id));
}

async function takeStep(tx: Queries, id: number): Promise<QueuedBatch[]> {
  const [[run], ends] = await Promise.all([
    query<Pick<Run, 'status' | 'kind'>>(tx)`
      SELECT status, kind FROM slotsync.runs WHERE id = ${id}::bigint FOR NO KEY UPDATE`,
    readEnds(tx, id),
  ]);
  // A run that only reads has no batches. The process that works such a run also ends it.
  if (run?.status !== 'running' || onlyReads(run) || ends.isOpen) return [];
  const isMore = ends.hasDeferred && (await planAgain(tx, id));
  if (isMore || ends.isWaiting) return markNextLevelQueued(tx, id);
  await finishRun(tx, id, { ends });
  return [];
}

/**
 * Pauses or resumes a run. Without `id`: all runs with batches, except incremental runs. Returns the numbers of the
 * changed runs. Batches of a paused run are not sent until the run is resumed.
 */
export async function setPaused(db: Queries, paused: boolean, id?: number): Promise<number[]> {
  const isMeant =
    id === undefined ? sql`kind <> 'incremental' AND NOT ${ONLY_READS}` : sql`id = ${id}::bigint`;
  const ids = await queryColumn<number>(db)`
    UPDATE slotsync.runs SET paused_at = CASE WHEN ${paused} THEN now() END
    WHERE finished_at IS NULL AND (paused_at IS NULL) = ${paused} AND ${isMeant} RETURNING id::float8 AS id`;
  return ids.sort((a, b) => a - b);
}
