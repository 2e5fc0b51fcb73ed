// An operator's two answers to what a run holds. Each locks the run that holds it, so that a hold gets one answer, whoever
// answers at the same moment, on the page or in a shell.
import { and, eq, sql } from 'drizzle-orm';
import { UsageError } from '../../errors/errors.js';
import { query, queryOne, type Queries } from '../database.js';
import type { Waiting } from '../locks.js';
import { noteAction, type Actor } from '../actions.js';
import { holds as holdsTable } from '../schema.js';
import { APPROVAL, type Approval } from './approvals.js';
import { releaseHeldBatches } from './batches.js';
import { chooseHolds, type HoldChoice } from './choose-holds.js';
import { holdRejected } from './end-run.js';
import type { RunHold } from './holds.js';
import type { Run } from './read-runs.js';
import type { RunRequest } from './insert-run.js';
import { startRun } from './start-run.js';

interface Approving {
  actor: Actor;
  runId: number;
  choice: HoldChoice;
  /** The holds that the operator saw, each with the digest of its keys. */
  shown: readonly (RunHold & { keysDigest: string })[];
  /** These keys alone are allowed. */
  exactly: boolean;
  /** Hours after which the approval expires. */
  hours: number;
}

/**
 * Starts the run that does what is held, with an approval of it that only this run can use. When another run over the
 * streams is unfinished, that run is returned and nothing is approved. Throws UsageError when the hold was answered
 * meanwhile.
 */
export async function approveHeld(
  db: Queries,
  request: RunRequest,
  { actor, runId, choice, shown, exactly, hours }: Approving,
  waiting?: Waiting,
): Promise<{ run: Run; started: boolean; approvals: Approval[] }> {
  return db.transaction(async (tx) => {
    const { run, started } = await startRun(tx, request, waiting);
    await lockRun(tx, runId);
    const { holds } = await chooseHolds(tx, runId, choice);
    if (!started) return { run, started, approvals: [] };
    if (holds.length !== shown.length)
      throw new UsageError(`what run ${runId} holds has changed meanwhile; nothing was approved`);
    const expiresAt = sql`now() + make_interval(secs => ${hours * 60 * 60})`;
    const common = { ...decided('approved'), forRun: run.id, exactly, expiresAt, sameKeys: null };
    const given: Approval[] = [];
    for (const { stream, operation, count, keysDigest } of shown) {
      const isHold = isHoldOf(runId, { stream, operation });
      given.push(
        ...(await tx
          .update(holdsTable)
          .set({ ...common, allowed: count, keysDigest })
          .where(isHold)
          .returning(APPROVAL)),
      );
    }
    await noteAction(tx, actor, 'approve', { runId, subject: nameHolds(shown) });
    return { run, started, approvals: given };
  });
}

/**
 * Rejects the holds of a run that are chosen: their batches are cancelled, and a run that only waited is partial, because it
 * sent less than it planned. The mirror still says the same: the next plan may hold it again. Throws UsageError when
 * nothing of the choice is held, or it is approved.
 */
export async function rejectHolds(
  db: Queries,
  runId: number,
  choice: HoldChoice,
  actor: Actor,
): Promise<{ run: Run; holds: RunHold[] }> {
  return db.transaction(async (tx) => {
    await lockRun(tx, runId);
    const { run, holds } = await chooseHolds(tx, runId, choice);
    await noteAction(tx, actor, 'reject', { runId, subject: nameHolds(holds) });
    for (const { stream, operation } of holds) {
      await releaseHeldBatches(tx, { runId, stream, operation }, { to: 'cancelled' });
      await tx.update(holdsTable).set(decided('rejected')).where(isHoldOf(runId, { stream, operation }));
    }
    const left = await query(tx)`
      SELECT FROM slotsync.holds WHERE run_id = ${runId}::bigint AND state <> 'rejected' LIMIT 1`;
    if (run.status !== 'held' || left.length > 0) return { run, holds };
    const { records } = await queryOne<{ records: number }>(tx)`
      SELECT coalesce(sum(cardinality(keys)), 0)::int AS records FROM slotsync.batches
      WHERE run_id = ${runId}::bigint AND state = 'cancelled'`;
    const { code, message } = holdRejected(records);
    await query(tx)`
      UPDATE slotsync.runs SET status = 'partial', error_code = ${code}, error_message = ${message}
      WHERE id = ${runId}::bigint`;
    return { run, holds };
  });
}

const decided = (state: 'approved' | 'rejected') => ({ state, decidedAt: sql`now()` });

/** `staff: retire 199`. */
const nameHolds = (holds: readonly Pick<RunHold, 'stream' | 'operation' | 'count'>[]) =>
  holds.map(({ stream, operation, count }) => `${stream}: ${operation} ${count}`).join(', ');

const isHoldOf = (runId: number, { stream, operation }: Pick<RunHold, 'stream' | 'operation'>) =>
  and(
    eq(holdsTable.runId, runId),
    eq(holdsTable.stream, stream),
    eq(holdsTable.operation, operation),
    eq(holdsTable.state, 'open'),
  );

async function lockRun(tx: Queries, id: number): Promise<void> {
  await query(tx)`SELECT FROM slotsync.runs WHERE id = ${id}::bigint FOR NO KEY UPDATE`;
}
