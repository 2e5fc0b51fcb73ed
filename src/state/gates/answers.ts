// Approves or rejects closed gates. Locks each gate, so that only one of several simultaneous answers succeeds.
import { sql } from 'drizzle-orm';
import { UsageError } from '../../errors/errors.js';
import { noteAction, type Actor } from '../actions.js';
import { query, queryCount, type Queries } from '../database.js';
import { readRun } from '../runs/read-runs.js';
import { GATE_REASONS, GATED_OPERATIONS } from '../schema.js';
import { nameOfGate, readGates, type Gate } from './gates.js';

/** Filter of gates by stream, operation and reason (`gate`). */
export interface GateChoice {
  stream?: string | undefined;
  operation?: string | undefined;
  gate?: string | undefined;
}

/**
 * Returns a run's unapproved gates that match the filter. Throws UsageError if no gate matches or all are approved.
 */
export async function chooseGates(
  db: Queries,
  runId: number,
  { stream, operation, gate }: GateChoice,
): Promise<Gate[]> {
  const operations = GATED_OPERATIONS.filter((known) => known !== '*');
  if (operation !== undefined && !operations.some((known) => known === operation))
    throw new UsageError(`--operation takes ${operations.join(', ')}, not '${operation}'`);
  if (gate !== undefined && !GATE_REASONS.some((known) => known === gate))
    throw new UsageError(`--gate takes ${GATE_REASONS.join(', ')}, not '${gate}'`);
  const all = await readGates(db, { runId });
  if (all.length === 0) throw await explainNothing(db, runId);
  const gates = all.filter(
    (one) =>
      one.stream === (stream ?? one.stream) &&
      one.operation === (operation ?? one.operation) &&
      one.reason === (gate ?? one.reason),
  );
  if (gates.length === 0) {
    const requested = [operation ?? gate, stream].filter((name) => name !== undefined).join(' of ');
    const held = all.map((one) => `${nameOfGate(one)} of ${one.stream}`).join(', ');
    throw new UsageError(`run ${runId} does not hold ${requested}; it holds: ${held}`);
  }
  const open = gates.filter(({ approval }) => approval === null);
  const [approved] = gates;
  if (open.length === 0 && approved)
    throw new UsageError(
      `${nameOfGate(approved)} of ${approved.stream}, held in run ${runId}, is already approved: run ${approved.approval?.runId} sends it; to stop it: slotsync cancel ${approved.approval?.runId}`,
    );
  return open;
}

async function explainNothing(db: Queries, runId: number): Promise<UsageError> {
  const run = await readRun(db, runId);
  if (!run) return new UsageError(`there is no run ${runId}; slotsync status shows what is held`);
  const streams = Object.keys(run.holds);
  if (streams.length === 0)
    return new UsageError(`run ${runId} holds nothing; slotsync status shows what is held`);
  return new UsageError(
    `the records that run ${runId} held of ${streams.join(', ')} have been sent or planned again since; slotsync status shows what is held`,
  );
}

export interface GivenApproval {
  actor: Actor;
  runId: number;
  /** True if only the keys that the gate holds now are approved. */
  exactly: boolean;
  hours: number;
}

/**
 * Stores an approval of the gates that were shown to the operator. Must be called in the transaction that starts the
 * run. Throws UsageError if a gate was answered, or holds other keys, since it was shown.
 */
export async function approveGates(
  tx: Queries,
  shown: readonly Gate[],
  { actor, runId, exactly, hours }: GivenApproval,
): Promise<void> {
  for (const gate of shown) {
    const approved = await queryCount(tx)`
      UPDATE slotsync.gates SET allowed = count, allowed_digest = CASE WHEN ${exactly} THEN digest END, approved_at = now(),
        approved_by = ${actor.by}, approved_run = ${runId}::bigint, answer_reason = ${actor.reason ?? null},
        expires_at = now() + make_interval(secs => ${hours * 60 * 60}), rejected_at = NULL, rejected_by = NULL
      WHERE ${isShown(gate)} AND (allowed IS NULL OR expires_at <= now())`;
    if (approved === 0) throw changedMeanwhile(gate);
  }
  await noteAction(tx, actor, 'approve', { runId: shown[0]?.runId, subject: nameGates(shown) });
}

/**
 * Rejects the chosen gates and returns them. They stay closed, and no operator is asked again until their keys change.
 * Throws UsageError if a gate was answered meanwhile.
 */
export async function rejectGates(
  db: Queries,
  runId: number,
  choice: GateChoice,
  actor: Actor,
): Promise<Gate[]> {
  return db.transaction(async (tx) => {
    const gates = await chooseGates(tx, runId, choice);
    for (const gate of gates) {
      const rejected = await queryCount(tx)`
        UPDATE slotsync.gates SET rejected_at = now(), rejected_by = ${actor.by}, answer_reason = ${actor.reason ?? null},
          ${NOT_APPROVED}
        WHERE ${isShown(gate)} AND (allowed IS NULL OR expires_at <= now())`;
      if (rejected === 0) throw changedMeanwhile(gate);
    }
    await noteAction(tx, actor, 'reject', { runId, subject: nameGates(gates) });
    return gates;
  });
}

/** Withdraws the approval that started a cancelled run. The gates can then be approved again. */
export async function withdrawApprovals(tx: Queries, runId: number): Promise<void> {
  await query(tx)`UPDATE slotsync.gates SET ${NOT_APPROVED} WHERE approved_run = ${runId}::bigint`;
}

export const NOT_APPROVED = sql.raw(
  'allowed = NULL, allowed_digest = NULL, approved_at = NULL, approved_by = NULL, approved_run = NULL, expires_at = NULL',
);

const isShown = ({ stream, operation, reason, digest }: Gate) =>
  sql`stream = ${stream} AND operation = ${operation} AND reason = ${reason} AND digest = ${digest}`;

const changedMeanwhile = ({ stream, ...gate }: Gate) =>
  new UsageError(
    `${nameOfGate(gate)} of ${stream} has been answered, or holds other records, since it was shown; nothing was changed`,
    { remedy: 'To see the current state: slotsync status' },
  );

/** Example: `staff: retire 199`. */
const nameGates = (gates: readonly Gate[]) =>
  gates.map((gate) => `${gate.stream}: ${nameOfGate(gate)} ${gate.count}`).join(', ');
