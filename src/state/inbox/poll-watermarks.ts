// How far each stream was polled by its cursor. One process polls a stream at a time.
import { and, arrayContains, eq, isNull, ne, sql } from 'drizzle-orm';
import { tryLock, type Queries, type State } from '../database.js';
import { records, runs, watermarks } from '../schema.js';

export type Watermark = typeof watermarks.$inferSelect;

/** A position in the order of a stream's cursor. The cursor's value is text at full precision. */
export type CursorPosition = Pick<Watermark, 'cursor' | 'localKey'>;

export async function listWatermarks(db: Queries): Promise<Watermark[]> {
  return db.select().from(watermarks).orderBy(watermarks.stream);
}

/**
 * Runs one poll of a stream; what `poll` writes is one transaction. Undefined when another process is polling the stream,
 * when it was never synced, or when its first sync is under way: what that run sends need not go through the inbox.
 */
export async function withPoll<T>(
  { db }: Pick<State, 'db'>,
  stream: string,
  poll: (tx: Queries, watermark: Watermark | undefined) => Promise<T>,
): Promise<T | undefined> {
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, `slotsync poll ${stream}`))) return undefined;
    const [watermark] = await tx.select().from(watermarks).where(eq(watermarks.stream, stream));
    const isSynced = tx.select({ stream: records.stream }).from(records).where(eq(records.stream, stream));
    if ((await isSynced.limit(1)).length === 0) return undefined;
    const isSyncing = and(
      isNull(runs.finishedAt),
      ne(runs.kind, 'incremental'),
      arrayContains(runs.streams, [stream]),
    );
    if (!watermark && (await tx.$count(runs, isSyncing)) > 0) return undefined;
    return poll(tx, watermark);
  });
}

export async function moveWatermark(
  tx: Queries,
  stream: string,
  { cursor, localKey }: CursorPosition,
): Promise<void> {
  await tx
    .insert(watermarks)
    .values({ stream, cursor, localKey })
    .onConflictDoUpdate({ target: watermarks.stream, set: { cursor, localKey, movedAt: sql`now()` } });
}
