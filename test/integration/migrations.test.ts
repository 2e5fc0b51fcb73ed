// The schema of the state: created, updated, refused if it is another or from an unreleased program, and bound to one service.
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { UsageError } from '../../src/errors/errors.js';
import { openState, type State } from '../../src/state/database.js';
import { bindDestination, confirmDestination, readBinding } from '../../src/state/destination-binding.js';
import { migrate, requireMigrated } from '../../src/state/migrate.js';
import { countLosses, dropState, readDestination, requireIdle } from '../../src/state/reset.js';
import { MAKE_SCHEMA_EARLIER } from '../support/earlier-schema.js';
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

it('migrate brings an empty database up to date, and then finds nothing to do', async () => {
  const { url, state, sql } = await open(createEmptyDatabase);
  const { applied } = await migrate(url);
  expect(applied).toBeGreaterThan(0);
  expect(await tablesOf(sql)).toEqual(expect.arrayContaining(TABLES));
  await expect(requireMigrated(state)).resolves.toBeUndefined();
  expect(await migrate(url)).toMatchObject({ applied: 0 });
});

it('migrate leaves tables of other schemas, and existing rows of its own schema, alone', async () => {
  const { url, sql } = await open(createEmptyDatabase);
  await sql`CREATE TABLE public.records (id integer)`;
  await migrate(url);
  await sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
  await migrate(url);
  expect(await sql`SELECT local_key FROM slotsync.changes`).toEqual([{ local_key: 'A' }]);
  expect(await sql`SELECT * FROM public.records`).toEqual([]);
});

it('migrate does not read a schema that another role has made, even as a superuser', async () => {
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
    await expect(migrate(url)).rejects.toThrow(`the schema slotsync belongs to the role ${role}`);
    expect(await sql`SELECT to_regclass('public.loot') IS NOT NULL AS "isThere"`).toEqual([
      { isThere: true },
    ]);
  } finally {
    await sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
  }
});

it('migrate is done once when several processes begin at once', async () => {
  const { url, state } = await open(createEmptyDatabase);
  const results = await Promise.all([migrate(url), migrate(url), migrate(url)]);
  const done = results.map(({ applied }) => applied).filter((applied) => applied > 0);
  expect(done).toHaveLength(1);
  await expect(requireMigrated(state)).resolves.toBeUndefined();
});

it('a missing schema is reported with the command migrate', async () => {
  const { state } = await open(createEmptyDatabase);
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('no slotsync schema'),
    remedy: expect.stringContaining('slotsync migrate'),
  });
});

it('an older schema is reported with the command migrate', async () => {
  const { state, sql } = await open(createDatabase);
  await sql`UPDATE slotsync.migrations SET created_at = created_at - 1`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('older'),
    remedy: expect.stringContaining('slotsync migrate'),
  });
});

it('a schema newer than the program is refused', async () => {
  const { state, sql } = await open(createDatabase);
  await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', max(created_at) + 1 FROM slotsync.migrations`;
  await expect(requireMigrated(state)).rejects.toMatchObject({
    message: expect.stringContaining('newer'),
    remedy: expect.stringContaining('Update slotsync'),
  });
});

describe('a schema of an unreleased program', () => {
  const REFUSAL = {
    message: 'the state database has the schema of an unreleased slotsync, which cannot be migrated',
    remedy: 'Start again: slotsync reset, then slotsync migrate, then slotsync verify --adopt',
  };

  it('is refused by migrate and by every other command, with a remedy', async () => {
    const { url, state, sql } = await open(createDatabase);
    await sql.unsafe(MAKE_SCHEMA_EARLIER);
    await expect(requireMigrated(state)).rejects.toMatchObject(REFUSAL);
    await expect(migrate(url)).rejects.toMatchObject(REFUSAL);
    expect(await tablesOf(sql)).not.toContain('gates');
  });

  it('is refused even if it has the newest migration of this program beside unknown ones', async () => {
    const { url, state, sql } = await open(createDatabase);
    await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', created_at - 1 FROM slotsync.migrations`;
    await expect(requireMigrated(state)).rejects.toMatchObject(REFUSAL);
    await expect(migrate(url)).rejects.toMatchObject(REFUSAL);
  });

  it('is removed by reset, which counts its rows, unless a process works with it', async () => {
    const { url, state, sql } = await open(createDatabase);
    const stateId = await bindDestination(state, TEST);
    await sql`INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', 'A', 'pending')`;
    await sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A'), ('rooms', 'B')`;
    await sql.unsafe(MAKE_SCHEMA_EARLIER);
    expect(await countLosses(state.db)).toEqual({
      records: 1,
      links: 0,
      runs: 0,
      held: 0,
      changes: 2,
      bookings: 0,
    });
    const { baseUrl, organizationId } = TEST;
    expect(await readDestination(state.db)).toEqual({ baseUrl, organizationId, stateId });

    await sql`INSERT INTO slotsync.processes (id, command, host, pid) VALUES ('a', 'worker', 'night', 7)`;
    await expect(state.db.transaction(requireIdle)).rejects.toMatchObject({
      faults: ['worker on night, process 7'],
    });
    await sql`DELETE FROM slotsync.processes`;
    await dropState(state, { statements: [], before: async () => {} });
    expect(await tablesOf(sql)).toEqual([]);
    await migrate(url);
    await expect(requireMigrated(state)).resolves.toBeUndefined();
  });
});

it('migrate applies functions that differ from the program’s, and commands ask for it until then', async () => {
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
  expect(await migrate(url)).toMatchObject({ applied: 2 });
  expect(await migrate(url)).toMatchObject({ applied: 0 });
});

it('migrate leaves the functions of a newer schema alone', async () => {
  const { url, sql } = await open(createDatabase);
  await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', max(created_at) + 1 FROM slotsync.migrations`;
  await sql`UPDATE slotsync.repeatable_migrations SET checksum = 'of a newer version'`;
  await expect(migrate(url)).rejects.toMatchObject({ message: expect.stringContaining('newer') });
  expect(await sql`SELECT DISTINCT checksum FROM slotsync.repeatable_migrations`).toEqual([
    { checksum: 'of a newer version' },
  ]);
});

it('a state that cannot be reached, or refuses, is reported with a remedy', async () => {
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

it('the first destination is bound to the state, and every other destination is refused', async () => {
  const { state, sql } = await open(createDatabase);
  expect(await readBinding(state)).toBeUndefined();
  expect(await confirmDestination(state, TEST)).toBeUndefined();
  const stateId = await bindDestination(state, TEST);
  expect(await bindDestination(state, TEST)).toBe(stateId);
  expect(await readBinding(state)).toMatchObject({ baseUrl: TEST.baseUrl, organizationId: 'uni' });

  const others = [
    { ...TEST, baseUrl: 'https://api.production' },
    { ...TEST, organizationId: 'hospital' },
  ];
  // Nothing is known of any service: what was typed wrong is corrected, unless a process works with it. What was refused there
  // is sent to the other one.
  await sql`
    INSERT INTO slotsync.records (stream, local_key, status, error_code, refused_hash) VALUES ('rooms', 'B', 'dead', 'refused_400', 7)`;
  for (const other of [...others, TEST]) {
    expect(await confirmDestination(state, other)).toBeUndefined();
    expect(await bindDestination(state, other)).toBe(stateId);
    expect(await readBinding(state)).toMatchObject(other);
  }
  expect(await sql`SELECT status, refused_hash FROM slotsync.records`).toEqual([
    { status: 'failed', refused_hash: null },
  ]);
  await sql`INSERT INTO slotsync.processes (id, command, host, pid) VALUES ('a', 'worker', 'night', 7)`;
  await expect(bindDestination(state, others[0] ?? TEST)).rejects.toMatchObject({
    message: expect.stringContaining('a running process still uses the former: worker on night, process 7'),
    remedy: expect.stringContaining('Stop that process'),
  });
  await sql`DELETE FROM slotsync.processes`;

  await sql`INSERT INTO slotsync.records (stream, local_key, external_id, status, object_hash) VALUES ('rooms', 'A', 'room_A', 'synced', 'x')`;
  for (const other of others) {
    for (const refuse of [bindDestination, confirmDestination]) {
      const refusal = await refuse(state, other).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(UsageError);
      expect((refusal as UsageError).message).toContain('uni at https://api.test');
      expect((refusal as UsageError).message).toContain(`${other.organizationId} at ${other.baseUrl}`);
      expect((refusal as UsageError).remedy).toMatch(/API_BASE_URL.*slotsync reset/);
    }
  }
  expect(await readBinding(state)).toMatchObject({ baseUrl: TEST.baseUrl, organizationId: 'uni', stateId });
});
