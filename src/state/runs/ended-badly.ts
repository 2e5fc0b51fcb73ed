// Runs that ended badly and that no later run has replaced.
import { query, type Queries } from '../database.js';
import { UNSETTLED } from '../records/record-state.js';
import type { RunKind } from '../schema.js';
import { INCREMENTAL_LOOKED_AT } from './replaced-runs.js';

/** A stream of a run that failed or is partial; a reconcile has no stream. */
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

/**
 * By run and stream; of incremental runs, the latest of each stream. What a later run replaces is left out when that one has ended, unless it was cancelled, or failed while the
 * earlier one was partial. What an incremental run left failed or dead stands only while some record of the stream is so.
 * What an operator rejected, and readings whose process was stopped, are no bad end.
 */
export async function listEndedBadly(db: Queries): Promise<EndedBadly[]> {
  return query<EndedBadly>(db)`
    WITH latest AS (
      SELECT DISTINCT ON (r.kind, r.status, s.stream, CASE WHEN r.kind <> 'incremental' THEN r.id END) r.*, s.stream
      FROM slotsync.runs AS r LEFT JOIN LATERAL unnest(r.streams) AS s(stream) ON true
        LEFT JOIN slotsync.replaced_runs AS p ON p.run_id = r.id AND p.stream = coalesce(s.stream, '')
        LEFT JOIN slotsync.runs AS l ON l.id = p.replaced_by AND l.finished_at IS NOT NULL AND l.status <> 'cancelled'
          AND (l.status <> 'failed' OR r.status = 'failed')
      WHERE r.status IN ('failed', 'partial') AND coalesce(r.error_code, '') NOT IN ('hold_rejected', 'interrupted')
        AND (r.kind <> 'incremental' OR r.id > (SELECT max(id) FROM slotsync.runs) - ${INCREMENTAL_LOOKED_AT}::bigint)
        AND l.id IS NULL
      ORDER BY r.kind, r.status, s.stream, CASE WHEN r.kind <> 'incremental' THEN r.id END, r.id DESC
    )
    SELECT r.id::float8 AS "runId", r.kind, r.status, r.error_code AS "errorCode", r.stream,
      coalesce((r.counts->r.stream->>'failed')::int, 0) AS failed, coalesce((r.counts->r.stream->>'dead')::int, 0) AS dead
    FROM latest AS r
    WHERE r.kind <> 'incremental' OR r.status = 'failed' OR EXISTS (
      SELECT FROM slotsync.records AS f WHERE f.stream = r.stream AND f.${UNSETTLED} AND f.status IN ('failed', 'dead'))
    ORDER BY r.id, r.stream`;
}
