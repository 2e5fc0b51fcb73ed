// Runs that ended badly and that no later run has replaced.
import { query, type Queries } from '../database.js';
import { UNSETTLED } from '../records/count-records.js';
import type { RunKind } from '../schema.js';

/** One stream of a run that failed or is partial; a reconcile has none. */
export interface EndedBadly {
  runId: number;
  kind: RunKind;
  status: 'failed' | 'partial';
  errorCode: string | null;
  stream: string | null;
  /** Its records that the run left failed or dead. */
  failed: number;
  dead: number;
}

/** Incremental runs that are looked back over, because there may be as many as changes. */
const INCREMENTAL_LOOKED_AT = 2000;

/**
 * By run and stream, the latest of each kind. A later run over the same part of the stream replaces what an earlier one says
 * of it, unless it failed as a whole. Incremental runs look at single keys: what one left failed or dead stands until a run
 * over the whole stream, or until no record of the stream is so. No two reconciles read the same period: one of a window,
 * which reaches into the future, replaces every earlier one, and one of changes those of changes. What an operator rejected, and readings whose process was
 * stopped, are no bad end.
 */
export async function listEndedBadly(db: Queries): Promise<EndedBadly[]> {
  return query<EndedBadly>(db)`
    WITH ended AS MATERIALIZED (
      SELECT id, kind, status, error_code, streams, range, counts, CASE kind
          WHEN 'incremental' THEN NULL
          WHEN 'reconcile' THEN to_jsonb((range->>'to')::timestamptz > requested_at + interval '1 hour')
          ELSE range END AS part
      FROM slotsync.runs
      WHERE finished_at IS NOT NULL AND status <> 'cancelled'
        AND (kind <> 'incremental' OR id > (SELECT max(id) FROM slotsync.runs) - ${INCREMENTAL_LOOKED_AT}::bigint)
    ), latest AS (
      SELECT DISTINCT ON (kind, status, stream, part) r.*, s.stream
      FROM ended AS r LEFT JOIN LATERAL unnest(r.streams) AS s(stream) ON true
      WHERE status IN ('failed', 'partial') AND coalesce(error_code, '') NOT IN ('hold_rejected', 'interrupted')
      ORDER BY kind, status, stream, part, id DESC
    )
    SELECT r.id::float8 AS "runId", r.kind, r.status, r.error_code AS "errorCode", r.stream,
      coalesce((r.counts->r.stream->>'failed')::int, 0) AS failed, coalesce((r.counts->r.stream->>'dead')::int, 0) AS dead
    FROM latest AS r
    WHERE NOT EXISTS (
        SELECT FROM ended AS l
        WHERE l.id > r.id AND (r.stream IS NULL OR r.stream = ANY (l.streams))
          AND (l.status <> 'failed' OR r.status = 'failed')
          AND CASE r.kind
            WHEN 'reconcile' THEN l.kind = r.kind AND (l.part IS NOT DISTINCT FROM r.part OR l.part = 'true')
            WHEN 'verify' THEN l.kind = r.kind AND (l.range IS NULL OR l.range IS NOT DISTINCT FROM r.range)
            ELSE l.range IS NULL AND l.kind IN ('sync', 'backfill')
              OR l.kind = r.kind AND CASE r.kind WHEN 'incremental' THEN r.status = 'failed'
                ELSE l.range IS NOT DISTINCT FROM r.range END END)
      AND (r.kind <> 'incremental' OR r.status = 'failed' OR EXISTS (
        SELECT FROM slotsync.records AS f WHERE f.stream = r.stream AND f.${UNSETTLED} AND f.status IN ('failed', 'dead')))
    ORDER BY r.id, r.stream`;
}
