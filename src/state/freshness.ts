// Stores the load of the mirror at the last plan of each stream: its age, and whether the age was a problem.
import { eq, sql } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { query, type Queries } from './database.js';
import { freshness } from './schema.js';

export type NotedLoad = typeof freshness.$inferSelect;

/** Load that a plan has read. `loadedAt` is null if the load time could not be read. */
export type SeenLoad = Omit<NotedLoad, 'stream' | 'syncedLoadAt'>;

export async function readLoad(db: Queries, stream: string): Promise<NotedLoad | undefined> {
  const [noted] = await db.select().from(freshness).where(eq(freshness.stream, stream));
  return noted;
}

export async function listLoads(db: Queries): Promise<NotedLoad[]> {
  return db.select().from(freshness).orderBy(freshness.stream);
}

/**
 * Stores the load that a plan has read, unless a later plan has stored one. If `isWhole`, the next nightly sync
 * compares its load with this one.
 */
export async function noteLoad(
  db: Queries,
  stream: string,
  { loadedAt, ...seen }: SeenLoad,
  { isWhole }: { isWhole: boolean },
): Promise<void> {
  const row = { stream, loadedAt, ...seen, syncedLoadAt: isWhole ? loadedAt : null };
  await db
    .insert(freshness)
    .values(row)
    .onConflictDoUpdate({
      target: freshness.stream,
      set: {
        ...seen,
        loadedAt: sql`coalesce(excluded.loaded_at, ${freshness.loadedAt})`,
        syncedLoadAt: sql`coalesce(excluded.synced_load_at, ${freshness.syncedLoadAt})`,
      },
      // A stored time in the future comes from a wrong clock and is overwritten.
      setWhere: sql`${freshness.readAt} <= excluded.read_at OR ${freshness.readAt} > now() + interval '1 minute'`,
    });
}

/** Deletes the loads of all streams outside `streams`. */
export async function keepLoads(db: Queries, streams: readonly string[]): Promise<void> {
  await query(db)`DELETE FROM slotsync.freshness WHERE NOT stream = ANY (${arrayLiteral(streams)}::text[])`;
}
