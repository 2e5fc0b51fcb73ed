// An incremental run takes keys from the inbox; their rows are deleted when it has ended.
import { sql } from 'drizzle-orm';
import { query, type Queries } from '../database.js';
import { unfrozen } from '../freezes.js';
import { tryLock } from '../locks.js';
import type { Fingerprints } from '../../streams/fingerprints.js';
import type { BatchState } from '../schema.js';
import { CHANGES_CHANNEL } from './add-changes.js';

/** Keys a run takes, and rows it looks through for them, oldest first. */
const KEYS_AT_ONCE = 1000;
const ROWS_LOOKED_AT = 20_000;
/** Unfinished incremental runs: beyond them changes wait, and collect into larger runs. */
const RUNS_AT_ONCE = 4;

/** A run over keys of the inbox. */
export interface TakenRun {
  runId: number;
  /** By stream. */
  keys: Record<string, string[]>;
  /** The token with which this process plans it; null: any process may. */
  planner: string | null;
  /** Whether as many were taken as a run takes, so that more may wait. */
  isFull: boolean;
}

/**
 * A run over what was taken; `nothing`: nothing waits, or as many runs are under way as may be; `busy`: another process
 * is taking.
 */
export type TakenChanges = TakenRun | 'nothing' | 'busy';

/** A row `c` of these streams that waits, and whose time has come. Changes of a frozen stream stay in the inbox. */
const isWaiting = (streams: readonly string[]) =>
  sql`(c.run_id IS NULL AND (c.not_before IS NULL OR c.not_before <= now()) 
    AND c.stream = ANY (${unfrozen(streams)}))`;

/** Whether `takeChanges` may find something to do: a condition, which reads no more than the first row that is. */
export const isWorkWaiting = (streams: readonly string[]) =>
  sql`EXISTS (SELECT FROM slotsync.changes AS c WHERE ${isWaiting(streams)})`;

/**
 * Starts an incremental run over the oldest keys that wait, of these streams. A key that another run has taken is left
 * until that run has ended, since it may have changed again meanwhile. The run is to be queued, unless it has at most
 * `few.keys`: then the process that gave the token is its planner.
 */
export async function takeChanges(
  db: Queries,
  streams: readonly string[],
  fingerprints?: Fingerprints,
  few?: { keys: number; token: string },
): Promise<TakenChanges> {
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, 'inbox'))) return 'busy';
    // A statement of its own behind the lock, for the sake of its snapshot: a row that is committed later stays for the next
    // run, also when its key is taken now, since the mirror may be read before that row's change is visible.
    const [taken] = await query<TakenRun>(tx)`
      WITH in_flight AS MATERIALIZED (
        SELECT DISTINCT stream, local_key FROM slotsync.changes WHERE run_id IS NOT NULL
      ), waiting AS MATERIALIZED (
        SELECT c.id, c.stream, c.local_key FROM slotsync.changes AS c
        WHERE ${isWaiting(streams)}
          AND NOT EXISTS (SELECT FROM in_flight AS f WHERE f.stream = c.stream AND f.local_key = c.local_key)
        ORDER BY c.id LIMIT ${ROWS_LOOKED_AT}
      ), chosen AS MATERIALIZED (
        SELECT stream, local_key FROM waiting GROUP BY stream, local_key ORDER BY min(id) LIMIT ${KEYS_AT_ONCE}
      ), by_stream AS (
        SELECT stream, array_agg(local_key) AS keys FROM chosen GROUP BY stream
      ), run AS (
        INSERT INTO slotsync.runs (kind, lane, started_by, status, streams, configuration, fingerprints, planner)
        SELECT 'incremental', 'incremental', 'change', 'planning', array_agg(stream ORDER BY stream), ${fingerprints?.configuration ?? null},
          jsonb_object_agg(stream, coalesce((${JSON.stringify(fingerprints?.streams ?? null)}::jsonb)->>stream, ''))
            FILTER (WHERE ${fingerprints !== undefined}),
          CASE WHEN sum(cardinality(keys)) <= ${few?.keys ?? 0} THEN ${few?.token ?? null} END
        FROM by_stream HAVING count(*) > 0
          AND ${RUNS_AT_ONCE} > (SELECT count(*) FROM slotsync.runs
            WHERE finished_at IS NULL AND kind = 'incremental' AND paused_at IS NULL)
        RETURNING id, planner
      ), taken AS (
        UPDATE slotsync.changes AS c SET run_id = run.id
        FROM chosen, run WHERE c.stream = chosen.stream AND c.local_key = chosen.local_key AND c.run_id IS NULL
      )
      SELECT id::float8 AS "runId", planner, (SELECT jsonb_object_agg(stream, keys) FROM by_stream) AS keys,
        (SELECT count(*) FROM chosen) >= ${KEYS_AT_ONCE}
          OR (SELECT count(*) FROM waiting) >= ${ROWS_LOOKED_AT} AS "isFull"
      FROM run`;
    return taken ?? 'nothing';
  });
}

/** The keys of a stream that a run has taken, each once. */
export async function readTakenKeys(db: Queries, runId: number, stream: string): Promise<string[]> {
  const rows = await query<{ localKey: string }>(db)`
    SELECT DISTINCT local_key AS "localKey" FROM slotsync.changes
    WHERE run_id = ${runId}::bigint AND stream = ${stream}`;
  return rows.map(({ localKey }) => localKey);
}

/**
 * Deletes what a run that has ended had taken, except what failed, and of a cancelled run what it had not come to: that
 * waits half as long again as it has waited, a minute at least and ten at most. Call it in the transaction that ends the
 * run; its commit notifies the workers, since keys may have waited for this run.
 */
export async function closeTaken(
  tx: Queries,
  runId: number,
  ended: 'failed' | 'cancelled' | 'worked',
): Promise<void> {
  const hasBatch = (state: BatchState) => sql`EXISTS (
    SELECT FROM slotsync.batches AS b
    WHERE b.run_id = ${runId}::bigint AND b.state = ${state} AND b.stream = c.stream
      AND (cardinality(b.keys) = 0 OR c.local_key = ANY (b.keys)))`;
  const comesBack = {
    failed: sql`(true)`,
    cancelled: sql`(NOT ${hasBatch('done')})`,
    worked: hasBatch('failed'),
  }[ended];
  await query(tx)`
    WITH back AS (
      UPDATE slotsync.changes AS c SET run_id = NULL,
        not_before = now() + least(interval '10 minutes', greatest(interval '1 minute', (now() - c.requested_at) / 2))
      WHERE c.run_id = ${runId}::bigint AND ${comesBack}
    ), gone AS (
      DELETE FROM slotsync.changes AS c WHERE c.run_id = ${runId}::bigint AND NOT ${comesBack}
    )
    SELECT pg_notify(${CHANGES_CHANNEL}, '')`;
}
