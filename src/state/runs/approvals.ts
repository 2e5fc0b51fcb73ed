// A person's word that so many held records may go. It allows the number that was shown, is used by the first plan
// that needs it, which counts again, and lapses.
import { and, eq, gt, inArray, isNull, sql } from 'drizzle-orm';
import { SlotsyncError } from '../../errors.js';
import { queryState, type Queries } from '../database.js';
import { approvals, type LimitedOperation } from '../schema.js';

export type Approval = typeof approvals.$inferSelect;

export interface NewApproval {
  /** The run whose hold is approved. */
  runId: number;
  stream: string;
  operation: LimitedOperation;
  /** Records that may go at most. */
  allowed: number;
}

const isOpen = and(isNull(approvals.usedBy), gt(approvals.expiresAt, sql`now()`));

/** Records approvals that lapse after so many hours. Each takes the place of an older one of its stream and operation. */
export async function recordApprovals(
  db: Queries,
  words: readonly NewApproval[],
  hours: number,
): Promise<Approval[]> {
  return queryState(() =>
    db.transaction(async (tx) => {
      for (const { stream, operation } of words) await revokeApprovals(tx, stream, operation);
      const expiresAt = sql`now() + make_interval(secs => ${hours * 60 * 60})`;
      return tx
        .insert(approvals)
        .values(words.map((word) => ({ ...word, expiresAt })))
        .returning();
    }),
  );
}

/** Ends the approvals of a stream and operation that were not used. */
export async function revokeApprovals(
  tx: Queries,
  stream: string,
  operation: LimitedOperation,
): Promise<void> {
  await tx
    .update(approvals)
    .set({ expiresAt: sql`now()` })
    .where(and(isOpen, eq(approvals.stream, stream), eq(approvals.operation, operation)));
}

/** Approvals that were neither used nor have lapsed. */
export async function listOpenApprovals(db: Queries, stream?: string): Promise<Approval[]> {
  const ofStream = stream === undefined ? undefined : eq(approvals.stream, stream);
  return queryState(() => db.select().from(approvals).where(and(isOpen, ofStream)).orderBy(approvals.id));
}

/** The same of one stream, by operation. */
export async function readOpenApprovals(
  db: Queries,
  stream: string,
): Promise<Map<LimitedOperation, Approval>> {
  const open = await listOpenApprovals(db, stream);
  return new Map(open.map((approval) => [approval.operation, approval]));
}

/**
 * Marks approvals as used by a run. Call it in the transaction that lets the held batches go. Throws SlotsyncError
 * `approval_withdrawn` when one of them was used, revoked or replaced since it was read: plan again.
 */
export async function useApprovals(tx: Queries, ids: readonly number[], runId: number): Promise<void> {
  if (ids.length === 0) return;
  const used = await tx
    .update(approvals)
    .set({ usedBy: runId })
    .where(and(isOpen, inArray(approvals.id, [...ids])))
    .returning({ id: approvals.id });
  if (used.length === ids.length) return;
  throw new SlotsyncError('approval_withdrawn', 'an approval was withdrawn while the run was planned', {});
}
