// An incremental run takes keys from the inbox; their rows are deleted when it has ended.
import { sql } from 'drizzle-orm';
import { query, queryOne, type Queries } from '../database.js';
import { unfrozen } from '../freezes.js';
import { tryLock } from '../locks.js';
import type { Fingerprints } from '../../streams/fingerprints.js';
import type { BatchState } from '../schema.js';
import { CHANGES_CHANNEL } from './add-changes.js';

/** Rows whose keys a run takes, the oldest ones; or of the newest ones, which need not wait for the others. */
const ROWS_AT_ONCE = 10_000;
const NEWEST_AT_ONCE = 100;
/** A run over more keys is sent as a sync is: in full requests, in the lane of a sync. */
const MOST_KEYS_OF_CHANGES = 1000;
/** Unfinished runs in the incremental lane: beyond them changes wait, and collect into larger runs. */
const RUNS_AT_ONCE = 4;

/** A run over keys of the inbox. */
export interface TakenRun {
  runId: number;
  lane: string;
  /** By stream. A run in another lane than the incremental one has too many: its planner reads them. */
  keys: Record<string, string[]>;
  /** The token with which this process plans it; null: any process may. */
  planner: string | null;
  /** Whether as many rows were looked at as a run takes, so that more may wait. */
  isFull: boolean;
}

/**
 * A run over what was taken; `nothing`: nothing waits, or as many runs are under way as may be; `busy`: another process
 * is taking.
 */
export type TakenChanges = TakenRun | 'nothing' | 'busy';

/** A row `c` of these streams that waits, and whose time has come. Changes of a frozen stream stay in the inbox. */
const isWaiting = (streams: readonly string[]) =>
  sql`(c.run_id IS NULL AND c.after_run IS NULL AND (c.not_before IS NULL OR c.not_before <= now())
    AND c.stream = ANY (${unfrozen(streams)}))`;

/**
 * The run that has taken the key of a row `c`, or null. Rows are looked up one by one in indexes, and never joined: the planner
 * may expect one row where there are very many, as after an ANALYZE while they were added, and join them in nested loops.
 */
const RUN_OF_KEY = sql`(SELECT f.run_id FROM slotsync.changes AS f
  WHERE f.stream = c.stream AND f.local_key = c.local_key ORDER BY f.run_id LIMIT 1)`;

/** Whether `takeChanges` may find something to do: a condition, which reads no more than the first row that is. */
export const isWorkWaiting = (streams: readonly string[]) =>
  sql`EXISTS (SELECT FROM slotsync.changes AS c WHERE ${isWaiting(streams)})`;

/**
 * Starts an incremental run over the oldest keys that wait, of these streams, or over a few of the newest. A key that another
 * run has taken is left until that run has ended, since it may have changed again meanwhile: `addDueChecks` lets it wait again
 * then. The run is to be queued, unless it has at most `few.keys`: then the process that gave the token is its planner.
 */
export async function takeChanges(
  db: Queries,
  streams: readonly string[],
  fingerprints?: Fingerprints,
  few?: { keys: number; token: string },
  { first = 'oldest' }: { first?: 'oldest' | 'newest' } = {},
): Promise<TakenChanges> {
  const most = first === 'oldest' ? ROWS_AT_ONCE : NEWEST_AT_ONCE;
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, 'inbox'))) return 'busy';
    // A statement of its own behind the lock, for the sake of its snapshot: a row that is committed later stays for the next
    // run, also when its key is taken now, since the mirror may be read before that row's change is visible.
    const takeOnce = queryOne<TakenRun | { runId: null; keys: null | object; isFull: boolean }>(tx);
    for (;;) {
      const taken = await takeOnce`
      WITH looked_at AS MATERIALIZED (
        SELECT c.id, c.stream, c.local_key, ${RUN_OF_KEY} AS after_run FROM slotsync.changes AS c WHERE ${isWaiting(streams)}
        ORDER BY c.id ${sql.raw(first === 'oldest' ? 'ASC' : 'DESC')} LIMIT ${most}
      ), by_stream AS MATERIALIZED (
        SELECT stream, array_agg(DISTINCT local_key) AS keys FROM looked_at WHERE after_run IS NULL GROUP BY stream
      ), all_keys AS (
        SELECT CASE WHEN sum(cardinality(keys)) > ${MOST_KEYS_OF_CHANGES} THEN 'sync' ELSE 'incremental' END AS lane FROM by_stream
      ), run AS (
        INSERT INTO slotsync.runs (kind, lane, started_by, status, streams, configuration, fingerprints, planner)
        SELECT 'incremental', min(lane), 'change', 'planning', array_agg(stream ORDER BY stream), ${fingerprints?.configuration ?? null},
          jsonb_object_agg(stream, coalesce((${JSON.stringify(fingerprints?.streams ?? null)}::jsonb)->>stream, ''))
            FILTER (WHERE ${fingerprints !== undefined}),
          CASE WHEN sum(cardinality(keys)) <= ${few?.keys ?? 0} THEN ${few?.token ?? null} END
        FROM by_stream CROSS JOIN all_keys HAVING min(lane) = 'sync' OR count(*) > 0
          AND ${RUNS_AT_ONCE} > (SELECT count(*) FROM slotsync.runs
            WHERE finished_at IS NULL AND kind = 'incremental' AND lane = 'incremental' AND paused_at IS NULL)
        RETURNING id, lane, planner
      ), taken AS (
        UPDATE slotsync.changes AS c SET (run_id, after_run) =
          (SELECT CASE WHEN of_key.run_id IS NULL THEN (SELECT id FROM run) END, of_key.run_id FROM (SELECT ${RUN_OF_KEY} AS run_id) AS of_key)
        WHERE c.ctid = ANY (ARRAY(
          SELECT o.ctid FROM (SELECT DISTINCT stream, local_key, after_run FROM looked_at) AS l CROSS JOIN LATERAL (
            SELECT o.ctid FROM slotsync.changes AS o
            WHERE o.stream = l.stream AND o.local_key = l.local_key AND o.run_id IS NULL OFFSET 0) AS o
          WHERE l.after_run IS NOT NULL OR EXISTS (SELECT FROM run)))
      )
      SELECT id::float8 AS "runId", lane, planner, (SELECT jsonb_object_agg(stream, CASE lane WHEN 'incremental' THEN keys ELSE '{}' END) FROM by_stream, all_keys) AS keys,
        (SELECT count(*) FROM looked_at) >= ${most} AS "isFull"
      FROM (SELECT) AS one LEFT JOIN run ON true`;
      if (taken.runId !== null) return taken;
      // Rows whose keys are in flight, and nothing else: what may be taken is behind them.
      if (!taken.isFull || taken.keys !== null) return 'nothing';
    }
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
  const batches = (state: BatchState) =>
    sql`FROM slotsync.batches AS b WHERE b.run_id = ${runId}::bigint AND b.state = ${state}`;
  // Lists that are hashed once: keys are looked up in them. A batch without keys is of a stream that failed.
  const hasBatch = (
    state: BatchState,
  ) => sql`(c.stream IN (SELECT b.stream ${batches(state)} AND b.keys = '{}' AND b.state = 'failed')
    OR (c.stream, c.local_key) IN (SELECT b.stream, unnest(b.keys) ${batches(state)}))`;
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
