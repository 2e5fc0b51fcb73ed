// Guarantee 3
// Connections to PostgreSQL over which nothing arrives any more, though nobody has closed them.
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { Queue, Worker } from 'bullmq';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectPostgres } from '../../src/connections/postgres-connection.js';
import { migrateQueue } from '../../src/queue/bullmq.js';
import { QUEUE_SCHEMA } from '../../src/queue/jobs.js';
import { createSharedBackend } from '../../src/queue/queue-pool.js';
import { startHop, type Hop } from '../support/hop.js';
import { createDatabase, type TestDatabase } from '../support/services.js';
import { until } from '../support/wait.js';

/** A second for an answer. */
const TIMES = { lookMs: 200, askMs: 1000 };
/** Longer than an answer may take that nobody works on, on a slow machine too. */
const LONG_S = 5;

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

/** `work` gets a client over a hop, and the hop. */
async function overHop(
  work: (client: postgres.Sql, hop: Hop) => Promise<unknown>,
  { max = 1, ...silence }: Parameters<typeof connectPostgres>[3] & { max?: number } = {},
): Promise<void> {
  const hop = await startHop(database.url);
  const client = connectPostgres(hop.through(database.url), 'silent', { max }, { ...TIMES, ...silence });
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
    ['a transaction', (client: postgres.Sql) => client.begin((tx) => tx`SELECT 1`)],
  ])('%s: fails, and the next one works over another connection', (_, send) =>
    overHop(async (client, hop) => {
      await send(client);
      hop.forget();
      await expect(send(client)).rejects.toMatchObject(CLOSED);
      await send(client);
    }),
  );

  it('a transaction: its commit fails, and its locks are gone at the server', () =>
    overHop(async (client, hop) => {
      const done = client.begin(async (tx) => {
        await tx`UPDATE rooms SET name = 'y' WHERE code = 1`;
        hop.forget();
      });
      await expect(done).rejects.toMatchObject(CLOSED);
      await client`UPDATE rooms SET name = 'z' WHERE code = 1`;
    }));

  it('while it was idle: the driver ends it, and the next statement works over another one', async () => {
    let sent = 0;
    const hop = await startHop(database.url, { onConnection: () => () => void sent++ });
    const idle = { max: 1, idle_timeout: 1 };
    const client = connectPostgres(hop.through(database.url), 'silent', idle, { ...TIMES, closeMs: 1000 });
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

  it('an answer that was on its way: is not waited for', () =>
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

  it('a reading: fails in the middle', () =>
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

describe('a connection that is silent because the server, or the reader, takes long', () => {
  it('a statement: is waited for', () =>
    overHop(async (client) => {
      expect(await client`SELECT pg_sleep(${LONG_S}), 7 AS seven`).toMatchObject([{ seven: 7 }]);
    }));

  it('a statement behind another one: is waited for', () =>
    overHop(async (client) => {
      const [, answer] = await Promise.all([
        client`SELECT 1`,
        client`SELECT pg_sleep(${LONG_S}), 7 AS seven`,
      ]);
      expect(answer).toMatchObject([{ seven: 7 }]);
    }));

  it('a statement that waits for a lock: is waited for', () =>
    overHop(async (client) => {
      let updated: Promise<unknown> | undefined;
      await admin.begin(async (tx) => {
        await tx`LOCK TABLE rooms`;
        updated = client`UPDATE rooms SET name = 'x' WHERE code = 2`.execute();
        await tx`SELECT pg_sleep(${LONG_S})`;
      });
      await updated;
    }));

  it('a transaction: one that rests between statements goes on', () =>
    overHop(async (client) => {
      await client.begin(async (tx) => {
        await tx`SELECT 1`;
        await admin`SELECT pg_sleep(${LONG_S})`;
        await tx`SELECT 2`;
      });
    }));

  it('a reading: one whose rows are not taken goes on', () =>
    overHop(async (client) => {
      const rows: Readable = await client`COPY (SELECT * FROM rooms) TO STDOUT`.readable();
      await once(rows, 'readable');
      await admin`SELECT pg_sleep(${LONG_S})`;
      let bytes = 0;
      for await (const chunk of rows) bytes += (chunk as Buffer).length;
      expect(bytes).toBeGreaterThan(99_000 * 1000);
    }));

  it('a statement: the question about it calls no function that another role has put into the search path', async () => {
    await admin.unsafe(`CREATE TABLE called AS SELECT 1 AS times WHERE false;
      CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE sql
        AS 'INSERT INTO called VALUES (1) RETURNING ''other''';
      CREATE FUNCTION public.starts_with(text, text) RETURNS boolean LANGUAGE sql
        AS 'INSERT INTO called VALUES (1) RETURNING false'`);
    try {
      await overHop(async (client) => {
        expect(await client`SELECT 1 AS one FROM pg_sleep(${LONG_S})`).toEqual([{ one: 1 }]);
      });
      expect(await admin`SELECT * FROM called`).toEqual([]);
    } finally {
      await admin.unsafe(
        'DROP FUNCTION public.unnest(text[]), public.starts_with(text, text); DROP TABLE called',
      );
    }
  });

  it('a statement: is waited for until its limit where another server answers, which cannot know it', () =>
    overHop(
      async (client, hop) => {
        await client`SELECT 1`;
        hop.forget();
        const sentAt = performance.now();
        await expect(client`SELECT 1`).rejects.toMatchObject(CLOSED);
        expect(performance.now() - sentAt).toBeGreaterThanOrEqual(LONG_S * 1000);
      },
      { serverId: () => 'of the first server', giveUpMs: LONG_S * 1000 },
    ));
});

describe('the queue in PostgreSQL, whose connections have fallen silent', () => {
  it('opens others: jobs are added, and worked as soon as they are there', async () => {
    await migrateQueue({ postgresUrl: database.url });
    const hop = await startHop(database.url);
    const shared = createSharedBackend(hop.through(database.url), QUEUE_SCHEMA, {
      answerMs: 1000,
      askMs: 500,
    });
    const backend = shared.backend as never;
    const names: string[] = [];
    const queue = new Queue('silent', { connection: {} }, backend);
    // Without a look of its own: it hears of a job, or never works it.
    const options = { connection: {}, drainDelay: 3600 };
    const worker = new Worker('silent', async ({ name }) => void names.push(name), options, backend);
    queue.on('error', () => undefined);
    worker.on('error', () => undefined);
    const isWorked = async (name: string) => {
      await queue.add(name, {}).catch(() => undefined);
      return names.includes(name);
    };
    try {
      await until(() => isWorked('before'), { describe: 'a job' });
      hop.forget();
      await until(() => isWorked('after'), { describe: 'a job after the silence', intervalMs: 500 });
    } finally {
      await worker.close(true);
      await queue.close();
      await hop.close();
    }
  });
});
