// What waits for a person. A hold stands while its batches are held and no later run has planned the same anew: then
// that run's word counts.
import { and, eq, sql } from 'drizzle-orm';
import { revokeApprovals } from './approvals.js';
import { queryState, type Queries } from '../database.js';
import { batches, runs, type LimitedOperation, type Hold, type RunKind } from '../schema.js';

export interface RunHold extends Hold {
  runId: number;
  kind: RunKind;
  stream: string;
  operation: LimitedOperation;
  /** The latest run that has planned the same anew; null: the hold still stands. */
  plannedAnewBy: number | null;
}

/**
 * The holds of a run that were not rejected, or those of all runs that still stand. Single keys and parts of a stream
 * say nothing of the whole: only a run over at least the same takes a hold's place.
 */
export async function readHolds(db: Queries, runId?: number): Promise<RunHold[]> {
  const which = runId === undefined ? sql`later.id IS NULL` : sql`r.id = ${runId}::bigint`;
  const rows = await queryState(() =>
    db.execute<Record<string, never>>(sql`
      SELECT r.id::float8 AS "runId", r.kind, s.stream, o.operation,
        (o.hold->>'count')::int AS count, o.hold->>'reason' AS reason, (o.hold->>'approvable')::boolean AS approvable,
        later.id::float8 AS "plannedAnewBy"
      FROM slotsync.runs AS r,
        jsonb_each(r.holds) AS s(stream, holds),
        jsonb_each(s.holds) AS o(operation, hold)
        LEFT JOIN LATERAL (
          SELECT max(l.id) AS id FROM slotsync.runs AS l
          WHERE l.id > r.id AND l.plan ? s.stream AND l.status NOT IN ('planning', 'cancelled')
            AND CASE WHEN r.kind = 'backfill' OR r.range IS NOT NULL
              THEN l.range IS NULL AND l.kind <> 'incremental' OR l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range
              ELSE l.range IS NULL AND l.kind NOT IN ('incremental', 'backfill') END
        ) AS later ON true
      WHERE r.holds <> '{}'::jsonb AND ${which} AND EXISTS (
        SELECT FROM slotsync.batches AS b
        WHERE b.run_id = r.id AND b.stream = s.stream AND b.operation = o.operation AND b.state = 'held')
      ORDER BY r.id DESC, s.stream, o.operation`),
  );
  return rows as unknown as RunHold[];
}

/**
 * Gives up what a run holds of a stream and operation: its batches are cancelled, approvals of it that were not used end,
 * and a run that only waited has succeeded. What is true of the mirror stays true: the next plan may hold it again.
 */
export async function rejectHolds(
  db: Queries,
  runId: number,
  holds: readonly { stream: string; operation: LimitedOperation }[],
): Promise<void> {
  await queryState(() =>
    db.transaction(async (tx) => {
      await tx.execute(sql`SELECT FROM slotsync.runs WHERE id = ${runId}::bigint FOR UPDATE`);
      for (const { stream, operation } of holds) {
        await tx
          .update(batches)
          .set({ state: 'cancelled', finishedAt: sql`now()` })
          .where(
            and(
              eq(batches.runId, runId),
              eq(batches.stream, stream),
              eq(batches.operation, operation),
              eq(batches.state, 'held'),
            ),
          );
        await revokeApprovals(tx, stream, operation);
        await tx
          .update(runs)
          .set({ holds: sql`${runs.holds} #- ARRAY[${stream}::text, ${operation}::text]` })
          .where(eq(runs.id, runId));
      }
      await tx.execute(sql`
        UPDATE slotsync.runs AS r SET
          holds = coalesce((SELECT jsonb_object_agg(key, value) FROM jsonb_each(r.holds) WHERE value <> '{}'::jsonb), '{}'::jsonb)
        WHERE id = ${runId}::bigint`);
      await tx
        .update(runs)
        .set({ status: 'succeeded' })
        .where(and(eq(runs.id, runId), eq(runs.status, 'held'), sql`${runs.holds} = '{}'::jsonb`));
    }),
  );
}
