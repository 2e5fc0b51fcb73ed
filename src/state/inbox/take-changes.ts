// An incremental run takes keys from the inbox; their rows are deleted when it has ended.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries } from '../database.js';
import { tryLock } from '../locks.js';
import type { Fingerprints } from '../../streams/fingerprints.js';
import { insertRun } from '../runs/insert-run.js';
import type { BatchState } from '../schema.js';
import { CHANGES_CHANNEL } from './add-changes.js';

/** Keys a run takes, and rows it looks through for them, oldest first. */
const KEYS_AT_ONCE = 1000;
const ROWS_LOOKED_AT = 20_000;
/** Unfinished incremental runs: beyond them changes wait, and collect into larger runs. */
const RUNS_AT_ONCE = 4;

/**
 * A run over what was taken; `nothing`: nothing waits, or as many runs are under way as may be; `busy`: another process
 * is taking.
 */
export type TakenChanges = { runId: number } | 'nothing' | 'busy';

/** A row `c` of these streams that waits, and whose time has come. */
const isWaiting = (streams: readonly string[]) =>
  sql`(c.run_id IS NULL AND (c.not_before IS NULL OR c.not_before <= now()) AND c.stream = ${anyOf(streams)})`;

/** A row `c` that names no run which may have taken it: a program that adds rows may have named one. */
const IS_MISTAKEN = sql`(c.run_id IS NOT NULL AND NOT EXISTS (
  SELECT FROM slotsync.runs AS r WHERE r.id = c.run_id AND r.kind = 'incremental' AND r.finished_at IS NULL))`;

/** Whether `takeChanges` may find something to do: a condition, which reads no more than the first row that is. */
export const isWorkWaiting = (streams: readonly string[]) => sql`(
  EXISTS (SELECT FROM slotsync.changes AS c WHERE ${isWaiting(streams)})
  OR EXISTS (SELECT FROM slotsync.changes AS c WHERE ${IS_MISTAKEN}))`;

/**
 * Starts an incremental run over the oldest keys that wait, of these streams. A key that another run has taken is left
 * until that run has ended, since it may have changed again meanwhile. The run is to be queued.
 */
export async function takeChanges(
  db: Queries,
  streams: readonly string[],
  fingerprints?: Fingerprints,
): Promise<TakenChanges> {
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, 'inbox'))) return 'busy';
    const { runs } = await queryOne<{ runs: number }>(tx)`
      SELECT count(*)::int AS runs FROM slotsync.runs
      WHERE finished_at IS NULL AND kind = 'incremental' AND paused_at IS NULL`;
    if (runs >= RUNS_AT_ONCE) return 'nothing';
    await query(tx)`UPDATE slotsync.changes AS c SET run_id = NULL WHERE ${IS_MISTAKEN}`;
    // The rows are chosen by one snapshot and taken by their ids: one that is committed later stays for the next run, also
    // when its key is taken now, since the mirror may be read before that row's change is visible.
    const chosen = await queryOne<{ streams: string[] | null; ids: string[] }>(tx)`
      WITH in_flight AS MATERIALIZED (
        SELECT DISTINCT stream, local_key FROM slotsync.changes WHERE run_id IS NOT NULL
      ), waiting AS MATERIALIZED (
        SELECT c.id, c.stream, c.local_key FROM slotsync.changes AS c
        WHERE ${isWaiting(streams)}
          AND NOT EXISTS (SELECT FROM in_flight AS f WHERE f.stream = c.stream AND f.local_key = c.local_key)
        ORDER BY c.id LIMIT ${ROWS_LOOKED_AT}
      ), chosen AS MATERIALIZED (
        SELECT stream, local_key FROM waiting GROUP BY stream, local_key ORDER BY min(id) LIMIT ${KEYS_AT_ONCE}
      )
      SELECT array_agg(DISTINCT c.stream) AS streams, array_agg(c.id::text) AS ids
      FROM slotsync.changes AS c JOIN chosen USING (stream, local_key) WHERE c.run_id IS NULL`;
    if (!chosen.streams) return 'nothing';
    const { id } = await insertRun(tx, {
      kind: 'incremental',
      lane: 'incremental',
      startedBy: 'change',
      streams: chosen.streams,
      fingerprints,
    });
    await query(tx)`
      UPDATE slotsync.changes SET run_id = ${id}::bigint WHERE id = ${anyOf(chosen.ids, 'bigint')}`;
    return { runId: id };
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
    failed: sql`true`,
    cancelled: sql`NOT ${hasBatch('done')}`,
    worked: hasBatch('failed'),
  }[ended];
  await query(tx)`
    UPDATE slotsync.changes AS c SET run_id = NULL,
      not_before = now() + least(interval '10 minutes', greatest(interval '1 minute', (now() - c.requested_at) / 2))
    WHERE c.run_id = ${runId}::bigint AND ${comesBack}`;
  await query(tx)`DELETE FROM slotsync.changes WHERE run_id = ${runId}::bigint`;
  await query(tx)`SELECT pg_notify(${CHANGES_CHANNEL}, '')`;
}
