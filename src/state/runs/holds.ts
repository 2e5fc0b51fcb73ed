// What waits for an operator. A hold stands while its batches are held and no later run has planned the same again: then
// that run decides.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { REPAIRED } from '../drift/read-drift.js';
import type { Hold, Holds, LimitedOperation, RunKind, RunStatus } from '../schema.js';
import { revokeApprovals } from './approvals.js';
import { releaseHeldBatches } from './batches.js';
import { holdRejected } from './end-run.js';

export interface RunHold extends Hold {
  runId: number;
  kind: RunKind;
  stream: string;
  operation: LimitedOperation;
  /** The latest run that has planned the same again; null: the hold still stands. */
  plannedAnewBy: number | null;
}

/**
 * The holds of a run that were not rejected, or those of all runs that still stand. Single keys and parts of a stream
 * say nothing of the whole: only a run over at least the same replaces a hold. A repair is held only while anything drifts.
 */
export async function readHolds(db: Queries, runId?: number): Promise<RunHold[]> {
  const which = runId === undefined ? sql`later.id IS NULL` : sql`r.id = ${runId}::bigint`;
  return query<RunHold>(db)`
    SELECT r.id::float8 AS "runId", r.kind, s.stream, o.operation,
      (o.hold->>'count')::int AS count, o.hold->>'reason' AS reason, (o.hold->>'approvable')::boolean AS approvable,
      coalesce(o.hold->'samples', '[]') AS samples,
      later.id::float8 AS "plannedAnewBy"
    FROM slotsync.runs AS r,
      jsonb_each(r.holds) AS s(stream, holds),
      jsonb_each(s.holds) AS o(operation, hold)
      LEFT JOIN LATERAL (
        SELECT max(l.id) AS id FROM slotsync.runs AS l
        WHERE l.id > r.id AND l.plan ? s.stream AND l.status NOT IN ('planning', 'cancelled')
          AND CASE WHEN r.kind = 'verify' THEN l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range
            WHEN r.kind = 'backfill' OR r.range IS NOT NULL
            THEN l.range IS NULL AND l.kind <> 'incremental' OR l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range
            ELSE l.range IS NULL AND l.kind NOT IN ('incremental', 'backfill') END
      ) AS later ON true
    WHERE r.holds <> '{}'::jsonb AND ${which} AND EXISTS (
      SELECT FROM slotsync.batches AS b
      WHERE b.run_id = r.id AND b.stream = s.stream AND b.operation = o.operation AND b.state = 'held')
      AND (o.operation <> 'repair' OR EXISTS (
        SELECT FROM slotsync.drift AS d WHERE d.stream = s.stream AND d.${REPAIRED}))
    ORDER BY r.id DESC, s.stream, o.operation`;
}

/**
 * Gives up what a run holds of these streams and operations: its batches are cancelled, approvals of it that were not
 * used end, and a run that only waited is partial, because it sent less than it planned. What the mirror says does not
 * change by it: the next plan may hold it again.
 */
export async function rejectHolds(
  db: Queries,
  runId: number,
  rejected: readonly { stream: string; operation: LimitedOperation }[],
): Promise<void> {
  await db.transaction(async (tx) => {
    const [run] = await query<{ holds: Holds; status: RunStatus }>(tx)`
      SELECT holds, status FROM slotsync.runs WHERE id = ${runId}::bigint FOR NO KEY UPDATE`;
    if (!run) return;
    for (const { stream, operation } of rejected) {
      await releaseHeldBatches(tx, { runId, stream, operation }, 'cancelled');
      await revokeApprovals(tx, stream, operation);
      delete run.holds[stream]?.[operation];
    }
    const left = Object.entries(run.holds).filter(([, holds]) => Object.keys(holds).length > 0);
    await query(tx)`
      UPDATE slotsync.runs SET holds = ${JSON.stringify(Object.fromEntries(left))}::jsonb
      WHERE id = ${runId}::bigint`;
    if (run.status !== 'held' || left.length > 0) return;
    const { records } = await queryOne<{ records: number }>(tx)`
      SELECT coalesce(sum(cardinality(keys)), 0)::int AS records FROM slotsync.batches
      WHERE run_id = ${runId}::bigint AND state = 'cancelled'`;
    const { code, message } = holdRejected(records);
    await query(tx)`
      UPDATE slotsync.runs SET status = 'partial', error_code = ${code}, error_message = ${message}
      WHERE id = ${runId}::bigint`;
  });
}
