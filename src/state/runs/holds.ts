// Holds: operations of a run that wait for an operator. A hold stands while it is open or approved: until it is rejected, or a later run has
// planned the same again and decides itself.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { REPAIRED } from '../drift/read-drift.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { Hold, HoldOperation, Holds, HoldState, RunKind } from '../schema.js';

export interface RunHold extends Hold {
  runId: number;
  kind: RunKind;
  requestedAt: Date;
  stream: string;
  operation: HoldOperation;
  state: HoldState;
  /** The later run that has planned the same again; null: none. */
  plannedAnewBy: number | null;
  /** The unfinished run that an approval of it started; null: none. */
  approvedFor: number | null;
  /** The run that used an approval of it; null: none did. */
  usedBy: number | null;
  /** The first of its keys. */
  firstKeys: string[];
}

const FIRST_KEYS = 5;

/**
 * The holds of a run that were not rejected, or those of all runs that still stand. A repair is held only while anything
 * drifts.
 */
export async function readHolds(db: Queries, runId?: number): Promise<RunHold[]> {
  const isAsked =
    runId === undefined
      ? sql`h.state IN ('open', 'approved')`
      : sql`h.run_id = ${runId}::bigint AND h.state <> 'rejected'`;
  return query<RunHold>(db)`
    SELECT h.run_id::float8 AS "runId", r.kind, r.requested_at AS "requestedAt", h.stream, h.operation, h.state, h.count, h.facts, h.approvable, h.samples,
      h.replaced_by::float8 AS "plannedAnewBy",
      CASE WHEN h.state = 'approved' THEN h.for_run END::float8 AS "approvedFor",
      CASE WHEN h.state = 'used' THEN h.for_run END::float8 AS "usedBy", held."firstKeys"
    FROM slotsync.holds AS h JOIN slotsync.runs AS r ON r.id = h.run_id
      CROSS JOIN LATERAL (
        SELECT b.keys[1:${sql.raw(String(FIRST_KEYS))}] AS "firstKeys" FROM slotsync.batches AS b
        WHERE b.run_id = h.run_id AND b.stream = h.stream AND b.operation = h.operation AND b.state = 'held'
        ORDER BY b.id LIMIT 1
      ) AS held
    WHERE ${isAsked}
      AND (h.operation <> 'repair' OR EXISTS (
        SELECT FROM slotsync.drift AS d WHERE d.stream = h.stream AND d.${REPAIRED}))
    ORDER BY h.run_id DESC, h.stream, h.operation`;
}

/** The holds of a row of `runs` that nobody rejected, per stream and operation. */
export const HOLDS_OF_RUN = sql<Holds>`coalesce((
  SELECT jsonb_object_agg(s.stream, s.holds) FROM (
    SELECT h.stream, jsonb_object_agg(h.operation, jsonb_build_object('count', h.count, 'facts', h.facts,
      'approvable', h.approvable, 'samples', h.samples)) AS holds
    FROM slotsync.holds AS h WHERE h.run_id = runs.id AND h.state <> 'rejected' GROUP BY h.stream) AS s), '{}')`;

/** Writes what a plan holds. */
export async function insertHolds(tx: Queries, runId: number, planned: Holds): Promise<void> {
  if (Object.keys(planned).length === 0) return;
  await query(tx)`
    INSERT INTO slotsync.holds (run_id, stream, operation, count, facts, approvable, samples)
    SELECT ${runId}::bigint, s.key, o.key, (o.value->>'count')::int, o.value->'facts', (o.value->>'approvable')::boolean,
      coalesce(o.value->'samples', '[]')
    FROM jsonb_each(${toStorableJson(planned)}::jsonb) AS s CROSS JOIN LATERAL jsonb_each(s.value) AS o`;
}

/**
 * When a run ends, its approval ends with it where its plan did not use it, and the hold is open again. What a cancelled run
 * held is not answered any more, and what it had replaced stands again.
 */
export async function closeHolds(
  tx: Queries,
  runId: number,
  { isCancelled }: { isCancelled: boolean },
): Promise<void> {
  await query(tx)`
    UPDATE slotsync.holds SET state = 'open' WHERE for_run = ${runId}::bigint AND state = 'approved'`;
  if (!isCancelled) return;
  await query(tx)`
    UPDATE slotsync.holds SET state = 'expired' WHERE run_id = ${runId}::bigint AND state = 'open'`;
  await query(tx)`
    UPDATE slotsync.holds SET state = 'open', replaced_by = NULL WHERE replaced_by = ${runId}::bigint`;
}
