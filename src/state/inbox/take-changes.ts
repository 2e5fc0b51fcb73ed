// Takes keys from the inbox for an incremental run. The rows of the keys are deleted when the run has ended.
//
// Also adds keys whose check is due. A write whose answer was lost may be carried out late, and replace a newer write.
// When that can no longer happen, the record is marked as in doubt and its key is added to the inbox, so that the object
// is read back. A refusal while nothing was accepted is followed up in the same way.
import { sql, type SQL } from 'drizzle-orm';
import { anyOf, query, queryColumn, queryOne, queryTogether, type Queries } from '../database.js';
import { unfrozen } from '../freezes.js';
import type { Fingerprints } from '../../streams/fingerprints.js';
import type { Run } from '../runs/read-runs.js';
import type { BatchState } from '../schema.js';
import { CHANGES_CHANNEL } from './add-changes.js';
import { ENDING_EXPIRED } from '../exceptions.js';
import {
  AWAITS_SECOND_ANSWER,
  FIELDS_IN_DOUBT,
  IS_FORMER,
  IS_FREE,
  MAY_BE_REPLACED,
} from '../records/record-state.js';

/** Maximum numbers of inbox rows that a run takes, oldest rows first, or newest rows first. */
const ROWS_AT_ONCE = 10_000;
const NEWEST_AT_ONCE = 100;
/** Maximum number of keys for the incremental lane. A larger run is sent like a sync, in full requests. */
const MOST_KEYS_OF_CHANGES = 1000;
/** Maximum number of unfinished runs in the incremental lane. Further changes wait and collect into larger runs. */
const RUNS_AT_ONCE = 4;

export interface TakenRun extends Pick<Run, 'kind' | 'lane' | 'startedBy' | 'streams' | 'range'> {
  runId: number;
  /** Keys by stream. In other lanes the lists are empty, because the planner reads the many keys from the inbox. */
  keys: Record<string, string[]>;
  /** Token with which this process plans the run. Null if any process may plan the run. */
  planner: string | null;
  /** True if the maximum number of rows was read, so that more rows may wait. */
  isFull: boolean;
}

/** `nothing`: no key waits, or too many runs are unfinished. `busy`: another process is taking keys. */
export type TakenChanges = TakenRun | 'nothing' | 'busy';

/** SQL condition: the row `c` waits and is due. Rows of a frozen stream stay in the inbox. */
const isWaiting = (streams: readonly string[]) =>
  sql`(c.run_id IS NULL AND c.after_run IS NULL AND (c.not_before IS NULL OR c.not_before <= now())
    AND c.stream = ANY (${unfrozen(streams)}))`;

/**
 * SQL for the run that has taken the key of a row `c`, or null. A subquery looks up each row in an index. PostgreSQL
 * might turn a join into nested loops over very many rows, if it expects a single row.
 */
const RUN_OF_KEY = sql`(SELECT f.run_id FROM slotsync.changes AS f
  WHERE f.stream = c.stream AND f.local_key = c.local_key ORDER BY f.run_id LIMIT 1)`;

/** SQL condition: `takeChanges` may find keys to take. Reads only the first row that matches. */
export const isWorkWaiting = (streams: readonly string[]) =>
  sql`EXISTS (SELECT FROM slotsync.changes AS c WHERE ${isWaiting(streams)})`;

/**
 * Starts an incremental run over the oldest waiting keys of these streams, or over a few of the newest. A key that
 * another run has taken waits until that run has ended, because the key may have changed again. `addDueChecks` frees
 * the key then. The caller queues the run, unless `planner` is set: a run of at most `few.keys` keys is planned by the
 * process with `few.token`.
 */
export async function takeChanges(
  db: Queries,
  streams: readonly string[],
  fingerprints?: Fingerprints,
  few?: { keys: number; token: string },
  { first = 'oldest' }: { first?: 'oldest' | 'newest' } = {},
): Promise<TakenChanges> {
  const most = first === 'oldest' ? ROWS_AT_ONCE : NEWEST_AT_ONCE;
  // A statement of its own, because the statement after the lock needs a later snapshot. A row that is committed after that snapshot
  // stays for the next run, even if its key is taken now: the mirror may be read before the change of that row is visible.
  const locking = sql`SELECT set_config('slotsync.takes', slotsync.take_lock('inbox', false)::text, true) AS takes`;
  const taking = sql`
      WITH looked_at AS MATERIALIZED (
        SELECT c.id, c.stream, c.local_key, ${RUN_OF_KEY} AS after_run FROM slotsync.changes AS c
        WHERE current_setting('slotsync.takes')::boolean AND ${isWaiting(streams)}
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
        RETURNING id, kind, lane, started_by, streams, range, planner
      ), taken AS (
        UPDATE slotsync.changes AS c SET (run_id, after_run) =
          (SELECT CASE WHEN of_key.run_id IS NULL THEN (SELECT id FROM run) END, of_key.run_id FROM (SELECT ${RUN_OF_KEY} AS run_id) AS of_key)
        WHERE c.ctid = ANY (ARRAY(
          SELECT o.ctid FROM (SELECT DISTINCT stream, local_key, after_run FROM looked_at) AS l CROSS JOIN LATERAL (
            SELECT o.ctid FROM slotsync.changes AS o
            WHERE o.stream = l.stream AND o.local_key = l.local_key AND o.run_id IS NULL OFFSET 0) AS o
          WHERE l.after_run IS NOT NULL OR EXISTS (SELECT FROM run)))
      )
      SELECT id::float8 AS "runId", kind, lane, started_by AS "startedBy", streams, range, planner, (SELECT jsonb_object_agg(stream, CASE lane WHEN 'incremental' THEN keys ELSE '{}' END) FROM by_stream, all_keys) AS keys,
        (SELECT count(*) FROM looked_at) >= ${most} AS "isFull"
      FROM (SELECT) AS one LEFT JOIN run ON true`;
  for (;;) {
    const [[lock], [taken]] = (await queryTogether(db, [locking, taking])) as [
      [{ takes: string }],
      [TakenRun | { runId: null; keys: null | object; isFull: boolean }],
    ];
    if (lock.takes === 'false') return 'busy';
    if (taken.runId !== null) return taken;
    // All rows that were read have keys in other runs. The next rows may be free, so the statement is repeated.
    if (!taken.isFull || taken.keys !== null) return 'nothing';
  }
}

export const readTakenKeys = (db: Queries, runId: number, stream: string) => queryColumn<string>(db)`
  SELECT DISTINCT local_key AS "localKey" FROM slotsync.changes
  WHERE run_id = ${runId}::bigint AND stream = ${stream}`;

/**
 * Deletes the inbox rows of an ended run. Keys that failed, or that a cancelled run did not send, wait again: half as
 * long as they have waited, at least one minute and at most ten. Call it in the transaction that ends the run. Its
 * commit notifies the workers only if changes wait.
 */
export async function closeTaken(
  tx: Queries,
  runId: number,
  ended: 'failed' | 'cancelled' | 'worked',
): Promise<void> {
  const batches = (state: BatchState) =>
    sql`FROM slotsync.batches AS b WHERE b.run_id = ${runId}::bigint AND b.state = ${state}`;
  // Subqueries that PostgreSQL hashes once to look up keys. A failed batch without keys means that its stream failed.
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
    SELECT pg_notify(${CHANGES_CHANNEL}, '') WHERE EXISTS (SELECT FROM slotsync.changes WHERE run_id IS NULL AND after_run IS NULL)
      OR EXISTS (SELECT FROM slotsync.changes WHERE after_run = ${runId}::bigint)`;
}

const AT_ONCE = 1000;

/**
 * Query of the distinct runs in a column of the inbox. Looks up one run after the other in the index, because a run may
 * have very many rows.
 */
const namedIn = (column: SQL) => sql`(WITH RECURSIVE named AS (
  SELECT min(${column}) AS id FROM slotsync.changes
  UNION ALL SELECT (SELECT min(${column}) FROM slotsync.changes WHERE ${column} > named.id) FROM named WHERE id IS NOT NULL
) SELECT id FROM named WHERE id IS NOT NULL)`;

/**
 * Runs that inbox rows refer to but that are over, so that the keys of these rows can be taken again. A run may also
 * never have existed, because other programs can write any number into a row.
 */
const ENDED = sql`ARRAY(SELECT id FROM (${namedIn(sql`run_id`)} UNION ${namedIn(sql`after_run`)}) AS named
  WHERE NOT EXISTS (SELECT FROM slotsync.runs AS r WHERE r.id = named.id AND r.kind = 'incremental' AND r.finished_at IS NULL))`;

/**
 * Adds to the inbox the records whose check is due, and keys of expired exceptions. An object in doubt without a row
 * stays in doubt until a row has it. Also releases rows of ended runs. Returns true if the inbox has keys to take.
 * Notifies no worker, because the caller takes the keys that were added.
 */
export async function addDueChecks(db: Queries, streams: readonly string[]): Promise<boolean> {
  const { found } = await queryOne<{ found: boolean }>(db)`
    WITH expired AS (${ENDING_EXPIRED}), due AS (
      SELECT r.stream, r.local_key FROM slotsync.records AS r
      WHERE r.check_after <= now() AND r.stream = ${anyOf(streams)} AND ${IS_FREE}
      ORDER BY r.check_after LIMIT ${AT_ONCE} FOR UPDATE SKIP LOCKED
    ), doubted AS (
      UPDATE slotsync.records AS r
      SET in_doubt = r.in_doubt OR NOT ${AWAITS_SECOND_ANSWER}, check_after = NULL,
        accepted_fields = CASE WHEN ${MAY_BE_REPLACED} THEN ${FIELDS_IN_DOUBT} ELSE r.accepted_fields END
      FROM due WHERE r.stream = due.stream AND r.local_key = due.local_key
      RETURNING r.stream, r.local_key, ${IS_FORMER} AS is_former
    ), added AS (
      INSERT INTO slotsync.changes (stream, local_key)
      SELECT stream, local_key FROM doubted WHERE NOT is_former UNION ALL TABLE expired RETURNING 1
    ), freed AS (
      UPDATE slotsync.changes AS c SET run_id = NULL, after_run = NULL WHERE c.run_id = ANY (${ENDED}) OR c.after_run = ANY (${ENDED}) RETURNING 1
    )
    SELECT EXISTS (SELECT FROM added) OR EXISTS (SELECT FROM freed) OR ${isWorkWaiting(streams)} AS found`;
  return found;
}
