// Guarantee 3
// Connections to PostgreSQL over which nothing arrives any more, although nobody has closed them.
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import type { Readable } from 'node:stream';
import { Queue, Worker } from 'bullmq';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { connectPostgres, inTransaction } from '../../src/connections/postgres-connection.js';
import { openRedis } from '../../src/connections/redis-connection.js';
import { watchdog } from '../../src/connections/watchdog.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { QUEUE_SCHEMA } from '../../src/queue/jobs.js';
import { createSharedBackend } from '../../src/queue/queue-pool.js';
import { openState } from '../../src/state/database.js';
import { startHop, type Hop } from '../support/hop.js';
import { createDatabase, redisUrl, type TestDatabase } from '../support/services.js';
import { until } from '../support/wait.js';

/** Times that allow a second for an answer. */
const TIMES = { lookMs: 200, answerWithinMs: 1000, closeWithinMs: 500 };

let database: TestDatabase;
let admin: postgres.Sql;
beforeAll(async () => {
  database = await createDatabase();
  admin = postgres(database.url, { max: 1 });
  await admin`CREATE TABLE rooms AS SELECT i AS code, repeat('x', 1000) AS name FROM generate_series(1, 100000) AS i`;
});
afterAll(async () => {
  await admin.end();
  await database.drop();
});

/** Runs `work` with a client that connects over a hop, and with the hop. */
async function overHop(
  work: (client: postgres.Sql, hop: Hop) => Promise<unknown>,
  options: postgres.Options<{}> = {},
): Promise<void> {
  const hop = await startHop(database.url);
  const client = connectPostgres(hop.through(database.url), 'silent', options, TIMES);
  try {
    await work(client, hop);
  } finally {
    await client.end({ timeout: 0 });
    await hop.close();
  }
}

const CLOSED = { code: 'CONNECTION_CLOSED' };

describe('a connection that has fallen silent', () => {
  it.each([
    ['a statement', (client: postgres.Sql) => client`SELECT 1`],
    [
      'several statements at once',
      (client: postgres.Sql) => Promise.all([1, 2, 3].map((i) => client`SELECT ${i}`)),
    ],
    [
      'a transaction',
      (client: postgres.Sql) => inTransaction(client, (tx) => tx.send((sql) => sql`SELECT 1`)),
    ],
  ])('fails %s, and the next attempt works over another connection', (_, send) =>
    overHop(async (client, hop) => {
      await send(client);
      hop.forget();
      await expect(send(client)).rejects.toMatchObject(CLOSED);
      await send(client);
    }),
  );

  it('fails the commit of a transaction', () =>
    overHop(async (client, hop) => {
      const done = inTransaction(client, async (tx) => {
        await tx.send((sql) => sql`UPDATE rooms SET name = 'y' WHERE code = 1`);
        hop.forget();
      });
      await expect(done).rejects.toMatchObject(CLOSED);
      await client`SELECT 1`;
    }));

  it('is ended by the driver while it is idle, and the next statement works over another one', async () => {
    let sent = 0;
    const hop = await startHop(database.url, { onConnection: () => () => void sent++ });
    const idle = { max: 1, idle_timeout: 1 };
    const times = { ...TIMES, answerWithinMs: 600_000 };
    const client = connectPostgres(hop.through(database.url), 'silent', idle, times);
    try {
      await client`SELECT 1`;
      const before = sent;
      hop.forget();
      await until(() => sent > before, { describe: 'the driver to end the connection' });
      expect(await client`SELECT 7 AS seven`).toMatchObject([{ seven: 7 }]);
    } finally {
      await client.end({ timeout: 0 });
      await hop.close();
    }
  });

  it('ends the wait for an answer that was on its way', () =>
    overHop(async (client, hop) => {
      const sleeping = client`SELECT pg_sleep(1)`.execute();
      await until(
        async () => (await admin`SELECT FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(1)'`).count,
        {
          describe: 'the statement to arrive',
        },
      );
      hop.forget();
      await expect(sleeping).rejects.toMatchObject(CLOSED);
    }));

  it('fails a reading in its middle', () =>
    overHop(async (client, hop) => {
      const rows: Readable = await client`COPY (SELECT * FROM rooms) TO STDOUT`.readable();
      const failed = once(rows, 'error');
      let bytes = 0;
      rows.on('data', (chunk: Buffer) => {
        if (bytes === 0) hop.forget();
        bytes += chunk.length;
      });
      expect(await failed).toMatchObject([CLOSED]);
      expect(bytes).toBeLessThan(100_000 * 1000);
    }));
});

it('a reading whose rows are taken slowly goes on longer than an answer may take', () =>
  overHop(async (client) => {
    const rows: Readable = await client`COPY (SELECT * FROM rooms) TO STDOUT`.readable();
    await once(rows, 'readable');
    await admin`SELECT pg_sleep(3)`;
    let bytes = 0;
    for await (const chunk of rows) bytes += (chunk as Buffer).length;
    expect(bytes).toBeGreaterThan(99_000 * 1000);
  }));

it('a client connects again after its server was silent for a while', () =>
  overHop(
    async (client, hop) => {
      hop.silence();
      await expect(client`SELECT 1`).rejects.toMatchObject({ code: 'CONNECT_TIMEOUT' });
      hop.speak();
      await client`SELECT 1`;
    },
    { connect_timeout: 0.5 },
  ));

it('a client connects again after its server closed connections for a while', async () => {
  let isBroken = true;
  const { hostname, port } = new URL(database.url);
  const proxy = createServer((socket) => {
    if (isBroken) return void socket.end();
    const onward = connect(Number(port), hostname);
    onward.on('error', () => socket.destroy()).on('close', () => socket.destroy());
    socket
      .on('error', () => onward.destroy())
      .pipe(onward)
      .pipe(socket);
  });
  await once(proxy.listen(0, '127.0.0.1'), 'listening');
  const url = new URL(database.url);
  url.host = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const client = connectPostgres(url.href, 'silent', { connect_timeout: 2 });
  try {
    await expect(client`SELECT 1`).rejects.toMatchObject({ code: 'NOT_POSTGRESQL' });
    isBroken = false;
    await client`SELECT 1`;
  } finally {
    await client.end({ timeout: 0 });
    proxy.close();
  }
});

it.each([
  [undefined, '10min'],
  [60, '1min'],
])(
  'a statement of the state ends before its connection is closed (statementSeconds: %s)',
  async (statementSeconds, limit) => {
    const state = openState({ url: database.url, ...(statementSeconds && { statementSeconds }) });
    try {
      expect(await state.db.transaction((tx) => tx.execute('SHOW statement_timeout'))).toEqual([
        { statement_timeout: limit },
      ]);
    } finally {
      await state.close();
    }
  },
);

describe('the queue in PostgreSQL with silent connections', () => {
  it('opens new connections, adds and works jobs, and listens for new jobs', async () => {
    await migrateQueue({ postgresUrl: database.url });
    let listening = 0;
    const countListening = () => (chunk: Buffer) => void (chunk.includes('LISTEN') && listening++);
    const hop = await startHop(database.url, { onConnection: countListening });
    const backend = createSharedBackend(hop.through(database.url), QUEUE_SCHEMA, 1000) as never;
    const names: string[] = [];
    const queue = new Queue('silent', { connection: {} }, backend);
    const options = { connection: {}, drainDelay: 1 };
    const worker = new Worker('silent', async ({ name }) => void names.push(name), options, backend);
    queue.on('error', () => undefined);
    worker.on('error', () => undefined);
    const isWorked = async (name: string) => {
      await queue.add(name, {}).catch(() => undefined);
      return names.includes(name);
    };
    try {
      await until(() => isWorked('before'), { describe: 'a job' });
      await until(() => listening > 0, { describe: 'the worker to listen' });
      hop.forget();
      await until(() => isWorked('after'), { describe: 'a job after the silence', intervalMs: 500 });
      await until(() => listening > 1, { describe: 'a connection that listens again' });
    } finally {
      await worker.close(true);
      await queue.close();
      await hop.close();
    }
  });
});

it.skipIf(redisUrl() === undefined)(
  'a silent connection to Redis is noted, and so is a new connection that answers',
  async () => {
    const url = redisUrl() ?? '';
    const hop = await startHop(url);
    const notes = [vi.spyOn(watchdog, 'silent'), vi.spyOn(watchdog, 'answers')] as const;
    const unanswered = vi.spyOn(watchdog, 'unanswered');
    const client = openRedis(hop.through(url), 'silent', {
      maxRetriesPerRequest: 3,
      onPostponed: () => undefined,
    });
    client.on('error', () => undefined);
    try {
      await client.ping();
      for (const note of notes) note.mockClear();
      hop.forget();
      expect(await client.ping()).toBe('PONG'); // it is sent again over the next connection
      for (const note of notes) expect(note).toHaveBeenCalled();
      expect(unanswered).not.toHaveBeenCalled();
    } finally {
      client.disconnect();
      await hop.close();
      vi.restoreAllMocks();
    }
  },
);
