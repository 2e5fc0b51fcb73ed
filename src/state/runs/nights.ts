// Nightly results of the streams: how the whole sync of each day ended for a stream, and how many objects it sent.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import type { RunStatus } from '../schema.js';

/** Result of a stream on a day on which a whole sync was requested. */
export interface Night {
  stream: string;
  /** Day in the time zone of the reader, such as `2026-11-27`. */
  day: string;
  /** Latest whole sync of the day. A sync that a schedule started takes precedence. */
  runId: number;
  /** Status of the run `runId` for this stream alone. */
  status: RunStatus;
  /** Number of objects that all whole syncs of the day sent. */
  sent: number;
}

/** SQL for the status of the run `r` for the stream `s`. Not `succeeded` if the whole run must not count as such. */
const STATUS =
  sql.raw(`CASE WHEN r.finished_at IS NULL THEN 'running' WHEN r.status IN ('failed', 'cancelled') THEN r.status
    WHEN NOT r.plan ? s THEN 'failed'
    WHEN coalesce((r.counts->s->>'failed')::int + (r.counts->s->>'dead')::int, 0) > 0 OR r.plan->s ? 'staleLoad'
      OR r.error_code IN ('state_restored', 'outcomes_missing') THEN 'partial'
    WHEN r.holds ? s THEN 'held' ELSE 'succeeded' END`);

export async function listNights(db: Queries, days: number, timeZone: string): Promise<Night[]> {
  return query<Night>(db)`
    SELECT s AS stream, (r.requested_at AT TIME ZONE ${timeZone})::date::text AS day,
      (array_agg(r.id::float8 ORDER BY r.started_by = 'schedule' DESC, r.id DESC))[1] AS "runId",
      (array_agg(${STATUS} ORDER BY r.started_by = 'schedule' DESC, r.id DESC))[1] AS status,
      coalesce(sum((SELECT sum(n::int) FROM jsonb_each_text(r.accepted->s) AS a(operation, n))), 0)::int AS sent
    FROM slotsync.runs AS r CROSS JOIN unnest(r.streams) AS s
    WHERE r.kind = 'sync' AND r.range IS NULL AND r.requested_at > now() - make_interval(days => ${days}::int)
    GROUP BY s, day ORDER BY day, stream`;
}
