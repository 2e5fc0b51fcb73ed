// A batch ends in one transaction with the outcomes of its records. The run is advanced after that, by `advanceRun`.
import { codeOf } from '../../errors/errors.js';
import { arrayLiteral } from '../../text/sql-text.js';
import { query, type Queries, type State } from '../database.js';
import { failRecords } from '../records/fail-records.js';
import { countAccepted, countOutcomes, NO_OUTCOMES, storable } from '../records/outcome-types.js';
import { settleRecords, type Settled } from '../records/settle-records.js';
import type { AcceptedCounts, OutcomeCounts } from '../schema.js';
import { insertBatches, type Batch } from './batches.js';
import type { Failed } from './end-run.js';

/**
 * Writes the outcomes of a batch's records, and the batch is done when every key has its outcome; otherwise the settled
 * keys become a finished batch of their own and this one keeps the rest. Which keys are still open, the row says: another
 * process may have settled some since the batch was read, and none counts twice. Returns the keys that remain open, and the
 * outcomes that became those of their records.
 */
export async function settleBatch({ db }: Pick<State, 'db'>, batch: Batch, settled: Settled) {
  const { id, runId, stream, level, operation, exempt } = batch;
  return db.transaction(async (tx) => {
    const open = new Set(await lockOpenKeys(tx, id));
    const lost = new Set(await settleRecords(tx, { ...settled, stream, runId }));
    const written = settled.outcomes.filter(({ localKey }) => !lost.has(localKey));
    const outcomes = written.filter(({ localKey }) => open.has(localKey));
    const keys = new Set(outcomes.map(({ localKey }) => localKey));
    const remaining = [...open].filter((key) => !keys.has(key));
    const counted = { counts: countOutcomes(outcomes), accepted: countAccepted(outcomes) };
    if (remaining.length === 0) {
      await finishBatch(tx, id, counted);
    } else if (keys.size > 0) {
      const done = { state: 'done', ...counted } as const;
      await insertBatches(tx, [{ runId, stream, level, operation, exempt, keys: [...keys], ...done }]);
      await query(
        tx,
      )`UPDATE slotsync.batches SET keys = ${arrayLiteral(remaining)}::text[] WHERE id = ${id}::bigint`;
    }
    return { open: remaining, written };
  });
}

/**
 * Ends a batch as failed after its last attempt, and returns how many records it still had: they are `failed`, and the next run
 * tries them again. The batch ends also when a record cannot be written.
 */
export async function failBatch({ db }: Pick<State, 'db'>, batch: Batch, error: Failed): Promise<number> {
  const { id, runId, stream } = batch;
  return db.transaction(async (tx) => {
    const keys = await lockOpenKeys(tx, id);
    const counts = { ...NO_OUTCOMES, failed: keys.length };
    if (keys.length === 0 || !(await finishBatch(tx, id, { counts, accepted: null }, error))) return 0;
    await failEach(tx, { stream, runId }, keys, error);
    return keys.length;
  });
}

/** The keys of a batch that have no outcome yet; none when it has ended. No other process settles it until then. */
async function lockOpenKeys(tx: Queries, id: number): Promise<string[]> {
  const [row] = await query<{ keys: string[] }>(tx)`
    SELECT keys FROM slotsync.batches
    WHERE id = ${id}::bigint AND state IN ('queued', 'planned') FOR NO KEY UPDATE`;
  return row?.keys ?? [];
}

/**
 * Marks records as failed, except those that cannot be written, such as a key that no index takes: the halves are tried
 * on their own.
 */
async function failEach(
  tx: Queries,
  of: { stream: string; runId: number },
  keys: readonly string[],
  error: Failed,
): Promise<void> {
  const failures = keys.map((localKey) => ({ localKey, ...error }));
  try {
    await tx.transaction((savepoint) => failRecords(savepoint, of.stream, of.runId, failures));
  } catch (thrown) {
    if (codeOf(thrown) !== 'state_failed') throw thrown;
    if (keys.length === 1) return;
    const middle = Math.ceil(keys.length / 2);
    await failEach(tx, of, keys.slice(0, middle), error);
    await failEach(tx, of, keys.slice(middle), error);
  }
}

/** Ends a batch, as failed with an error and as done without; false: it has ended meanwhile. */
async function finishBatch(
  tx: Queries,
  id: number,
  { counts, accepted }: { counts: OutcomeCounts; accepted: AcceptedCounts | null },
  error?: Failed,
): Promise<boolean> {
  const message = error && storable(error.message);
  const finished = await query(tx)`
    UPDATE slotsync.batches SET state = ${error ? 'failed' : 'done'}, counts = ${JSON.stringify(counts)}::jsonb,
      accepted = ${accepted && JSON.stringify(accepted)}::jsonb,
      error_code = ${error?.code ?? null}, error_message = ${message ?? null}, finished_at = now()
    WHERE id = ${id}::bigint AND state IN ('queued', 'planned')`;
  return finished.count > 0;
}
