// The state's schema: brought up to date from anything older, refused when it is another, and bound to one service.
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { UsageError } from '../../src/errors.js';
import { openState, type State } from '../../src/state/database.js';
import { bindDestination, confirmDestination, readBinding } from '../../src/state/destination-binding.js';
import { migrate, requireMigrated } from '../../src/state/migrate.js';
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/services.js';

let databases: TestDatabase[] = [];
let closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  databases = [];
  closers = [];
});
afterEach(async () => {
  for (const close of closers) await close();
  for (const database of databases) await database.drop();
});

async function open(
  create: () => Promise<TestDatabase>,
): Promise<{ url: string; state: State; sql: postgres.Sql }> {
  const database = await create();
  databases.push(database);
  const state = openState({ url: database.url });
  const sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  closers.push(state.close, () => sql.end());
  return { url: database.url, state, sql };
}

const TABLES = ['batches', 'cancellations', 'changes', 'destination', 'records', 'reservations', 'runs'];

async function tablesOf(sql: postgres.Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    SELECT tablename AS name FROM pg_tables WHERE schemaname = 'slotsync' ORDER BY tablename COLLATE "C"`;
  return rows.map(({ name }) => name);
}

it('brings an empty database up to date, and then finds nothing to do', async () => {
  const { url, state, sql } = await open(createEmptyDatabase);
  const { applied } = await migrate(url);
  expect(applied).toBeGreaterThan(0);
  expect(await tablesOf(sql)).toEqual(expect.arrayContaining(TABLES));
  await expect(requireMigrated(state)).resolves.toBeUndefined();
  expect(await migrate(url)).toMatchObject({ applied: 0 });
});

it('leaves what lies beside it and what is in it alone', async () => {
  const { url, sql } = await open(createEmptyDatabase);
  await sql`CREATE TABLE public.records (id integer)`;
  await migrate(url);
  await sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
  await migrate(url);
  expect(await sql`SELECT local_key FROM slotsync.changes`).toEqual([{ local_key: 'A' }]);
  expect(await sql`SELECT * FROM public.records`).toEqual([]);
});

it('schema: one that another role has made is not read, also by a superuser', async () => {
  const { url, sql } = await open(createEmptyDatabase);
  const role = `planter_${randomBytes(4).toString('hex')}`;
  await sql.unsafe(`
    CREATE ROLE ${role};
    CREATE SCHEMA slotsync AUTHORIZATION ${role};
    CREATE TABLE public.loot ();
    CREATE FUNCTION slotsync.steal() RETURNS text LANGUAGE plpgsql AS $$ BEGIN DROP TABLE public.loot; RETURN ''; END $$;
    CREATE TABLE slotsync.migrations (created_at bigint);
    CREATE VIEW slotsync.repeatable_migrations AS SELECT 'a'::text AS name, slotsync.steal() AS checksum;
    ALTER VIEW slotsync.repeatable_migrations OWNER TO ${role};`);
  try {
    await expect(migrate(url)).rejects.toThrow(`the schema slotsync belongs to ${role}`);
    expect(await sql`SELECT to_regclass('public.loot') IS NOT NULL AS "isThere"`).toEqual([
      { isThere: true },
    ]);
  } finally {
    await sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
  }
});

it('is done once when several begin at once', async () => {
  const { url, state } = await open(createEmptyDatabase);
  const results = await Promise.all([migrate(url), migrate(url), migrate(url)]);
  const done = results.map(({ applied }) => applied).filter((applied) => applied > 0);
  expect(done).toHaveLength(1);
  await expect(requireMigrated(state)).resolves.toBeUndefined();
});

it('is asked for where there is none yet', async () => {
  const { state } = await open(createEmptyDatabase);
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('no slotsync schema'),
    remedy: expect.stringContaining('slotsync migrate'),
  });
});

it('is asked for where the schema is older', async () => {
  const { state, sql } = await open(createDatabase);
  await sql`UPDATE slotsync.migrations SET created_at = created_at - 1`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('older'),
    remedy: expect.stringContaining('slotsync migrate'),
  });
});

it('is refused where the schema is newer than the program', async () => {
  const { state, sql } = await open(createDatabase);
  await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', max(created_at) + 1 FROM slotsync.migrations`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('newer'),
    remedy: expect.stringContaining('Update slotsync'),
  });
});

it('applies functions again when they differ from the program’s, and asks for it until then', async () => {
  const { url, state, sql } = await open(createDatabase);
  await sql`UPDATE slotsync.repeatable_migrations SET checksum = 'of another version' WHERE name = 'quota.sql'`;
  await sql`DROP FUNCTION slotsync.quota_usage`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('quota.sql'),
    remedy: expect.stringContaining('slotsync migrate'),
  });
  expect(await migrate(url)).toMatchObject({ applied: 1 });
  await expect(requireMigrated(state)).resolves.toBeUndefined();
  expect(await sql`SELECT to_regproc('slotsync.quota_usage') IS NOT NULL AS present`).toEqual([
    { present: true },
  ]);

  await sql`DELETE FROM slotsync.repeatable_migrations`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('quota.sql'),
  });
  expect(await migrate(url)).toMatchObject({ applied: 1 });
  expect(await migrate(url)).toMatchObject({ applied: 0 });
});

it('leaves the functions of a newer schema alone', async () => {
  const { url, sql } = await open(createDatabase);
  await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', max(created_at) + 1 FROM slotsync.migrations`;
  await sql`UPDATE slotsync.repeatable_migrations SET checksum = 'of a newer version'`;
  await expect(migrate(url)).rejects.toMatchObject({ message: expect.stringContaining('newer') });
  expect(await sql`SELECT checksum FROM slotsync.repeatable_migrations`).toEqual([
    { checksum: 'of a newer version' },
  ]);
});

it('says when the database cannot be reached or refuses', async () => {
  const { url, state } = await open(createDatabase);
  await expect(migrate('postgres://nobody:wrong@127.0.0.1:1/none')).rejects.toMatchObject({
    code: 'state_unreachable',
    remedy: expect.stringContaining('STATE_DATABASE_URL'),
  });
  const missing = new URL(url);
  missing.pathname = '/there_is_no_such_database';
  await expect(migrate(missing.href)).rejects.toMatchObject({ code: 'state_refused', disposition: 'dead' });
  await expect(requireMigrated(state)).resolves.toBeUndefined();
});

const TEST = { baseUrl: 'https://api.test', organizationId: 'uni', region: 'EU_EES' };

it('binds the state to the first destination, and to no other', async () => {
  const { state } = await open(createDatabase);
  expect(await readBinding(state)).toBeUndefined();
  expect(await confirmDestination(state, TEST)).toBeUndefined();
  const stateId = await bindDestination(state, TEST);
  expect(await bindDestination(state, TEST)).toBe(stateId);
  expect(await readBinding(state)).toMatchObject({ baseUrl: TEST.baseUrl, organizationId: 'uni' });

  const others = [
    { ...TEST, baseUrl: 'https://api.production' },
    { ...TEST, organizationId: 'hospital' },
  ];
  for (const other of others) {
    for (const refuse of [bindDestination, confirmDestination]) {
      const refusal = await refuse(state, other).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(UsageError);
      expect((refusal as UsageError).message).toContain('uni at https://api.test');
      expect((refusal as UsageError).message).toContain(`${other.organizationId} at ${other.baseUrl}`);
      expect((refusal as UsageError).remedy).toContain('API_BASE_URL');
    }
  }
  expect(await readBinding(state)).toMatchObject({ baseUrl: TEST.baseUrl, organizationId: 'uni', stateId });
});

it('binds one destination when two commands are first at once', async () => {
  const { state, sql } = await open(createDatabase);
  const production = { ...TEST, baseUrl: 'https://api.production' };
  const results = await Promise.allSettled([
    bindDestination(state, TEST),
    bindDestination(state, production),
  ]);
  expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  expect(await sql`SELECT * FROM slotsync.destination`).toHaveLength(1);
});
