// A gate that closes while a run is sent: too much was refused, the stream was frozen, or the service forbids a kind of request.
// Batches that were not begun leave the run, and their keys are held. Batches that are being sent end as usual.
import { query, type Queries } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { LimitedOperation } from '../schema.js';
import { markDue } from '../streams.js';
import { nameOfGate } from './gates.js';
import { holdBatches, recountGates, type ClosedGate } from './held.js';

/** Closes a gate of a stream, and lets it keep what its run has not begun to send. Returns how many keys it has taken. */
export async function closeGate(db: Queries, stream: string, gate: ClosedGate): Promise<number> {
  const { runId, operation, reason, facts } = gate;
  return db.transaction(async (tx) => {
    // A run that is cancelled or takes a step waits, and the other way round.
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
