// A batch ends in one transaction with the outcomes of its records. The run is advanced after that, by `advanceRun`.
import { and, eq, inArray } from 'drizzle-orm';
import type { Queries, State } from '../database.js';
import { failRecords } from '../records/fail-records.js';
import { countOutcomes, NO_OUTCOMES } from '../records/outcomes.js';
import { settleRecords, type Settled } from '../records/settle-records.js';
import { batches } from '../schema.js';
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
    const done = { state: 'done', counts: countOutcomes(outcomes) } as const;
    if (remaining.length === 0) {
      await finishBatch(tx, id, done);
    } else if (keys.size > 0) {
      const finishedAt = new Date();
      await insertBatches(tx, [{ runId, stream, level, operation, keys: [...keys], ...done, finishedAt }]);
      await tx.update(batches).set({ keys: remaining }).where(eq(batches.id, id));
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
    const reason = { errorCode: error.code, errorMessage: error.message };
    if (!(await finishBatch(tx, id, { state: 'failed', counts, ...reason }))) return;
    const failures = keys.map((localKey) => ({ localKey, ...error }));
    await failRecords(tx, stream, runId, failures);
  });
}

async function finishBatch(
  tx: Queries,
  id: number,
  end: Pick<typeof batches.$inferInsert, 'state' | 'counts' | 'errorCode' | 'errorMessage'>,
): Promise<boolean> {
  const isOpen = and(eq(batches.id, id), inArray(batches.state, ['queued', 'planned']));
  const ended = { errorCode: null, errorMessage: null, ...end, finishedAt: new Date() };
  const finished = await tx.update(batches).set(ended).where(isOpen).returning();
  return finished.length > 0;
}
