// What waits for an operator. A hold stands while its batches are held and no later run has planned the same again: then
// that run decides.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { REPAIRED } from '../drift/read-drift.js';
import type { Hold, LimitedOperation, RunKind } from '../schema.js';

export interface RunHold extends Hold {
  runId: number;
  kind: RunKind;
  stream: string;
  operation: LimitedOperation;
  /** The latest run that has planned the same again; null: the hold still stands. */
  plannedAnewBy: number | null;
  /** The unfinished run that an approval of it started; null: none. */
  approvedFor: number | null;
  /** The first of its keys. */
  firstKeys: string[];
}

const FIRST_KEYS = 5;

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
      later.id::float8 AS "plannedAnewBy", approved.id::float8 AS "approvedFor", held."firstKeys"
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
      LEFT JOIN LATERAL (
        SELECT f.id FROM slotsync.approvals AS a JOIN slotsync.runs AS f ON f.id = a.for_run
        WHERE a.run_id = r.id AND a.stream = s.stream AND a.operation = o.operation AND f.finished_at IS NULL
      ) AS approved ON true
      CROSS JOIN LATERAL (
        SELECT b.keys[1:${sql.raw(String(FIRST_KEYS))}] AS "firstKeys" FROM slotsync.batches AS b
        WHERE b.run_id = r.id AND b.stream = s.stream AND b.operation = o.operation AND b.state = 'held'
        ORDER BY b.id LIMIT 1
      ) AS held
    WHERE r.holds <> '{}'::jsonb AND ${which}
      AND (o.operation <> 'repair' OR EXISTS (
        SELECT FROM slotsync.drift AS d WHERE d.stream = s.stream AND d.${REPAIRED}))
    ORDER BY r.id DESC, s.stream, o.operation`;
}
