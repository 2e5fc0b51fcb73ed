// The keys of one request. A batch is a row before it is a job, and finished as a row: the queue may be lost at any time
// without losing a batch.
import { and, count, eq, gt, inArray, isNull, ne, or, sql } from 'drizzle-orm';
import type { Queries } from '../database.js';
import { batches, runs, type LimitedOperation } from '../schema.js';

/** A batch, with what of its run matters to it. */
export type Batch = NonNullable<Awaited<ReturnType<typeof readBatch>>>;
export type NewBatch = typeof batches.$inferInsert;

export async function insertBatches(db: Queries, rows: readonly NewBatch[]): Promise<void> {
  if (rows.length > 0) await db.insert(batches).values([...rows]);
}

/**
 * Removes what an interrupted planning left, of one stream or of all, so that it can start again. Of a run that is
 * planned already nothing is removed: a planner that was suspended meanwhile must not touch its batches.
 */
export async function deleteBatches(db: Queries, runId: number, stream?: string): Promise<void> {
  const isOfStream = stream === undefined ? undefined : eq(batches.stream, stream);
  const isPlanning = db
    .select({ id: runs.id })
    .from(runs)
    .where(and(eq(runs.id, runId), eq(runs.status, 'planning')));
  await db.delete(batches).where(and(inArray(batches.runId, isPlanning), isOfStream));
}

export async function readBatch(db: Queries, id: number) {
  const [row] = await db
    .select({
      id: batches.id,
      runId: batches.runId,
      stream: batches.stream,
      level: batches.level,
      operation: batches.operation,
      keys: batches.keys,
      state: batches.state,
      lane: runs.lane,
      isForced: sql<boolean>`coalesce((${runs.range}->>'force')::boolean, false)`,
      isPaused: sql<boolean>`${runs.pausedAt} IS NOT NULL`,
    })
    .from(batches)
    .innerJoin(runs, eq(runs.id, batches.runId))
    .where(eq(batches.id, id));
  return row;
}

/** The batches that should have a job, of one run or of all, with their lanes; those of paused runs should not. */
export async function listQueuedBatches(
  db: Queries,
  runId?: number,
): Promise<{ id: number; lane: string }[]> {
  const isOfRun = runId === undefined ? undefined : eq(batches.runId, runId);
  return db
    .select({ id: batches.id, lane: runs.lane })
    .from(batches)
    .innerJoin(runs, eq(runs.id, batches.runId))
    .where(and(eq(batches.state, 'queued'), isNull(runs.pausedAt), isOfRun))
    .orderBy(batches.id);
}

/** Ends the hold of an operation: its batches may go when it is their turn, or are cancelled. */
export async function releaseHeldBatches(
  db: Queries,
  held: { runId: number; stream: string; operation: LimitedOperation },
  to: 'planned' | 'cancelled',
): Promise<void> {
  await db
    .update(batches)
    .set({ state: to, finishedAt: to === 'cancelled' ? sql`now()` : null })
    .where(
      and(
        eq(batches.runId, held.runId),
        eq(batches.stream, held.stream),
        eq(batches.operation, held.operation),
        eq(batches.state, 'held'),
      ),
    );
}

/** Cancels what of a run is not finished. */
export async function cancelBatches(db: Queries, runId: number): Promise<void> {
  await db
    .update(batches)
    .set({ state: 'cancelled', finishedAt: sql`now()` })
    .where(and(eq(batches.runId, runId), inArray(batches.state, ['planned', 'queued', 'held'])));
}

/**
 * Records of a stream that incremental runs of the last day retire or have retired, one run left out. What a run that
 * is still being planned may release counts too, so that runs planned side by side see each other.
 */
export async function countRetiringToday(db: Queries, stream: string, exceptRun: number): Promise<number> {
  const keys = db
    .selectDistinct({ key: sql`unnest(${batches.keys})`.as('key') })
    .from(batches)
    .innerJoin(runs, eq(runs.id, batches.runId))
    .where(
      and(
        eq(runs.kind, 'incremental'),
        ne(runs.id, exceptRun),
        eq(batches.stream, stream),
        eq(batches.operation, 'retire'),
        gt(batches.createdAt, sql`now() - interval '1 day'`),
        or(
          inArray(batches.state, ['planned', 'queued', 'done']),
          and(eq(batches.state, 'held'), eq(runs.status, 'planning')),
        ),
      ),
    );
  const [row] = await db.select({ count: count() }).from(keys.as('keys'));
  return row?.count ?? 0;
}
