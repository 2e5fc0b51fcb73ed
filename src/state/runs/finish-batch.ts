// A batch ends in one transaction with the outcomes of its records. The run is advanced after that, by `advanceRun`.
import { arrayLiteral } from '../../sql-text.js';
import { query, type Queries, type State } from '../database.js';
import { failRecords } from '../records/mark-failed.js';
import { countOutcomes, NO_OUTCOMES } from '../records/outcome-types.js';
import { settleRecords, type Settled } from '../records/settle-records.js';
import type { OutcomeCounts } from '../schema.js';
import { insertBatches, type Batch } from './batches.js';
import type { Failed } from './end-run.js';

/**
 * Writes the outcomes of a batch's records, and the batch is done when every key has its outcome; otherwise the settled
 * keys become a finished batch of their own and this one keeps the rest. Returns the keys that remain.
 */
export async function settleBatch({ db }: Pick<State, 'db'>, batch: Batch, settled: Settled) {
  const { id, runId, stream, level, operation } = batch;
  return db.transaction(async (tx) => {
    const lost = new Set(await settleRecords(tx, { ...settled, stream, runId }));
    const outcomes = settled.outcomes.filter(({ localKey }) => !lost.has(localKey));
    const keys = new Set(outcomes.map(({ localKey }) => localKey));
    const remaining = batch.keys.filter((key) => !keys.has(key));
    const counts = countOutcomes(outcomes);
    if (remaining.length === 0) {
      await finishBatch(tx, id, counts);
    } else if (keys.size > 0) {
      const done = { state: 'done', counts, finishedAt: new Date() } as const;
      await insertBatches(tx, [{ runId, stream, level, operation, keys: [...keys], ...done }]);
      await query(
        tx,
      )`UPDATE slotsync.batches SET keys = ${arrayLiteral(remaining)}::text[] WHERE id = ${id}::bigint`;
    }
    return remaining;
  });
}

/**
 * Gives a batch up after its last attempt. Its records are `failed`: the next run tries them again. Those of a batch that
 * has ended meanwhile stay as they are.
 */
export async function failBatch({ db }: Pick<State, 'db'>, batch: Batch, error: Failed): Promise<void> {
  const { id, runId, stream, keys } = batch;
  const counts = { ...NO_OUTCOMES, failed: keys.length };
  await db.transaction(async (tx) => {
    if (!(await finishBatch(tx, id, counts, error))) return;
    const failures = keys.map((localKey) => ({ localKey, ...error }));
    await failRecords(tx, stream, runId, failures);
  });
}

/** Ends a batch, as failed with an error and as done without; false: it has ended meanwhile. */
async function finishBatch(tx: Queries, id: number, counts: OutcomeCounts, error?: Failed): Promise<boolean> {
  const finished = await query(tx)`
    UPDATE slotsync.batches SET state = ${error ? 'failed' : 'done'}, counts = ${JSON.stringify(counts)}::jsonb,
      error_code = ${error?.code ?? null}, error_message = ${error?.message ?? null}, finished_at = now()
    WHERE id = ${id}::bigint AND state IN ('queued', 'planned')`;
  return finished.count > 0;
}
