// `npm run upgrades:record`, before each release: plays a short story with the built program and keeps what is in its state
// then, in test/upgrades/<version>: the state and the mirror as SQL, the objects at the service, and the configuration.
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import manifest from '../../package.json' with { type: 'json' };
import { startEmbeddedPostgres } from '../../src/demo/embedded-postgres.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/sandbox.js';
import { start } from '../support/program.js';
import { until } from '../support/wait.js';
import { SERVICE, type ServiceContent } from './installation.js';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const MIGRATIONS = fileURLToPath(new URL('../../migrations', import.meta.url));
const folder = path.join(HERE, manifest.version);

const MIRROR = `
CREATE SCHEMA campus;
CREATE TABLE campus.rooms (code text PRIMARY KEY, name text, seats integer, updated_at timestamptz NOT NULL);
CREATE TABLE campus.courses (id integer PRIMARY KEY, name text, room text);
CREATE TABLE campus.staff (id integer, site text, name text, PRIMARY KEY (id, site));
CREATE TABLE campus.loads (finished_at timestamptz);
CREATE TABLE campus.bookings (id integer PRIMARY KEY, room text, starts_at timestamptz, ends_at timestamptz);
`;
const ROWS = `
INSERT INTO campus.rooms SELECT 'R' || i, 'Sal ' || i, 10 * i, '2026-11-01 08:00Z' FROM generate_series(1, 12) AS i;
INSERT INTO campus.courses SELECT i, 'Kurs ' || i, 'R' || i FROM generate_series(1, 12) AS i;
INSERT INTO campus.staff SELECT i, 'N', 'Åsa ' || i FROM generate_series(1, 12) AS i;
INSERT INTO campus.loads VALUES (now());
INSERT INTO campus.bookings SELECT i, 'R' || i, begins, begins + interval '1 hour'
  FROM generate_series(1, 4) AS i, LATERAL (SELECT date_trunc('hour', now()) + i * interval '1 day' AS begins) AS b;
`;
const SCHEMA: ServiceContent['schema'] = {
  types: [{ extId: 'room' }, { extId: 'course' }, { extId: 'person' }],
  fields: [
    { extId: 'room.name' },
    { extId: 'room.seats' },
    { extId: 'course.name' },
    { extId: 'course.room', reference: 'room' },
    { extId: 'person.name' },
  ],
};

interface World {
  sql: postgres.Sql;
  sandbox: Sandbox;
  /** Carries a command out; throws unless it ends with one of these exit codes. */
  run: (command: string, ...codes: number[]) => Promise<void>;
  /** Starts a worker and kills it when it has nothing left to do. */
  killWorker: () => Promise<void>;
}

/** Leaves a row in every table, and nothing that the next sync would send. */
async function playStory({ sql, sandbox, run, killWorker }: World): Promise<void> {
  sandbox.refuseObject('room_R5', { status: 400, message: 'the room is not licensed' });
  await run('migrate');
  await run('sync', 0, 1);

  await sql`UPDATE campus.rooms SET code = 'R1-new' WHERE code = 'R1'`;
  await sql`UPDATE campus.courses SET room = 'R1-new' WHERE room = 'R1'`;
  await run('rename rooms R1 R1-new --reason rebuilt');
  await run('except rooms R2 --reason by-hand');
  await sql`UPDATE campus.rooms SET seats = 21, updated_at = now() WHERE code = 'R2'`;
  await sql`UPDATE campus.rooms SET seats = 31, updated_at = now() WHERE code = 'R3'`;
  await sql`UPDATE campus.courses SET name = 'Kurs fyra' WHERE id = 4`;
  await run('freeze staff --until 2h --reason exams');
  await run('unfreeze staff --reason over');
  await run('sync', 0, 1);

  // Nobody is deactivated beyond the limit; one member of the staff left before.
  await sql`DELETE FROM campus.staff WHERE id = 12`;
  await run('sync staff', 0, 1);
  await run('forget staff 12 N --reason asked');
  await sql`DELETE FROM campus.staff WHERE id IN (9, 10, 11)`;
  await run('sync', 1, 3);

  for (const id of [1, 2, 3])
    sandbox.addReservation({
      ...(await readTimes(sql, id)),
      extId: `res_${id}`,
      objects: [{ typeId: 'room', objectId: id === 1 ? 'room_R1' : `room_R${id}` }],
      status: ['B_COMPLETE', 'C_CONFIRMED'],
    });
  await run('reconcile');
  sandbox.cancelReservation('res_2', { extId: 'res_2' });
  await run('reconcile');

  // An edit that the stream's rule keeps, so that no repair would send it back.
  sandbox.changeObject('course_7', { fields: [{ fieldId: 'course.name', values: ['Edited by hand'] }] });
  await run('verify', 0, 1);
  await run('alerts check', 0, 1);
  await killWorker();
  await run('sync', 1, 3);
  await run('push rooms R6');
  // A batch has such a row for the time of one request.
  await sql`
    INSERT INTO slotsync.object_claims VALUES ('room_R8', 'a-batch-of-before', now() - interval '1 hour')`;
}

async function readTimes(sql: postgres.Sql, id: number): Promise<{ begin: number; end: number }> {
  const [row] = await sql<{ begin: number; end: number }[]>`
    SELECT extract(epoch FROM starts_at)::int AS begin, extract(epoch FROM ends_at)::int AS end
    FROM campus.bookings WHERE id = ${id}`;
  if (!row) throw new Error(`no booking ${id}`);
  return row;
}

/** The tables with their rows, each after those that its foreign keys refer to. */
async function readTables(sql: postgres.Sql, schema: string): Promise<string[]> {
  const tables = await sql<{ name: string; parents: string[] }[]>`
    SELECT c.relname AS name, coalesce(array_agg(p.relname::text) FILTER (WHERE p.oid IS NOT NULL), '{}') AS parents
    FROM pg_class AS c LEFT JOIN pg_constraint AS f ON f.conrelid = c.oid AND f.contype = 'f'
    LEFT JOIN pg_class AS p ON p.oid = f.confrelid
    WHERE c.relnamespace = ${schema}::regnamespace AND c.relkind = 'r' GROUP BY c.relname ORDER BY c.relname COLLATE "C"`;
  const children = tables.filter(({ parents }) => parents.length > 0);
  return [...tables.filter((table) => !children.includes(table)), ...children].map(({ name }) => name);
}

/** `INSERT` statements of every row. A database is recognized wherever the rows are loaded. */
async function writeRows(sql: postgres.Sql, schema: string): Promise<string> {
  const parts: string[] = [];
  for (const table of await readTables(sql, schema)) {
    const columns = await sql<{ name: string }[]>`
      SELECT column_name AS name FROM information_schema.columns
      WHERE table_schema = ${schema} AND table_name = ${table} AND is_generated = 'NEVER' ORDER BY ordinal_position`;
    if (columns.length === 0) continue;
    const names = columns.map(({ name }) => `"${name}"`);
    const rows = await sql.unsafe<{ line: string }[]>(
      `SELECT concat_ws(', ', ${names.map((name) => `quote_nullable(${name}::text)`).join(', ')}) AS line
       FROM ${schema}."${table}" ORDER BY 1`,
    );
    if (rows.length === 0) continue;
    const values = rows.map(({ line }) => `(${line})`).join(',\n');
    parts.push(
      `INSERT INTO ${schema}.${table} (${names.join(', ')}) OVERRIDING SYSTEM VALUE VALUES\n${values};\n`,
    );
  }
  const sequences = await sql<{ statement: string }[]>`
    SELECT format('SELECT setval(%L, %s);', schemaname || '.' || sequencename, last_value) AS statement
    FROM pg_sequences WHERE schemaname = ${schema} AND last_value IS NOT NULL ORDER BY sequencename COLLATE "C"`;
  return `${parts.join('')}${sequences.map(({ statement }) => `${statement}\n`).join('')}`;
}

/** The tables and functions as the migrations of this release make them. */
async function writeSchema(): Promise<string> {
  const [numbered, repeatable] = [MIGRATIONS, path.join(MIGRATIONS, 'repeatable')];
  const files = [numbered, repeatable].map(async (place) => {
    const names = (await readdir(place)).filter((name) => name.endsWith('.sql')).toSorted();
    return Promise.all(names.map((name) => readFile(path.join(place, name), 'utf8')));
  });
  const texts = (await Promise.all(files))
    .flat()
    .map((text) => text.replaceAll('--> statement-breakpoint', ''));
  return `${texts.join('\n')}
CREATE TABLE slotsync.lock_migrate ();
CREATE TABLE slotsync.migrations (id serial PRIMARY KEY, hash text NOT NULL, created_at bigint);
`;
}

/** Everything by which two databases could differ, except what names the database. */
async function describeDatabase(sql: postgres.Sql): Promise<unknown> {
  return sql.unsafe(`
    SELECT table_schema || '.' || table_name || '.' || column_name AS name,
      concat_ws(' ', data_type, is_nullable, column_default, is_identity, generation_expression, collation_name) AS text
    FROM information_schema.columns WHERE table_schema IN ('slotsync', 'campus')
    UNION ALL SELECT conname, conrelid::regclass || pg_get_constraintdef(oid) FROM pg_constraint
      WHERE connamespace = 'slotsync'::regnamespace
    UNION ALL SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'slotsync'
    UNION ALL SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'slotsync'::regnamespace
    UNION ALL SELECT relname, concat(relkind, relpersistence) || coalesce(reloptions::text, '')
      FROM pg_class WHERE relnamespace = 'slotsync'::regnamespace
    ORDER BY 1, 2`);
}

async function main(): Promise<void> {
  const server = await startEmbeddedPostgres();
  const sandbox = await startSandbox({ schema: SCHEMA });
  const place = await mkdtemp(path.join(tmpdir(), 'slotsync-state-'));
  const connect = async (name: string) => {
    const admin = postgres(server.url, { max: 1, onnotice: () => undefined });
    await admin.unsafe(`CREATE DATABASE ${name}`);
    await admin.end();
    const url = new URL(server.url);
    url.pathname = name;
    return {
      url: url.href,
      sql: postgres(url.href, { max: 1, onnotice: () => undefined, connection: { TimeZone: 'UTC' } }),
    };
  };
  const [made, loaded] = [await connect('made'), await connect('loaded')];
  try {
    const { sql } = made;
    await sql.unsafe(MIRROR + ROWS);
    await copyFile(path.join(HERE, 'sync.config.ts'), path.join(place, 'sync.config.ts'));
    const env = {
      MIRROR_DATABASE_URL: made.url,
      API_BASE_URL: sandbox.url,
      API_ORGANIZATION_ID: 'demo',
      API_KEY: 'sandbox-key',
      // Nobody listens there: the messages stay.
      ALERT_WEBHOOK_URL: 'http://127.0.0.1:9/alerts',
      ALERT_WEBHOOK_SECRET: `whsec_${Buffer.alloc(32).toString('base64')}`,
    };
    const run = async (command: string, ...codes: number[]) => {
      const { code, stdout, stderr } = await start(command.split(' '), env, place).finished;
      process.stdout.write(`slotsync ${command}: ${code}\n`);
      if (!(codes.length > 0 ? codes : [0]).includes(code ?? -1)) throw new Error(stdout + stderr);
    };
    const killWorker = async () => {
      const worker = start(['worker'], env, place);
      await until(() => worker.output().includes('worker started'), { describe: 'a worker to start' });
      const isIdle = async () => {
        const [row] = await sql<{ is: boolean }[]>`
          SELECT EXISTS (SELECT FROM slotsync.schedules) AND NOT EXISTS (SELECT FROM slotsync.changes)
            AND NOT EXISTS (SELECT FROM slotsync.runs WHERE finished_at IS NULL) AS is`;
        return row?.is === true;
      };
      await until(isIdle, { describe: 'the worker to have nothing to do' });
      worker.child.kill('SIGKILL');
      await worker.finished;
    };
    await playStory({ sql, sandbox, run, killWorker });

    // Names of the machine, and facts of the server, are no part of it.
    await sql`UPDATE slotsync.processes SET host = 'campus-1', pid = 4711`;
    await sql`UPDATE slotsync.actions SET by = 'operator'`;
    await sql`UPDATE slotsync.exceptions SET by = 'operator'`;
    await sql`UPDATE slotsync.freezes SET frozen_by = 'operator' WHERE frozen_by IS NOT NULL`;
    await sql`
      UPDATE slotsync.databases
      SET system_id = NULL, table_oid = NULL, timeline = NULL, wal_position = NULL, database_oid = 'OID'`;
    const empty = await findEmpty(sql);
    if (empty.length > 0) throw new Error(`the story leaves no row in ${empty.join(', ')}`);
    const rows = (await writeRows(sql, 'slotsync'))
      .replaceAll("'OID'", '(SELECT oid::text FROM pg_database WHERE datname = current_database())')
      .replaceAll(sandbox.url, SERVICE);
    const state = [
      `-- A state of slotsync ${manifest.version} and its mirror: the schema of its migrations, and the rows that a short story left, played\n`,
      '-- with its own commands. Made by `npm run upgrades:record`; never edited.\n',
      await writeSchema(),
      rows,
      MIRROR,
      await writeRows(sql, 'campus'),
    ].join('');
    await loaded.sql.unsafe(state);
    const [before, after] = await Promise.all([describeDatabase(sql), describeDatabase(loaded.sql)]);
    if (JSON.stringify(before) !== JSON.stringify(after))
      throw new Error('the kept file makes another schema than the program: complete writeSchema');

    const content: ServiceContent = {
      schema: SCHEMA,
      objects: [...sandbox.objects(), ...sandbox.unnamedObjects()].sort((a, b) => a.id - b.id),
    };
    await mkdir(folder, { recursive: true });
    await writeFile(path.join(folder, 'state.sql'), state);
    await writeFile(path.join(folder, 'service.json'), `${JSON.stringify(content, null, 2)}\n`);
    await copyFile(path.join(HERE, 'sync.config.ts'), path.join(folder, 'sync.config.ts'));
    process.stdout.write(`${folder}: ${Math.ceil(state.length / 1024)} kB of SQL\n`);
  } finally {
    await Promise.all([made.sql.end(), loaded.sql.end()]);
    await sandbox.close();
    await server.stop();
    await rm(place, { recursive: true });
  }
}

/** The tables without a row. Tables without a column are locks. */
async function findEmpty(sql: postgres.Sql): Promise<string[]> {
  const tables = (await readTables(sql, 'slotsync')).filter((name) => !name.startsWith('lock_'));
  const found = await Promise.all(
    tables.map(async (name) =>
      (await sql`SELECT FROM slotsync.${sql(name)} LIMIT 1`).length === 0 ? [name] : [],
    ),
  );
  return found.flat();
}

await main();
