// Numbers of many runs: sums by stream over a period, nightly results of each stream, and for metrics the queue length,
// durations and last successes. Ages are in seconds, by the clock of the database.
import { sql } from 'drizzle-orm';
import { query, queryColumn, type Queries } from '../database.js';
import { NO_OUTCOMES, NONE_ACCEPTED } from '../records/outcome-types.js';
import type { AcceptedCounts, OutcomeCounts, RunKind, RunStatus } from '../schema.js';
import { sumBatches, type Run } from './read-runs.js';

/** A period. If `runId` is set, only that run counts. */
export interface RunsOf {
  from: Date;
  to: Date;
  runId?: number | undefined;
}

export interface StreamSums {
  stream: string;
  planned: { create: number; update: number; retire: number; repair: number };
  accepted: AcceptedCounts;
  outcomes: OutcomeCounts;
}

/** SQL condition: the run `r` was unfinished at some time in the period, or is the chosen run. */
const isOf = ({ from, to, runId }: RunsOf) =>
  runId === undefined
    ? sql`r.requested_at <= ${to.toISOString()}::text::timestamptz
        AND (r.finished_at IS NULL OR r.finished_at >= ${from.toISOString()}::text::timestamptz)`
    : sql`r.id = ${runId}::bigint`;

const PLANNED = ['create', 'update', 'retire', 'repair'] as const;
const ACCEPTED = ['create', 'update', 'retire'] as const;
const OUTCOMES = ['synced', 'unchanged', 'deferred', 'failed', 'dead'] as const;

/**
 * Adds up the counts of the runs of a period, by stream. A run that began before the period counts as a whole. Omits
 * streams whose sums are all zero.
 */
export async function sumByStream(db: Queries, period: RunsOf): Promise<StreamSums[]> {
  // Sums in JavaScript. In SQL, PostgreSQL assumes a hundred keys in every JSON value and compiles the query for
  // seconds.
  const runs = await query<Pick<Run, 'id' | 'plan' | 'counts' | 'accepted'> & { isUnfinished: boolean }>(db)`
    SELECT id::float8 AS id, plan, counts, accepted, finished_at IS NULL AS "isUnfinished" FROM slotsync.runs AS r
    WHERE ${isOf(period)}`;
  const sums = new Map<string, StreamSums>();
  const sumsOf = (stream: string): StreamSums => {
    const known = sums.get(stream) ?? {
      stream,
      planned: { create: 0, update: 0, retire: 0, repair: 0 },
      accepted: { ...NONE_ACCEPTED },
      outcomes: { ...NO_OUTCOMES },
    };
    sums.set(stream, known);
    return known;
  };
  for (const { id, plan, counts, isUnfinished, ...ended } of runs) {
    for (const [stream, planned] of Object.entries(plan))
      for (const name of PLANNED) sumsOf(stream).planned[name] += planned[name] ?? 0;
    const { outcomes, accepted } = isUnfinished
      ? await sumBatches(db, id)
      : { outcomes: counts, accepted: ended.accepted };
    for (const [stream, records] of Object.entries(outcomes)) {
      const sums = sumsOf(stream);
      for (const name of OUTCOMES) sums.outcomes[name] += records[name];
      for (const name of ACCEPTED) sums.accepted[name] += accepted?.[stream]?.[name] ?? 0;
    }
  }
  return [...sums.values()]
    .filter(({ planned, outcomes }) => [planned, outcomes].some((of) => Object.values(of).some(Boolean)))
    .toSorted((a, b) => (a.stream < b.stream ? -1 : 1));
}

/** Counts runs by kind and status. An unfinished run counts with its current status. */
export const countRuns = (db: Queries, period: RunsOf) =>
  query<{ kind: RunKind; status: RunStatus; runs: number }>(db)`
  SELECT kind, status, count(*)::int AS runs FROM slotsync.runs AS r WHERE ${isOf(period)}
  GROUP BY kind, status ORDER BY kind, status`;

/** Returns numbers of the latest runs, newest first. Omits incremental and reconcile runs, which may be very many. */
export const listRunIds = (db: Queries, period: RunsOf, limit: number) => queryColumn<number>(db)`
  SELECT id::float8 AS id FROM slotsync.runs AS r
  WHERE ${isOf(period)} AND (${period.runId !== undefined} OR kind NOT IN ('incremental', 'reconcile'))
  ORDER BY r.id DESC LIMIT ${limit}`;

/** Number of latest runs in which the query searches: a week with one run a minute. */
const RUNS_LOOKED_AT = 10_000;

/** Backlog of each lane: number of runs to plan and of queued batches, and age of the oldest in seconds. */
export const readBacklog = (db: Queries) => query<{ lane: string; jobs: number; oldestSeconds: number }>(db)`
  SELECT lane, count(*)::int AS jobs,
    greatest(0, extract(epoch FROM now() - min(since)))::float8 AS "oldestSeconds"
  FROM (
    SELECT lane, requested_at AS since FROM slotsync.runs
    WHERE finished_at IS NULL AND status = 'planning'
    UNION ALL
    SELECT r.lane, b.created_at FROM slotsync.runs AS r JOIN slotsync.batches AS b ON b.run_id = r.id
    WHERE r.finished_at IS NULL AND b.state = 'queued'
  ) AS jobs
  GROUP BY lane`;

/** Duration of the latest finished run of each kind and status, from its request to its end. */
export const listDurations = (db: Queries) =>
  query<{ kind: RunKind; status: RunStatus; seconds: number }>(db)`
  SELECT DISTINCT ON (kind, status) kind, status,
    greatest(0, extract(epoch FROM finished_at - requested_at))::float8 AS seconds
  FROM slotsync.runs
  WHERE finished_at IS NOT NULL AND id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
  ORDER BY kind, status, id DESC`;

export interface KindSuccess {
  kind: RunKind;
  /** Seconds since a run of the kind last succeeded. Null if no run has succeeded. */
  ageSeconds: number | null;
}

/**
 * Reads all runs, because a rare kind may have succeeded long ago. Syncs are omitted: their streams store the success.
 */
export const listKindSuccesses = (db: Queries): Promise<KindSuccess[]> => query<KindSuccess>(db)`
  SELECT kind, extract(epoch FROM now() - max(finished_at) FILTER (WHERE status = 'succeeded'))::float8 AS "ageSeconds"
  FROM slotsync.runs WHERE kind <> 'sync' GROUP BY kind ORDER BY kind`;

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

export const listNights = (db: Queries, days: number, timeZone: string) => query<Night>(db)`
  SELECT s AS stream, (r.requested_at AT TIME ZONE ${timeZone})::date::text AS day,
    (array_agg(r.id::float8 ORDER BY r.started_by = 'schedule' DESC, r.id DESC))[1] AS "runId",
    (array_agg(${STATUS} ORDER BY r.started_by = 'schedule' DESC, r.id DESC))[1] AS status,
    coalesce(sum((SELECT sum(n::int) FROM jsonb_each_text(r.accepted->s) AS a(operation, n))), 0)::int AS sent
  FROM slotsync.runs AS r CROSS JOIN unnest(r.streams) AS s
  WHERE r.kind = 'sync' AND r.range IS NULL AND r.requested_at > now() - make_interval(days => ${days}::int)
  GROUP BY s, day ORDER BY day, stream`;
