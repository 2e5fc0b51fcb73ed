// Migrates the schema, or says what is missing. Numbered migrations are applied once, in order. Files of
// migrations/repeatable contain functions and are applied again when they change.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import { sql } from 'drizzle-orm';
import { codeOf, SlotsyncError, UsageError } from '../errors/errors.js';
import type { SettingText } from '../config/setting-text.js';
import { connectPostgres, LONG_ANSWER_MS } from '../connections/postgres-connection.js';
import { describeEncoding, ENCODING, ENCODING_REMEDY } from '../connections/postgres-faults.js';
import { isNoTable, queriesOver, query, queryOne, type Queries, type State } from './database.js';
import { causeOf, changeSchema, type Waiting } from './locks.js';

const FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url));
const NUMBERED = { migrationsFolder: FOLDER, migrationsSchema: 'slotsync', migrationsTable: 'migrations' };
const REPEATABLE_FOLDER = path.join(FOLDER, 'repeatable');
const RUN_MIGRATE = 'Run `slotsync migrate`.';

/**
 * Applies missing migrations in one transaction and returns their number. Waits for sessions that use the tables.
 * Throws UsageError if the schema is newer than this program, or from an unreleased version.
 */
export async function migrate(databaseUrl: SettingText, waiting?: Waiting): Promise<{ applied: number }> {
  const client = connectPostgres(databaseUrl, 'migrate', {}, { answerWithinMs: LONG_ANSWER_MS });
  try {
    return await changeSchema(queriesOver(client), applyMissing, waiting);
  } finally {
    await client.end({ timeout: 2 });
  }
}

/** Applies missing migrations in the caller's transaction, which holds the lock `migrate`. */
async function applyMissing(tx: Queries) {
  await requireOwnSchema(tx);
  await createSchema(tx);
  await query(tx)`CREATE TABLE IF NOT EXISTS slotsync.lock_migrate ()`;
  await query(tx)`LOCK TABLE slotsync.lock_migrate IN SHARE UPDATE EXCLUSIVE MODE`;
  await query(tx)`
    CREATE TABLE IF NOT EXISTS slotsync.migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint)`;
  const before = await readApplied(tx);
  refuseNewer(before);
  refuseUnreleased(before);
  await applyNumbered(tx, before);
  const { hashes, checksums } = await readApplied(tx);
  const changed = readChanged(checksums);
  for (const { name, checksum, text } of changed) {
    await tx.execute(sql.raw(text));
    await query(tx)`
      INSERT INTO slotsync.repeatable_migrations (name, checksum) VALUES (${name}, ${checksum})
      ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = now()`;
  }
  return { applied: hashes.length - before.hashes.length + changed.length };
}

/**
 * Refuses another role's schema before reading it, because its views and functions would run with the rights of this
 * role. Trusts superusers, and roles of which this role is a member (a superuser is a member of all).
 */
async function requireOwnSchema(db: Queries): Promise<void> {
  const [foreign] = await query<{ name: string; owner: string; role: string }>(db)`
    SELECT n.nspname AS name, pg_get_userbyid(n.nspowner) AS owner, current_user::text AS role
    FROM pg_catalog.pg_namespace AS n JOIN pg_catalog.pg_roles AS o ON o.oid = n.nspowner
    JOIN pg_catalog.pg_roles AS me ON me.rolname = current_user
    WHERE n.nspname IN ('slotsync', 'slotsync_queue') AND o.oid <> me.oid AND NOT o.rolsuper
      AND (me.rolsuper OR NOT pg_catalog.pg_has_role(me.oid, o.oid, 'MEMBER'))`;
  if (!foreign) return;
  throw new UsageError(
    `the schema ${foreign.name} belongs to the role ${foreign.owner}, whose functions would run with the rights of ${foreign.role}`,
    {
      remedy: `Migrate as ${foreign.owner}. If you do not know this schema, drop it or use another database.`,
    },
  );
}

/** Creates the schema if missing. `IF NOT EXISTS` would require the right to create schemas even if it exists. */
async function createSchema(db: Queries): Promise<void> {
  const { exists, role } = await queryOne<{ exists: boolean; role: string }>(db)`
    SELECT to_regnamespace('slotsync') IS NOT NULL AS exists, quote_ident(current_user) AS role`;
  if (exists) return;
  try {
    await query(db)`CREATE SCHEMA slotsync`;
  } catch (error) {
    if (codeOf(causeOf(error)) !== '42501') throw error;
    throw new UsageError('the role of STATE_DATABASE_URL may not create the schema slotsync', {
      remedy: `Let the owner of the database run: CREATE SCHEMA slotsync AUTHORIZATION ${role}; CREATE SCHEMA slotsync_queue AUTHORIZATION ${role};`,
      cause: error,
    });
  }
}

async function applyNumbered(tx: Queries, { latest }: Applied): Promise<void> {
  for (const { sql: statements, hash, folderMillis } of listKnown()) {
    if (folderMillis <= latest) continue;
    for (const statement of statements)
      if (!statement.trimStart().startsWith('CREATE SCHEMA')) await tx.execute(sql.raw(statement));
    await query(tx)`
      INSERT INTO slotsync.migrations (hash, created_at) VALUES (${hash}, ${folderMillis}::bigint)`;
  }
}

/** Throws UsageError if the schema is missing, or newer than this program. */
export async function requireSchema({ db }: Pick<State, 'db'>): Promise<Applied> {
  // Reads first and checks on failure, which saves a round trip.
  const applied = await readTables(db).catch((error: unknown) => {
    if (!isNoTable(error)) throw error;
    return readApplied(db);
  });
  if (applied.hashes.length === 0)
    throw new UsageError('the state database has no slotsync schema yet', { remedy: RUN_MIGRATE });
  refuseNewer(applied);
  return applied;
}

/** Throws UsageError unless the schema is exactly this program's schema. */
export async function requireMigrated(state: Pick<State, 'db'>): Promise<void> {
  const applied = await requireSchema(state);
  refuseUnreleased(applied);
  if (applied.latest < latestKnown())
    throw new UsageError('the state database has an older slotsync schema than this program', {
      remedy: RUN_MIGRATE,
    });
  const others = readChanged(applied.checksums);
  if (others.length === 0) return;
  throw new UsageError(
    `functions of the state database differ from this program: ${others.map(({ name }) => name).join(', ')}`,
    { remedy: 'Run `slotsync migrate` with the newest slotsync that uses this database.' },
  );
}

interface Applied {
  /** Hashes of the numbered migrations, and the time of the latest. */
  hashes: string[];
  latest: number;
  /** Checksums of the repeatable migrations, by name. */
  checksums: Record<string, string>;
}

async function readApplied(db: Pick<Queries, 'execute'>): Promise<Applied> {
  const { present, encoding } = await queryOne<{ present: boolean; encoding: string }>(db)`
    SELECT to_regclass('slotsync.repeatable_migrations') IS NOT NULL AS present,
      current_setting('server_encoding') AS encoding`;
  requireEncoding(encoding);
  return present ? readTables(db) : { hashes: [], latest: 0, checksums: {} };
}

/** Reads the applied migrations. The schema must exist. */
async function readTables(db: Pick<Queries, 'execute'>): Promise<Applied> {
  const { encoding, latest, ...row } = await queryOne<
    Omit<Applied, 'latest'> & Record<'encoding' | 'latest', string>
  >(db)`
    SELECT current_setting('server_encoding') AS encoding, coalesce(jsonb_agg(hash), '[]') AS hashes,
      coalesce(max(created_at), 0)::text AS latest,
      (SELECT coalesce(jsonb_object_agg(name, checksum), '{}') FROM slotsync.repeatable_migrations) AS checksums
    FROM slotsync.migrations`;
  requireEncoding(encoding);
  return { ...row, latest: Number(latest) };
}

function requireEncoding(encoding: string): void {
  if (encoding === ENCODING) return;
  throw new SlotsyncError('state_refused', `the state database ${describeEncoding(encoding)}`, {
    remedy: ENCODING_REMEDY,
  });
}

function refuseNewer({ latest }: Applied): void {
  if (latest <= latestKnown()) return;
  throw new UsageError('the state database has a newer slotsync schema than this program', {
    remedy: 'Update slotsync on this machine to the version that migrated the state.',
  });
}

/** Throws UsageError if the schema has an unknown migration, because published migrations never change. */
function refuseUnreleased({ hashes }: Applied): void {
  const known = new Set(listKnown().map(({ hash }) => hash));
  if (hashes.every((hash) => known.has(hash))) return;
  throw new UsageError(
    'the state database has the schema of an unreleased slotsync, which cannot be migrated',
    {
      remedy: 'Start again: slotsync reset, then slotsync migrate, then slotsync verify --adopt',
    },
  );
}

const listKnown = () => readMigrationFiles(NUMBERED);

const latestKnown = () => listKnown().at(-1)?.folderMillis ?? 0;

/** Returns the repeatable migrations that differ from the applied ones. */
function readChanged(checksums: Applied['checksums']) {
  const files = readdirSync(REPEATABLE_FOLDER).toSorted();
  return files.flatMap((name) => {
    const text = readFileSync(path.join(REPEATABLE_FOLDER, name), 'utf8');
    const checksum = createHash('sha256').update(text).digest('hex');
    return checksums[name] === checksum ? [] : [{ name, checksum, text }];
  });
}
