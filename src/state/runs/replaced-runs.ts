// A run says of a stream that something is held, failed or unsent. That counts until a later run replaces it. This file
// alone decides which run replaces which, and writes it once: everybody else reads it.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';

/** Incremental runs that are looked back over, because there may be as many as changes. */
export const INCREMENTAL_LOOKED_AT = 2000;

/** Whether a reconcile reads a window, which reaches into the future, and not only what was changed. */
const isOfWindow = (run: string) =>
  sql.raw(`((${run}.range->>'to')::timestamptz > ${run}.requested_at + interval '1 hour')`);

/** Whether a run `l` does not send what a forced run `r` was to send again: it leaves out what is as it was accepted. */
export const LEAVES_FORCED = sql`(coalesce((r.range->>'force')::boolean, false) AND l.range IS DISTINCT FROM r.range)`;

const HAS_SAME_RANGE = sql`l.kind = r.kind AND l.range IS NOT DISTINCT FROM r.range`;

/**
 * Whether a later run `l` covers a run `r`: it reads at least the same part of a stream. Single keys and parts of a
 * stream say nothing of the whole. An incremental run, which looks at single keys, is replaced by the next one only when it
 * failed as a whole. No two reconciles read the same period: one of a window replaces every earlier one, and one of
 * changes those of changes.
 */
const COVERS = sql`CASE r.kind
  WHEN 'reconcile' THEN l.kind = r.kind
    AND (${isOfWindow('l')} OR ${isOfWindow('l')} IS NOT DISTINCT FROM ${isOfWindow('r')})
  WHEN 'verify' THEN l.kind = r.kind AND (l.range IS NULL OR ${HAS_SAME_RANGE})
  WHEN 'repair' THEN l.kind = 'verify' AND l.range IS NULL OR ${HAS_SAME_RANGE}
  ELSE l.range IS NULL AND l.kind IN ('sync', 'backfill') OR CASE r.kind
    WHEN 'incremental' THEN l.kind = r.kind AND r.status = 'failed'
      AND r.id > l.id - ${sql.raw(String(INCREMENTAL_LOOKED_AT))}
    ELSE ${HAS_SAME_RANGE} END
  END`;

/** The run goes on after refusals, as an operator has approved: its plan cannot know how many there will be. */
const GOES_ON = sql.raw(
  "(h.operation = 'refused' AND h.state = 'approved' AND h.for_run = c.later AND h.expires_at > now())",
);

/** Bookings, of which a reconcile speaks, are of the stream without a name. */
const streamsOf = (run: string) => sql.raw(`coalesce(nullif(${run}.streams, '{}'), '{""}')`);

/**
 * Writes which earlier runs, and which of their holds, this one replaces. Call it in the transaction that ends its planning;
 * for a run that has no plan in the one that ends it, unless it was cancelled. A run that was replaced by one that failed or
 * was cancelled may be replaced again. Holds are replaced by a plan alone; a backfill retires nothing, so it leaves held
 * retirements as they are, and what a freeze held of a forced run is left to one that sends it.
 */
export async function replaceEarlierRuns(tx: Queries, id: number): Promise<void> {
  await query(tx)`
    WITH later AS (
      SELECT id, kind, range, requested_at, plan <> '{}'::jsonb AS is_planned, CASE
          WHEN plan <> '{}'::jsonb THEN ARRAY(SELECT jsonb_object_keys(plan)) ELSE ${streamsOf('runs')} END AS streams
      FROM slotsync.runs WHERE id = ${id}::bigint
    ), covered AS (
      SELECT r.id, s.stream, l.id AS later, l.kind, l.is_planned, ${LEAVES_FORCED} AS leaves_forced
      FROM later AS l
        JOIN slotsync.runs AS r ON r.id < l.id AND r.status <> 'succeeded' AND ${COVERS}
        CROSS JOIN LATERAL unnest(${streamsOf('r')}) AS s(stream)
      WHERE s.stream = ANY (l.streams)
    ), noted AS (
      INSERT INTO slotsync.replaced_runs AS p (run_id, stream, replaced_by)
      SELECT id, stream, later FROM covered
      ON CONFLICT (run_id, stream) DO UPDATE SET replaced_by = excluded.replaced_by
        WHERE EXISTS (
          SELECT FROM slotsync.runs AS f WHERE f.id = p.replaced_by AND f.status IN ('failed', 'cancelled'))
    )
    UPDATE slotsync.holds AS h SET replaced_by = c.later,
      same_keys = CASE WHEN ${GOES_ON} THEN coalesce(h.same_keys, false) ELSE h.same_keys END, state = CASE
        WHEN h.state = 'open' THEN 'replaced'
        WHEN h.same_keys IS NULL AND NOT ${GOES_ON} THEN 'expired' ELSE 'used' END
    FROM covered AS c
    WHERE h.run_id = c.id AND h.stream = c.stream AND h.state IN ('open', 'approved')
      AND c.is_planned AND c.kind <> 'incremental' AND NOT (h.operation = 'frozen' AND c.leaves_forced)
      AND (c.kind <> 'backfill' OR h.operation <> 'retire')`;
}
