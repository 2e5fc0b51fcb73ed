// Brings the schema up to date, and says what is missing when it is not.
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { drizzle } from 'drizzle-orm/postgres-js';
import { migrate as runMigrations } from 'drizzle-orm/postgres-js/migrator';
import { sql } from 'drizzle-orm';
import postgres from 'postgres';
import { UsageError } from '../errors.js';
import { MIGRATIONS_FOLDER, MIGRATIONS_TABLE, queryState, type State } from './database.js';

/** Any fixed number: whoever migrates holds this advisory lock. */
const MIGRATION_LOCK = 7_215_604_113;

/** Applies what is missing. Two at once wait for each other. Returns how many migrations were applied. */
export async function migrate(databaseUrl: string): Promise<{ applied: number }> {
  const client = postgres(databaseUrl, { max: 1, connect_timeout: 10, onnotice: () => undefined });
  try {
    return await queryState(async () => {
      await client`SELECT pg_advisory_lock(${String(MIGRATION_LOCK)}::bigint)`;
      const db = drizzle(client);
      const before = await countApplied(db);
      await runMigrations(db, { migrationsFolder: MIGRATIONS_FOLDER, ...MIGRATIONS_TABLE });
      return { applied: (await countApplied(db)) - before };
    });
  } finally {
    await client.end({ timeout: 2 });
  }
}

/** Throws UsageError unless the schema is exactly the one this program knows. */
export async function requireMigrated(state: State): Promise<void> {
  const known = readMigrationFiles({ migrationsFolder: MIGRATIONS_FOLDER, ...MIGRATIONS_TABLE });
  const latest = known.at(-1)?.folderMillis ?? 0;
  const applied = await queryState(async () => {
    const [table] = await state.db.execute<{ present: boolean }>(
      sql`SELECT to_regclass('slotsync.migrations') IS NOT NULL AS present`,
    );
    if (!table?.present) return 0;
    const [row] = await state.db.execute<{ latest: string | null }>(
      sql`SELECT max(created_at)::text AS latest FROM slotsync.migrations`,
    );
    return Number(row?.latest ?? 0);
  });
  if (applied < latest) {
    throw new UsageError(
      applied === 0
        ? 'the state database has no slotsync schema yet'
        : 'the state database has an older slotsync schema than this program',
      { remedy: 'Run `slotsync migrate`.' },
    );
  }
  if (applied > latest) {
    throw new UsageError('the state database has a newer slotsync schema than this program', {
      remedy: 'Update slotsync on this machine to the version that migrated it.',
    });
  }
}

async function countApplied(db: Pick<State['db'], 'execute'>): Promise<number> {
  const [table] = await db.execute<{ present: boolean }>(
    sql`SELECT to_regclass('slotsync.migrations') IS NOT NULL AS present`,
  );
  if (!table?.present) return 0;
  const [row] = await db.execute<{ count: number }>(
    sql`SELECT count(*)::int AS count FROM slotsync.migrations`,
  );
  return row?.count ?? 0;
}
