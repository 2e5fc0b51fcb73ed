// Ends a batch and writes the outcomes of its records in one transaction. `advanceRun` advances the run afterwards.
import { sql, type SQL } from 'drizzle-orm';
import { codeOf } from '../../errors/errors.js';
import { tryInHalves } from '../../errors/try-in-halves.js';
import { query, queryTogether, type State } from '../database.js';
import { notingWrites } from '../history.js';
import { failRecords, followOutcomes, writeOutcomes, type Settled } from '../records/settle-records.js';
import { isSent, NO_OUTCOMES, storable } from '../records/outcome-types.js';
import type { Batch } from './batches.js';
import { recountGates } from '../gates/held.js';
import { countingSent } from '../sent.js';
import { countingAnswered } from '../streams.js';
import type { Failed } from './end-run.js';

const isUnfinished = (id: number) => sql`id = ${id}::bigint AND state IN ('queued', 'planned')`;

/** Selects and locks the keys of a batch, so that no other process settles any of them before the transaction ends. */
const lockingKeys = (id: number) => sql`
  SELECT keys FROM slotsync.batches WHERE ${isUnfinished(id)} FOR NO KEY UPDATE`;

/** Counts the rows of the query `settled` by outcome and accepted operation, and collects their keys. */
const COUNTED = sql`
  SELECT jsonb_build_object('synced', count(*) FILTER (WHERE outcome = 'synced'),
      'unchanged', count(*) FILTER (WHERE outcome IN ('unchanged', 'forgotten', 'skipped')),
      'deferred', count(*) FILTER (WHERE outcome = 'deferred'),
      'failed', count(*) FILTER (WHERE outcome = 'failed'),
      'dead', count(*) FILTER (WHERE outcome = 'dead')) AS counts,
    CASE WHEN count(operation) > 0 THEN jsonb_build_object('create', count(*) FILTER (WHERE operation = 'create'),
      'update', count(*) FILTER (WHERE operation = 'update'),
      'retire', count(*) FILTER (WHERE operation = 'retire')) END AS accepted,
    array_agg(key) AS keys
  FROM settled`;

/**
 * Writes the outcomes of a batch's records. The batch is done when every key has an outcome. Otherwise the settled keys
 * become a finished batch of their own, and this batch keeps the rest. The row tells which keys are open, because
 * another process may have settled some. Returns the open keys, and the outcomes that were written. `answered` is the
 * number of objects that the service answered and that were not counted yet. All statements, including those that
 * release the claim, are one round trip.
 */
export async function settleBatch(
  { db }: Pick<State, 'db'>,
  { id, runId, stream, level, operation, exempt }: Batch,
  settling: Settled & { releasing?: readonly SQL[]; answered?: number },
) {
  const countedAs = exempt ? null : operation;
  const settled = { ...settling, stream, runId, countedAs };
  const sent = settling.outcomes.filter(isSent).length;
  const [, [answer]] = (await queryTogether(db, [
    lockingKeys(id),
    sql`
    ${writeOutcomes(settled)}, open AS MATERIALIZED (
      SELECT key, place FROM slotsync.batches CROSS JOIN unnest(keys) WITH ORDINALITY AS k(key, place) WHERE ${isUnfinished(id)}
    ), settled AS MATERIALIZED (
      SELECT * FROM outcomes WHERE is_written AND key IN (SELECT key FROM open)
    ), remaining AS MATERIALIZED (
      SELECT coalesce(array_agg(key ORDER BY place), '{}') AS keys FROM open WHERE key NOT IN (SELECT key FROM settled)
    ), counted AS MATERIALIZED (${COUNTED}), part AS (
      INSERT INTO slotsync.batches (run_id, stream, level, operation, exempt, keys, state, counts, accepted, finished_at)
      SELECT ${runId}::bigint, ${stream}, ${level}::int, ${operation}, ${exempt}::boolean, c.keys, 'done', c.counts, c.accepted, now()
      FROM counted AS c, remaining AS r WHERE r.keys <> '{}' AND c.keys <> '{}'
    ), ended AS (
      UPDATE slotsync.batches AS b SET state = 'done', counts = c.counts, accepted = c.accepted, finished_at = now()
      FROM counted AS c, remaining AS r WHERE ${isUnfinished(id)} AND r.keys = '{}'
    ), left_open AS (
      UPDATE slotsync.batches AS b SET keys = r.keys
      FROM counted AS c, remaining AS r WHERE ${isUnfinished(id)} AND r.keys <> '{}' AND c.keys <> '{}'
    ), unheld AS (
      DELETE FROM slotsync.held WHERE stream = ${stream} AND local_key IN (
        SELECT key FROM settled WHERE outcome IN ('synced', 'unchanged', 'forgotten')) RETURNING 1
    )${settling.outcomes.some((outcome) => 'names' in outcome) ? notingWrites(settled) : sql``}
    SELECT r.keys AS open, ARRAY(SELECT key FROM outcomes WHERE NOT is_written) AS lost,
      EXISTS (SELECT FROM unheld) AS "hasUnheld"
    FROM remaining AS r`,
    ...followOutcomes(settled),
    ...(settling.releasing ?? []),
    // Last in the transaction, so that rows that all batches of a stream update are locked only briefly.
    ...(countedAs && sent > 0 ? [countingSent(stream, countedAs, sent)] : []),
    ...(settling.answered ? [countingAnswered(stream, settling.answered)] : []),
  ])) as [unknown, [{ open: string[]; lost: string[]; hasUnheld: boolean }]];
  if (answer.hasUnheld) await recountGates(db, stream);
  const lost = new Set(answer.lost);
  const written = settled.outcomes.filter(({ localKey }) => !lost.has(localKey));
  return { open: answer.open, written };
}

/**
 * Ends a batch as failed after its last attempt, and returns how many records it still had: they are `failed`, and the next run
 * tries them again. A record that cannot be written, such as one whose key no index takes, is left out.
 */
export async function failBatch({ db }: Pick<State, 'db'>, batch: Batch, error: Failed): Promise<number> {
  const { id, runId, stream } = batch;
  return db.transaction(async (tx) => {
    const [{ keys } = { keys: [] }] = await query<{ keys: string[] }>(tx)`${lockingKeys(id)}`;
    if (keys.length === 0) return 0;
    await query(tx)`
      UPDATE slotsync.batches SET state = 'failed', counts = ${JSON.stringify({ ...NO_OUTCOMES, failed: keys.length })}::jsonb,
        error_code = ${error.code}, error_message = ${storable(error.message)}, finished_at = now()
      WHERE ${isUnfinished(id)}`;
    await tryInHalves(keys, async (part) => {
      const failures = part.map((localKey) => ({ localKey, outcome: 'failed' as const, ...error }));
      try {
        await tx.transaction((savepoint) => failRecords(savepoint, stream, runId, failures));
        return [];
      } catch (thrown) {
        if (codeOf(thrown) !== 'state_failed') throw thrown;
        return part;
      }
    });
    return keys.length;
  });
}
