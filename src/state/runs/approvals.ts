// An operator's approval of held records. It allows the number that was shown, is used by the first plan that needs it,
// which counts again, and expires.
import { and, eq, gt, inArray, isNull, sql } from 'drizzle-orm';
import { SlotsyncError } from '../../errors.js';
import type { Queries } from '../database.js';
import { approvals, type LimitedOperation } from '../schema.js';

export type Approval = typeof approvals.$inferSelect;

export type NewApproval = Pick<Approval, 'runId' | 'stream' | 'operation' | 'allowed'>;

const isOpen = and(isNull(approvals.usedBy), gt(approvals.expiresAt, sql`now()`));

/** Records approvals that expire after so many hours. Each replaces an open one of its stream and operation. */
export async function recordApprovals(
  db: Queries,
  given: readonly NewApproval[],
  hours: number,
): Promise<Approval[]> {
  return db.transaction(async (tx) => {
    for (const { stream, operation } of given) await revokeApprovals(tx, stream, operation);
    const expiresAt = sql`now() + make_interval(secs => ${hours * 60 * 60})`;
    return tx
      .insert(approvals)
      .values(given.map((approval) => ({ ...approval, expiresAt })))
      .returning();
  });
}

/** Ends the open approvals of a stream and operation. */
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

/** Approvals that were not used and have not expired. */
export async function listOpenApprovals(db: Queries, stream?: string): Promise<Approval[]> {
  const isOfStream = stream === undefined ? undefined : eq(approvals.stream, stream);
  return db.select().from(approvals).where(and(isOpen, isOfStream)).orderBy(approvals.id);
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
 * Marks approvals as used by a run. Call it in the transaction that releases the held batches. Throws SlotsyncError
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
