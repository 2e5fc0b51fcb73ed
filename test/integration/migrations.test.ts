// The state's schema: brought up to date from anything older, refused when it is another, and bound to one service.
import { randomBytes } from 'node:crypto';
import { readMigrationFiles } from 'drizzle-orm/migrator';
import postgres from 'postgres';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { UsageError } from '../../src/errors/errors.js';
import { openState, type State } from '../../src/state/database.js';
import { bindDestination, confirmDestination, readBinding } from '../../src/state/destination-binding.js';
import { migrate, requireMigrated } from '../../src/state/migrate.js';
import journal from '../../migrations/meta/_journal.json' with { type: 'json' };
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

const whenOf = (tag: string) => journal.entries.find((entry) => entry.tag === tag)?.when ?? NaN;

/** An empty database gets the schema as it was before a migration. */
async function migrateBefore(sql: postgres.Sql, tag: string): Promise<void> {
  await sql`CREATE SCHEMA slotsync`;
  await sql`CREATE TABLE slotsync.migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint)`;
  for (const { sql: statements, hash, folderMillis } of readMigrationFiles({
    migrationsFolder: 'migrations',
  })) {
    if (folderMillis >= whenOf(tag)) return;
    for (const statement of statements)
      if (!statement.trimStart().startsWith('CREATE SCHEMA')) await sql.unsafe(statement);
    await sql`INSERT INTO slotsync.migrations (hash, created_at) VALUES (${hash}, ${folderMillis})`;
  }
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

it('is asked for while the schema is missing', async () => {
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
  expect(await migrate(url)).toMatchObject({ applied: 2 });
  expect(await migrate(url)).toMatchObject({ applied: 0 });
});

it('leaves the functions of a newer schema alone', async () => {
  const { url, sql } = await open(createDatabase);
  await sql`INSERT INTO slotsync.migrations (hash, created_at) SELECT 'x', max(created_at) + 1 FROM slotsync.migrations`;
  await sql`UPDATE slotsync.repeatable_migrations SET checksum = 'of a newer version'`;
  await expect(migrate(url)).rejects.toMatchObject({ message: expect.stringContaining('newer') });
  expect(await sql`SELECT DISTINCT checksum FROM slotsync.repeatable_migrations`).toEqual([
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

it('destination: the first one of which the state knows something is bound, and no other is taken', async () => {
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
    message: expect.stringContaining('a process works with the former: worker on night, process 7'),
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

it('repair: a verify that repaired becomes a run of its own kind, and keeps what it was asked for', async () => {
  const { url, sql } = await open(createEmptyDatabase);
  await migrateBefore(sql, '0013_repair_runs');
  await sql`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, range) VALUES
      ('verify', 'verify', 'command', '{rooms}', 'succeeded', '{"repair": true, "verified": 3}'),
      ('verify', 'verify', 'command', '{rooms}', 'succeeded', '{"repair": true}'),
      ('verify', 'verify', 'command', '{rooms}', 'succeeded', '{"sample": 5}')`;
  await migrate(url);
  expect([...(await sql`SELECT kind, range FROM slotsync.runs ORDER BY id`)]).toEqual([
    { kind: 'repair', range: { verified: 3 } },
    { kind: 'repair', range: null },
    { kind: 'verify', range: { sample: 5 } },
  ]);
});

it('holds: what runs held becomes rows, with its approval, and which run replaced it', async () => {
  const { url, sql } = await open(createEmptyDatabase);
  await migrateBefore(sql, '0014_holds');
  const held = (reason: string) => sql.json({ rooms: { retire: { count: 12, reason, approvable: true } } });
  const whole =
    'the mirror was restored: approve only if its data is whole and not older than before; ' +
    '12 of 100 records would be retired after 3 within 24 hours, more than 10 and more than 10 %, and run 1 holds 2 of them' +
    ', and the approval allows exactly the 9 records that were held, and these are others; if that is so: slotsync approve 1';
  const overwriting = {
    courses: { overwrite: { count: 2, reason: 'x', approvable: true, samples: [{ key: 'c1' }] } },
    rooms: {
      retire: {
        count: 1,
        reason: '1 of 9 records would be retired, but the source is empty',
        approvable: false,
      },
    },
  };
  const plan = sql.json({ rooms: {} });
  const none = sql.json({});
  const add = (kind: string, status: string, holds: postgres.Parameter, range: string | null = null) => sql`
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, plan, holds, range, finished_at)
    VALUES (${kind}, 'sync', 'command', '{rooms,courses}', ${status}, ${plan}, ${holds}, ${range}::jsonb, now())`;
  await add('sync', 'held', held(whole));
  await add('backfill', 'succeeded', none, '{"limit": 5}');
  await add('sync', 'cancelled', none);
  await add('sync', 'held', held('12 of 100 records would be retired'));
  await add('sync', 'held', sql.json(overwriting));
  await sql`UPDATE slotsync.runs SET finished_at = NULL, status = 'planning', plan = '{}' WHERE id = 3`;
  await sql`
    INSERT INTO slotsync.approvals (run_id, for_run, used_by, stream, operation, allowed, same_keys, expires_at)
    VALUES (4, 5, 5, 'rooms', 'retire', 12, true, now()), (5, 3, NULL, 'courses', 'overwrite', 2, NULL, now())`;
  await migrate(url);
  expect([
    ...(await sql`
      SELECT run_id::int AS run, operation, count, state, replaced_by::int AS replaced, allowed, for_run::int AS for_run,
        approvable FROM slotsync.holds ORDER BY run_id, operation`),
  ]).toEqual([
    {
      run: 1,
      operation: 'retire',
      count: 12,
      state: 'replaced',
      replaced: 4,
      allowed: null,
      for_run: null,
      approvable: true,
    },
    {
      run: 4,
      operation: 'retire',
      count: 12,
      state: 'used',
      replaced: 5,
      allowed: 12,
      for_run: 5,
      approvable: true,
    },
    {
      run: 5,
      operation: 'overwrite',
      count: 2,
      state: 'approved',
      replaced: null,
      allowed: 2,
      for_run: 3,
      approvable: true,
    },
    {
      run: 5,
      operation: 'retire',
      count: 1,
      state: 'open',
      replaced: null,
      allowed: null,
      for_run: null,
      approvable: false,
    },
  ]);
  const facts = await sql`SELECT facts, samples FROM slotsync.holds ORDER BY run_id, operation`;
  expect(facts.map((row) => row['facts'])).toEqual([
    {
      accepted: 100,
      earlier: 3,
      limit: { count: 10, percent: 10 },
      alsoHeld: { runId: 1, count: 2 },
      approval: { allowed: 9, isOther: true },
      mirrorChange: 'was restored',
    },
    { accepted: 100 },
    { accepted: 0 },
    { accepted: 9, isSourceEmpty: true },
  ]);
  expect(facts[2]?.['samples']).toEqual([{ key: 'c1' }]);
  expect([
    ...(await sql`SELECT run_id::int AS run, replaced_by::int AS later FROM slotsync.replaced_runs ORDER BY 1`),
  ]).toEqual([
    { run: 1, later: 4 },
    { run: 3, later: 4 },
    { run: 4, later: 5 },
  ]);
});
