// Closes gates. At the end of a plan, gates take held keys from the run's batches, and gates without keys are deleted.
// While a run sends, a gate is closed if too much was refused, the stream was frozen, or the service forbids a kind of
// request. The gate then takes the keys of batches that were not begun. Batches in flight end as usual.
import { anyOf, query, type Queries } from '../database.js';
import type { DueReason, Hold, LimitedOperation } from '../schema.js';
import { markDue, notePlannedWhole, type StreamStanding } from '../streams.js';
import { NOT_APPROVED } from './answers.js';
import { nameOfGate } from './gates.js';
import { holdBatches, recountGates, releaseReplaced, type ClosedGate } from './held.js';
import { toStorableJson } from '../records/outcome-types.js';

export interface StreamPlan {
  stream: string;
  runId: number;
  isWhole: boolean;
  /** Facts about the stream from before the plan read the mirror. */
  standing: StreamStanding;
  /** Keys that the plan was to cover. If undefined, the whole stream or the run's range. */
  keys: readonly string[] | undefined;
  /** Holds by gate name (see `nameOfGate`). */
  holds: Readonly<Record<string, Hold>>;
  /** Operations whose approvals remain valid, because the plan could not use them. */
  unused: readonly LimitedOperation[];
  exempt: readonly LimitedOperation[];
  fingerprint: string;
  /** Number of deleted rows whose objects only a whole sync may retire. */
  gone: number;
  /** True if `--limit` made the plan leave out rows. */
  isLimited: boolean;
}

/**
 * Ends the plans of streams, in the transaction that ends the planning of their run, after the batches were written.
 * Returns, by stream, the number of held records and the gates that an operator has rejected.
 */
export async function endStreamPlans(
  tx: Queries,
  plans: readonly StreamPlan[],
): Promise<Map<string, KeptBack>> {
  const held = new Map<string, KeptBack>();
  for (const plan of plans) held.set(plan.stream, await keepBack(tx, plan));
  const whole = plans.filter(({ isWhole }) => isWhole);
  await notePlannedWhole(
    tx,
    whole.map(({ stream, fingerprint, standing, holds }) => ({
      stream,
      fingerprint,
      begunAt: standing.at,
      maySend: standing.frozen === null,
      passedAt: standing.mirrorChange !== null && Object.keys(holds).length === 0 ? standing.at : null,
      refusalsAllowed: standing.gates.find(({ reason }) => reason === 'refused')?.allowed ?? 0,
    })),
  );
  for (const plan of plans) {
    const reason = dueAfter(plan);
    if (reason) await markDue(tx, [plan.stream], reason);
  }
  return held;
}

/** Returns why the stream needs a whole sync after this plan. Undefined if it needs none. */
function dueAfter({ holds, isLimited, gone }: StreamPlan): DueReason | undefined {
  if (Object.values(holds).some(({ reason }) => reason === 'frozen')) return 'frozen';
  if (isLimited) return 'limited';
  return gone > 0 ? 'rows_gone' : undefined;
}

interface KeptBack {
  records: number;
  /** Names of rejected gates. */
  rejected: ReadonlySet<string>;
}

async function keepBack(tx: Queries, plan: StreamPlan): Promise<KeptBack> {
  const { stream, runId, isWhole, standing, holds, exempt } = plan;
  if (exempt.length > 0)
    await query(tx)`
      UPDATE slotsync.batches SET exempt = true
      WHERE run_id = ${runId}::bigint AND stream = ${stream} AND operation = ${anyOf(exempt)}`;
  const held = Object.values(holds);
  let records = 0;
  // A gate of all operations comes first, because it takes every batch.
  for (const hold of held.toSorted((a, b) => Number(b.operation === '*') - Number(a.operation === '*'))) {
    const batches = { runId, stream, ...(hold.operation !== '*' && { operations: [hold.operation] }) };
    for (const part of await holdBatches(tx, batches, hold)) records += part.records;
  }
  const closed = held.map(({ operation, reason, facts, samples }) => ({
    operation,
    reason,
    runId,
    facts,
    samples,
  }));
  let released = 0;
  // A whole plan takes long, so another plan may have closed a gate meanwhile.
  if (isWhole || standing.gates.length > 0) {
    const isFrozen = standing.frozen !== null;
    released = await releaseReplaced(tx, { ...plan, startedAt: standing.at, isFrozen });
    if (isWhole && !isFrozen) await endApprovals(tx, plan);
  }
  const isCounted = released > 0 || closed.length > 0 || (isWhole && standing.gates.length > 0);
  const rejected = isCounted ? await recountGates(tx, stream, closed, { isWhole }) : [];
  return { records, rejected: new Set(rejected.map(nameOfGate)) };
}

/** Ends the approvals that a whole plan found, used or not. Approvals that could not be used yet remain. */
async function endApprovals(tx: Queries, { stream, standing, unused }: StreamPlan): Promise<void> {
  if (standing.gates.every(({ allowed }) => allowed === null)) return;
  const kept = unused.flatMap((operation) => [operation, '*']);
  await query(tx)`
    UPDATE slotsync.gates SET ${NOT_APPROVED}
    WHERE stream = ${stream} AND approved_at <= ${standing.at}::text::timestamptz
      AND NOT (operation = ${anyOf(kept)})`;
}

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
