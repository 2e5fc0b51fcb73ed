// Guarantee 6
// Least privilege: the SQL of docs/security.md makes the roles, with other names, and every command runs with them.
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';
import { isForMirrorAlone } from '../support/services.js';

const SUFFIX = randomBytes(4).toString('hex');
const ROLES = ['slotsync_mirror', 'slotsync_state', 'campus_app', 'campus_owner', 'slotsync_reader'] as const;
type Role = (typeof ROLES)[number];

/** Roles belong to the whole server, which other tests use too. */
const rename = (sql: string) => ROLES.reduce((text, role) => text.replaceAll(role, nameOf(role)), sql);
const nameOf = (role: Role) => `${role}_${SUFFIX}`;

const [mirrorSql = '', stateSql = '', appSql = '', ownerSql = '', readerSql = ''] = readBlocks();

/** Returns the blocks of SQL in the section on roles, in order. */
function readBlocks(): string[] {
  const page = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8');
  const [section = ''] = (page.split('## Database roles\n')[1] ?? '').split('\n## ');
  return [...section.matchAll(/```sql\n(.*?)```/gs)].map(([, sql = '']) => rename(sql));
}

const JUNE = '--from 2026-06-01 --to 2026-07-01';
const world = rehearseOnce({ rows: 3, migrated: false, sandbox: { rate: 0 } });
/** The commands with the documented roles. */
let own: ReturnType<typeof commandsOf>;
let settings: Record<string, string>;
let configuration: string;

function addressOf(role: Role): string {
  const url = new URL(world.url);
  [url.username, url.password] = [nameOf(role), 'choose-one'];
  return url.href;
}

beforeAll(async () => {
  settings = {
    MIRROR_DATABASE_URL: addressOf('slotsync_mirror'),
    STATE_DATABASE_URL: addressOf('slotsync_state'),
  };
  own = commandsOf(world, settings);
  configuration = CONFIGURATION.replaceAll(/from: '(\w+)'/g, "from: 'campus.$1'").replace(
    '  streams: {',
    `  reservations: {
      from: 'campus.bookings', key: 'id', externalId: 'res_{id}', begin: 'begins', end: 'ends', timezone: 'UTC',
      objects: [{ stream: 'rooms', key: 'room' }],
    },
    streams: {`,
  );
  await world.configure(configuration);
  await world.sql.unsafe(`
    REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    -- Another role may have created a function that fits a call of the state better than PostgreSQL's own.
    CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql
      AS $$ BEGIN RAISE 'called with the rights of %', current_user; END $$;
    CREATE ROLE ${nameOf('campus_owner')} LOGIN PASSWORD 'choose-one';
    CREATE SCHEMA campus;
    ALTER TABLE rooms SET SCHEMA campus;
    ALTER TABLE courses SET SCHEMA campus;
    CREATE TABLE campus.bookings (id int PRIMARY KEY, begins timestamp, ends timestamp, room text);
    INSERT INTO campus.bookings VALUES (1, '2026-06-02 09:00', '2026-06-02 10:00', 'R1');
    ALTER TABLE campus.rooms OWNER TO ${nameOf('campus_owner')};
    ALTER TABLE campus.courses OWNER TO ${nameOf('campus_owner')};`);
});

afterAll(async () => {
  for (const role of ROLES.toReversed().map(nameOf))
    await world.sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
});

it('migrate prints the SQL for a role that may not create schemas, and needs nothing more', async () => {
  await world.sql.unsafe(mirrorSql);
  const [createRole = '', setPath = '', ...createSchemas] = stateSql.trim().split('\n');
  await world.sql.unsafe(createRole + setPath);
  await own.refuses('migrate', `→ Let the owner of the database run: ${createSchemas.join(' ')}`);
  await world.sql.unsafe(createSchemas.join('\n'));
  for (const says of ['Applied', 'up to date']) await own.ends('migrate', 0, says);
});

it('the roles of docs/security.md suffice for every command', async () => {
  const { findings } = await own.json<{ findings: { what: string; result: string }[] }>('check --json');
  expect(findings.filter(({ result }) => result === 'fault' || result === 'warning')).toEqual([]);
  expect(findings).toContainEqual({
    what: 'role of the mirror',
    result: 'ok',
    text: `${nameOf('slotsync_mirror')} may only read`,
  });
  for (const command of ['plan', 'match rooms --by room.name', 'sync', `reconcile ${JUNE}`])
    await own.read(command);
  await own.read(['backfill', 'rooms', '--where', 'seats > 1']);
  for (const command of ['status', 'runs', 'failures', 'explain rooms R1', 'push rooms R1'])
    expect(await world.run(command.split(' '), settings), command).toMatchObject({ code: 0, stderr: '' });
  expect(world.sandbox.object('room_R3')).toMatchObject({ active: true });
});

it('check warns of a mirror role that may write or owns the state, and proposes another role', async () => {
  await commandsOf(world, { ...settings, MIRROR_DATABASE_URL: addressOf('slotsync_state') }).ends(
    'check',
    2,
    /! role of the mirror: \S+ may do more than read: it may write to .*slotsync.*; it is the role of the state\n/,
  );
  await world.sql.unsafe(`GRANT UPDATE (name) ON campus.rooms TO ${nameOf('slotsync_mirror')}`);
  await own.ends(
    'check',
    0,
    'may do more than read: it may write to campus.rooms\n',
    'GRANT SELECT ON "campus"."rooms", "campus"."courses", "campus"."bookings" TO',
    ' 0 do not hold, 3 not tested yet, 1 warning. Next',
  );
  await world.sql.unsafe(`REVOKE UPDATE (name) ON campus.rooms FROM ${nameOf('slotsync_mirror')}`);
});

it('rows that a policy hides from the role of the mirror are not taken for deleted', async () => {
  await world.sql.unsafe(`
    ALTER TABLE campus.rooms ENABLE ROW LEVEL SECURITY;
    CREATE POLICY two ON campus.rooms FOR SELECT USING (code IN ('R1', 'R2'))`);
  await own.refuses('sync', /streams\.rooms: from: .*"rooms".*BYPASSRLS.*`rowSecurity: 'filtered'`/);
  expect(world.sandbox.object('room_R3')).toMatchObject({ active: true });
  await own.ends('check', 2, /✗ source of rooms: from: .*"rooms".*BYPASSRLS.*`rowSecurity: 'filtered'`/);
  await world.sql.unsafe(`ALTER ROLE ${nameOf('slotsync_mirror')} BYPASSRLS`);
  const plan = () => own.json('plan rooms --json');
  expect(await plan()).toMatchObject({ streams: [{ counts: { retire: 0 } }] });
  await world.sql.unsafe(`ALTER ROLE ${nameOf('slotsync_mirror')} NOBYPASSRLS`);
  await world.configure(
    configuration.replace("from: 'campus.rooms'", "rowSecurity: 'filtered', from: 'campus.rooms'"),
  );
  expect(await plan()).toMatchObject({ streams: [{ counts: { retire: 1 } }] });
  await own.ends('check', 0, '✓ source of rooms: every column exists; policies may hide rows, as declared');
  await world.configure(configuration);
  await world.sql.unsafe('ALTER TABLE campus.rooms DISABLE ROW LEVEL SECURITY');
});

it('a right that the role of the mirror lacks is named before a run, also for queries and bookings', async () => {
  const role = nameOf('slotsync_mirror');
  await world.sql.unsafe(`REVOKE SELECT ON ALL TABLES IN SCHEMA campus FROM ${role}`);
  await world.configure(
    configuration.replace("from: 'campus.courses'", "from: { query: 'SELECT * FROM campus.courses' }"),
  );
  await own.ends(
    'check',
    2,
    `✗ source of rooms: from: permission denied for table rooms; let the owner run: GRANT USAGE ON SCHEMA "campus" TO ${role}; GRANT SELECT ON "campus"."rooms" TO ${role}\n`,
    `✗ source of courses: from: permission denied for table courses; let the owner run: GRANT SELECT ON … TO ${role}, for each table and view that a query names\n`,
    '✗ source of reservations: from: permission denied for table bookings; let the owner',
  );
  for (const command of ['plan', 'sync', 'reconcile'])
    await own.refuses(
      command,
      /^slotsync: the mirror lacks .*\n[^]*permission denied for table .*GRANT SELECT[^]*grant the missing rights/,
    );
  await world.configure(configuration);
  await world.sql.unsafe(`GRANT SELECT ON ALL TABLES IN SCHEMA campus TO ${role}`);
});

it('the table of loads that freshness reads needs USAGE and SELECT', async () => {
  const role = nameOf('slotsync_mirror');
  await world.sql.unsafe(`
    CREATE SCHEMA etl;
    CREATE TABLE etl.load_log AS SELECT now() AS finished_at`);
  const query = 'SELECT max(finished_at) FROM etl.load_log';
  await world.configure(
    configuration.replace('  streams: {', `  freshness: { query: '${query}' },\n  streams: {`),
  );
  await own.ends('check', 1, 'permission denied for schema etl');
  await world.sql.unsafe(`GRANT USAGE ON SCHEMA etl TO ${role}`);
  await own.ends('check', 1, 'permission denied for table load_log');
  await world.sql.unsafe(`GRANT SELECT ON ALL TABLES IN SCHEMA etl TO ${role}`);
  await own.read('check');
  await own.read('sync');
  await world.configure(configuration);
});

it.skipIf(isForMirrorAlone())(
  'a worker takes changes from the inbox that triggers of the owner and another program added',
  async () => {
    await world.sql.unsafe(ownerSql + appSql);
    const printed = await own.read('triggers print rooms courses');
    const [owner, app] = [addressOf('campus_owner'), addressOf('campus_app')].map((url) =>
      postgres(url, { max: 1, onnotice: () => undefined }),
    );
    try {
      await owner?.unsafe(printed.replace(/^.*\n/, '')); // the first line is for psql
      await owner?.unsafe(`UPDATE campus.rooms SET name = 'Triggered' WHERE code = 'R1'`);
      await world.sql`ALTER TABLE campus.rooms DISABLE TRIGGER USER`;
      await world.sql`UPDATE campus.rooms SET name = 'Inserted' WHERE code = 'R2'`;
      await app?.unsafe(
        `INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'R2'), ('\u001b[2J', 'x')`,
      );
      await world.startWorker([], settings);
      const nameOfRoom = (code: string) => JSON.stringify(world.sandbox.object(`room_${code}`));
      await until(() => nameOfRoom('R1').includes('Triggered') && nameOfRoom('R2').includes('Inserted'), {
        describe: 'both rooms at the service',
      });
      await commandsOf(world, { ...settings, STATE_DATABASE_URL: addressOf('campus_app') }).refuses(
        'push rooms R1',
        /campus_app_\w+, may only add changes to the inbox\n.*insert into slotsync\.changes/,
      );
    } finally {
      await Promise.all([owner?.end(), app?.end()]);
    }
  },
);

it('a role that only reads the state can run status, runs and failures, and nothing else', async () => {
  await world.sql.unsafe(readerSql);
  const reading = { ...settings, STATE_DATABASE_URL: addressOf('slotsync_reader') };
  const status = await commandsOf(world, reading).ends('status --full', 0, 'Quota: ');
  expect(status).not.toContain('\u001b');
  for (const command of ['status', 'runs', 'failures'])
    expect(await world.run([command], reading), command).toMatchObject({ code: 0, stderr: '' });
  const [reader, owner] = [nameOf('slotsync_reader'), nameOf('slotsync_state')];
  // Also the commands that would wait for the quota, which is counted in the state.
  for (const command of [
    'check',
    'explain rooms R1',
    'match rooms --by room.name',
    'sync',
    'pause',
    'worker',
  ]) {
    const { code, stdout, stderr } = await world.run(command.split(' '), reading);
    expect(code, command).toBe(2);
    for (const text of [
      `the role of STATE_DATABASE_URL, ${reader}, may only read the state`,
      `Run this command as ${owner}, which owns the state. ${reader} may run: slotsync status,`,
    ])
      expect(stdout + stderr, command).toContain(text);
  }
  await commandsOf(world, { ...settings, STATE_DATABASE_URL: addressOf('slotsync_mirror') }).refuses(
    'status --full',
    'may not read the state',
  );
  const sql = postgres(addressOf('slotsync_reader'), { max: 1 });
  await expect(sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`).rejects.toThrow(
    'permission denied',
  );
  await sql.end();
});
