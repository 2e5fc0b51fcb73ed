// Failed connections to PostgreSQL: an address that does not answer, one that is not PostgreSQL, and a full server.
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createWebServer } from 'node:http';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectPostgres } from '../../src/connections/postgres-connection.js';
import { copyOut } from '../../src/connections/postgres-copy.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { openReadOnlySessions } from '../../src/mirror/read-only-sessions.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { requireQueueTables } from '../../src/queue/require-queue-tables.js';
import { openState, query, type State } from '../../src/state/database.js';
import { readPlanMarks } from '../../src/state/records/read/plan-marks.js';
import { createDatabase, type TestDatabase } from '../support/services.js';
import { until } from '../support/wait.js';

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const read = (state: State) => query(state.db)`SELECT 1`;

describe('an address of something else than PostgreSQL', () => {
  const servers: Server[] = [];
  afterAll(() => servers.forEach((server) => server.close()));

  it.each([
    ['a web server', () => createWebServer((_, answer) => answer.end('hello')), 'NOT_POSTGRESQL'],
    ['a server that closes the connection', () => createServer((socket) => socket.end()), 'NOT_POSTGRESQL'],
    ['a server that says nothing', () => createServer(), 'CONNECT_TIMEOUT'],
  ])('is reported by the state and the mirror without a long wait: %s', async (_, create, code) => {
    const server = create();
    servers.push(server);
    const url = `postgres://someone:secret@127.0.0.1:${await listen(server)}/campus`;
    const [state, mirror] = [openState({ url }), createMirror({ url })];
    const failed = await Promise.allSettled([read(state), mirror.ping()]);
    await Promise.all([state.close(), mirror.close()]);
    expect(failed).toMatchObject([
      { reason: { code: 'state_unreachable', message: expect.stringContaining(code) } },
      { reason: { code: 'mirror_unreachable', message: expect.stringContaining(code) } },
    ]);
  });
});

it('a COPY is read to its end, even if the idle connection was closed meanwhile', async () => {
  const database = await createDatabase();
  const admin = postgres(database.url, { max: 1, onnotice: () => undefined });
  try {
    const client = connectPostgres(database.url, 'briefly', { idle_timeout: 0.1 });
    const lines = copyOut(client, 'COPY (SELECT generate_series(1, 3)) TO STDOUT');
    expect(await lines.next()).toEqual({ done: false, value: ['1', '2', '3'] });
    const isClosed = async () =>
      (await admin`SELECT FROM pg_stat_activity WHERE application_name = 'slotsync briefly'`).length === 0;
    await until(isClosed, { describe: 'the connection to be closed' });
    expect(await lines.next()).toEqual({ done: true, value: undefined });
    await client.end({ timeout: 1 });
  } finally {
    await admin.end();
    await database.drop();
  }
});

it('PostgreSQL ends a statement of the mirror whose reader is gone', async () => {
  const database = await createDatabase();
  const admin = postgres(database.url, { max: 1, onnotice: () => undefined });
  const asleep = () =>
    admin`SELECT FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'
      AND datname = current_database()`;
  try {
    const sessions = openReadOnlySessions(database.url);
    const sleeping = sessions.query('SELECT pg_sleep(600)').catch((error: unknown) => error);
    await until(async () => (await asleep()).length === 1, { describe: 'a statement' });
    await sessions.close();
    await sleeping;
    await until(async () => (await asleep()).length === 0, { describe: 'no statement', timeoutMs: 30_000 });
  } finally {
    await admin.end({ timeout: 1 });
    await database.drop();
  }
});

describe('a server with too many connections', () => {
  let database: TestDatabase;
  let admin: postgres.Sql;
  /** Counts the connections that the server has ended. */
  let proxy: Server;
  let refused = 0;
  let url: string;
  const role = `slotsync_full_${randomBytes(4).toString('hex')}`;
  beforeAll(async () => {
    database = await createDatabase();
    admin = postgres(database.url, { max: 1, onnotice: () => undefined });
    await migrateQueue({ postgresUrl: database.url });
    await admin.unsafe(`
      CREATE ROLE ${role} LOGIN PASSWORD 'secret';
      GRANT USAGE ON SCHEMA slotsync, slotsync_queue TO ${role};
      GRANT SELECT ON ALL TABLES IN SCHEMA slotsync, slotsync_queue TO ${role}`);
    const server = new URL(database.url);
    const [port, host] = [Number(server.port || 5432), server.hostname];
    proxy = createServer((socket) => {
      const onward = connect(port, host);
      onward.on('end', () => refused++);
      for (const [from, to] of [
        [socket, onward],
        [onward, socket],
      ] as const) {
        from.on('error', () => to.destroy());
        from.pipe(to);
      }
    });
    server.username = role;
    server.password = 'secret';
    server.host = `127.0.0.1:${await listen(proxy)}`;
    url = server.href;
  });
  afterAll(async () => {
    proxy.close();
    await admin.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    await admin.end();
    await database.drop();
  });

  it.each([
    ['a query of the state', (state: State) => read(state)],
    ['a transaction of the state', (state: State) => state.db.transaction((tx) => query(tx)`SELECT 1`)],
    ['a reading of a whole stream', async (state: State) => readPlanMarks(state, 'rooms').next()],
    ['the queue', (state: State) => requireQueueTables(state)],
    [
      'the mirror',
      async () => {
        const mirror = createMirror({ url });
        await mirror.ping();
        await mirror.close();
      },
    ],
  ])('makes %s wait until there is a free connection', async (_, work) => {
    const state = openState({ url });
    await admin.unsafe(`ALTER ROLE ${role} CONNECTION LIMIT 0`);
    const before = refused;
    const worked = work(state).then(
      () => 'worked',
      (error: unknown) => error,
    );
    await until(() => refused > before, { describe: 'a connection to be refused' });
    await admin.unsafe(`ALTER ROLE ${role} CONNECTION LIMIT -1`);
    expect(await worked).toBe('worked');
    await state.close();
  });
});

describe('a client whose connection is lost', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createDatabase();
  });
  afterAll(() => database.drop());

  it.each([false, true])('answers nothing unless it reconnects: %s', async (reconnects) => {
    const client = connectPostgres(database.url, 'once', { fetch_types: false }, { reconnects });
    const other = connectPostgres(database.url, 'other');
    const [backend] = await client.unsafe('SELECT pg_backend_pid() AS pid');
    await other`SELECT pg_terminate_backend(${backend?.['pid']})`;
    const answers = () =>
      client.unsafe('SELECT 1').then(
        () => 'answered',
        () => 'lost',
      );
    await until(async () => (await answers()) === (reconnects ? 'answered' : 'lost'), {
      describe: 'the loss',
    });
    expect([await answers(), await answers()]).toEqual(
      reconnects ? ['answered', 'answered'] : ['lost', 'lost'],
    );
    await Promise.all([client.end({ timeout: 1 }), other.end()]);
  });
});
