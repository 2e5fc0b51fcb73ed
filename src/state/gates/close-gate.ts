// Closes a gate while a run sends: too much was refused, the stream was frozen, or the service forbids a kind of
// request. The gate takes the keys of batches that were not begun. Batches in flight end as usual.
import { query, type Queries } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { LimitedOperation } from '../schema.js';
import { markDue } from '../streams.js';
import { nameOfGate } from './gates.js';
import { holdBatches, recountGates, type ClosedGate } from './held.js';

/** Closes a gate and holds the keys that its run has not begun to send. Returns the number of held keys. */
export async function closeGate(db: Queries, stream: string, gate: ClosedGate): Promise<number> {
  const { runId, operation, reason, facts } = gate;
  return db.transaction(async (tx) => {
    // Locks the run, so that its cancelling or its next step waits for this transaction.
    const [run] = await query(tx)`
      SELECT FROM slotsync.runs WHERE id = ${runId}::bigint AND finished_at IS NULL FOR NO KEY UPDATE`;
    if (!run) return 0;
    const operations: LimitedOperation[] | undefined = operation === '*' ? undefined : [operation];
    const taken = await holdBatches(tx, { runId, stream, ...(operations && { operations }) }, gate);
    const count = taken.reduce((sum, { records }) => sum + records, 0);
    if (count === 0) return 0;
    const name = nameOfGate(gate);
    const hold = toStorableJson({ operation, reason, facts });
    await query(tx)`
      UPDATE slotsync.runs SET
        plan = jsonb_set(plan, ARRAY[${stream}, 'inBatches'], to_jsonb(coalesce((plan->${stream}->>'inBatches')::int, 0) - ${count}::int)),
        holds = jsonb_set(jsonb_set(holds, ARRAY[${stream}], coalesce(holds->${stream}, '{}')), ARRAY[${stream}, ${name}],
          ${hold}::jsonb || coalesce(holds->${stream}->${name}, '{}') || jsonb_build_object('count', coalesce((holds->${stream}->${name}->>'count')::int, 0) + ${count}::int))
      WHERE id = ${runId}::bigint`;
    await recountGates(tx, stream, [gate]);
    if (reason === 'frozen') await markDue(tx, [stream], 'frozen');
    return count;
  });
}
