// The length of the queue, how long the latest runs took, and when runs succeeded: only metrics show these. Times are ages in seconds, by the
// database's clock.
import { query, type Queries } from '../database.js';
import type { RunKind, RunStatus } from '../schema.js';

/** Runs looked back over: a week of one each minute. */
const RUNS_LOOKED_AT = 10_000;

/** Runs to be planned and batches in the queue or in work, and since when the oldest was requested or planned. */
export interface Backlog {
  lane: string;
  jobs: number;
  oldestSeconds: number;
}

export const readBacklog = (db: Queries): Promise<Backlog[]> => query<Backlog>(db)`
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

/** The latest finished run of a kind and status, from its request to its end. */
export interface RunDuration {
  kind: RunKind;
  status: RunStatus;
  seconds: number;
}

export const listDurations = (db: Queries): Promise<RunDuration[]> => query<RunDuration>(db)`
  SELECT DISTINCT ON (kind, status) kind, status,
    greatest(0, extract(epoch FROM finished_at - requested_at))::float8 AS seconds
  FROM slotsync.runs
  WHERE finished_at IS NOT NULL AND id > (SELECT max(id) FROM slotsync.runs) - ${RUNS_LOOKED_AT}::bigint
  ORDER BY kind, status, id DESC`;

export interface KindSuccess {
  kind: RunKind;
  /** How long ago a run of the kind succeeded; null: never. */
  ageSeconds: number | null;
}

/** All runs are read: the last success of a kind that seldom runs may be long ago. Of syncs, the streams know it. */
export const listKindSuccesses = (db: Queries): Promise<KindSuccess[]> => query<KindSuccess>(db)`
  SELECT kind, extract(epoch FROM now() - max(finished_at) FILTER (WHERE status = 'succeeded'))::float8 AS "ageSeconds"
  FROM slotsync.runs WHERE kind <> 'sync' GROUP BY kind ORDER BY kind`;
