// The load of the mirror that each stream was planned over last: how old it was, and whether that was a problem.
import { eq, sql } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import { query, type Queries } from './database.js';
import { freshness } from './schema.js';

/** The load of one stream, as it was read last. */
export type NotedLoad = typeof freshness.$inferSelect;

/** A load as a plan has read it. `loadedAt` is null where that cannot be read. */
export type SeenLoad = Omit<NotedLoad, 'stream' | 'syncedLoadAt'>;

export async function readLoad(db: Queries, stream: string): Promise<NotedLoad | undefined> {
  const [noted] = await db.select().from(freshness).where(eq(freshness.stream, stream));
  return noted;
}

export async function listLoads(db: Queries): Promise<NotedLoad[]> {
  return db.select().from(freshness).orderBy(freshness.stream);
}

/**
 * Notes what a plan has read, unless a later plan has read it since. `isWhole`: a sync of all of the stream, which the next
 * nightly sync compares with.
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
      // A time that is still to come was noted by a wrong clock, and does not stay.
      setWhere: sql`${freshness.readAt} <= excluded.read_at OR ${freshness.readAt} > now() + interval '1 minute'`,
    });
}

/** Forgets the loads of all streams but these. */
export async function keepLoads(db: Queries, streams: readonly string[]): Promise<void> {
  await query(db)`DELETE FROM slotsync.freshness WHERE NOT stream = ANY (${arrayLiteral(streams)}::text[])`;
}
