// How far each stream was polled by its cursor. One process polls at a time.
import { query, queryOne, type Queries, type State } from '../database.js';
import { tryLock, whileHolding } from '../locks.js';
import { watermarks } from '../schema.js';

export type Watermark = typeof watermarks.$inferSelect;

/** A position in the order of a stream's cursor. The cursor's value is text at full precision. */
export type CursorPosition = Pick<Watermark, 'cursor' | 'localKey'>;

export async function listWatermarks(db: Queries): Promise<Watermark[]> {
  return db.select().from(watermarks).orderBy(watermarks.stream);
}

/**
 * Runs one poll of a stream; what `poll` writes is one transaction. `busy`: another process is polling. Undefined when it was
 * never synced, or when its first sync is under way: what that run sends need not go through the inbox.
 */
export async function withPoll<T>(
  { db }: Pick<State, 'db'>,
  stream: string,
  poll: (tx: Queries, watermark: CursorPosition | undefined) => Promise<T>,
): Promise<T | 'busy' | undefined> {
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, 'polling'))) return 'busy';
    const [watermark] = await query<CursorPosition>(tx)`
      SELECT cursor, local_key AS "localKey" FROM slotsync.watermarks WHERE stream = ${stream}`;
    const { isSynced, isSyncing } = await queryOne<{ isSynced: boolean; isSyncing: boolean }>(tx)`
      SELECT EXISTS (SELECT FROM slotsync.records WHERE stream = ${stream}) AS "isSynced",
        EXISTS (SELECT FROM slotsync.runs WHERE finished_at IS NULL AND kind <> 'incremental'
          AND ${stream} = ANY (streams)) AS "isSyncing"`;
    if (!isSynced || (isSyncing && !watermark)) return undefined;
    return whileHolding(tx, () => poll(tx, watermark));
  });
}

/** Notes that a stream was polled up to this position. */
export async function moveWatermark(tx: Queries, stream: string, to: CursorPosition): Promise<void> {
  await query(tx)`
    INSERT INTO slotsync.watermarks (stream, cursor, local_key) VALUES (${stream}, ${to.cursor}, ${to.localKey})
    ON CONFLICT (stream) DO UPDATE SET cursor = excluded.cursor, local_key = excluded.local_key, moved_at = now()`;
}
