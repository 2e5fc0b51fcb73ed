// How much of the machine the corridor itself takes, the quota left out: from rows to recorded state, beside a bare
// loop over the same libraries that reads rows, puts them and notes it, and knows nothing of claims, queues or crashes.
import pLimit from 'p-limit';
import { pino } from 'pino';
import postgres from 'postgres';
import { Pool } from 'undici';
import { table } from '../src/report/format.js';
import { createProgress } from '../src/report/progress.js';
import { checkConfiguration } from '../src/config-file.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { createDestination } from '../src/destination/destination.js';
import { createMirror } from '../src/mirror/mirror.js';
import { migrateQueue, openBullmq } from '../src/queue/bullmq.js';
import type { QueueStore } from '../src/queue/queue-address.js';
import { createProducer } from '../src/queue/producer.js';
import { createWorkers } from '../src/queue/workers.js';
import { openState } from '../src/state/database.js';
import { migrate } from '../src/state/migrate.js';
import { readRun, startRun } from '../src/state/runs/runs.js';
import { findFreePort } from '../test/support/free-port.js';
import { start } from '../test/support/program.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { median } from './judge.js';
import { describeMachine } from './machine.js';
import { apiOf, UNLIMITED } from './no-quota.js';

const CONCURRENCY = 12;
const LATENCY_MS = 2;
const REPEATS = 3;
const BARE = 'bare loop, one after the other';
const SIZES = [
  { batchSize: 1, rows: 2_000 },
  { batchSize: 10, rows: 10_000 },
  { batchSize: 100, rows: 200_000 },
];

interface Stage {
  /** A database of its own with `rooms` in it. */
  url: string;
  serviceUrl: string;
  batchSize: number;
  /** By default one request a batch, as the bare loop. */
  owns?: 'object' | 'fields';
}

/** `npm run bench -- pipeline [objects a request …]`; wants the built program. Medians of three, each over new databases. */
export async function benchPipeline(args: readonly string[]): Promise<void> {
  const sizes = SIZES.filter(({ batchSize }) => args.length === 0 || args.includes(String(batchSize)));
  const server = await startEmbeddedPostgres();
  const redis = await startRedisServer();
  const progress = createProgress('pipeline');
  const lines: (string | number)[][] = [];
  let machine = '';
  let database = 0;
  try {
    const ways: [string, (stage: Stage) => Promise<{ seconds: number }>][] = [
      [BARE, (stage) => bare(stage, 1)],
      ['bare loop, twelve at a time', (stage) => bare(stage, CONCURRENCY)],
      ['slotsync, queue on PostgreSQL', (stage) => slotsync(stage, { postgresUrl: stage.url })],
      ['slotsync, queue on Redis', (stage) => slotsync(stage, { redisUrl: redis.url })],
    ];
    for (const [at, { batchSize, rows }] of sizes.entries()) {
      const rates = new Map<string, number[]>();
      for (let repeat = 0; repeat < REPEATS; repeat++) {
        for (const [name, way] of ways) {
          const url = await server.createDatabase(`bench_${database++}`);
          machine = await fill(url, rows);
          const service = await startService();
          const { seconds } = await way({ url, serviceUrl: service.url, batchSize });
          await service.stop();
          rates.set(name, [...(rates.get(name) ?? []), rows / seconds]);
        }
        progress.update(at * REPEATS + repeat + 1, sizes.length * REPEATS);
      }
      const bareRate = median(rates.get(BARE) ?? []);
      for (const [name, all] of rates) {
        const rate = median(all);
        lines.push([
          batchSize,
          name,
          ...[rate, Math.min(...all), Math.max(...all)].map(Math.round),
          (rate / bareRate).toFixed(2),
        ]);
      }
    }
    progress.stop();
    const headings = ['objects a request', '', 'objects/s (median)', 'min', 'max', 'to the bare loop'];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n\n`);
    await measureRequests(await server.createDatabase('bench_changes'));
  } finally {
    await redis.stop();
    await server.stop();
  }
}

const CHANGES = { rows: 100_000, batchSize: 100, part: 100 };

/** Requests that a change of one row in a hundred takes, everything counted. */
async function measureRequests(url: string): Promise<void> {
  const { rows, batchSize, part } = CHANGES;
  await fill(url, rows);
  const service = await startService();
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const lines: (string | number)[][] = [];
  const stage = { url, serviceUrl: service.url, batchSize };
  await slotsync(stage, { postgresUrl: url });
  for (const owns of ['object', 'fields'] as const) {
    await sql`UPDATE rooms SET seats = seats + 1 WHERE right(code, 2) = '07'`;
    const { requests } = await slotsync({ ...stage, owns }, { postgresUrl: url });
    const least = (rows / part / batchSize) * (owns === 'object' ? 1 : 2);
    lines.push([owns === 'object' ? 'the whole object' : 'its fields: read, merge, write', requests, least]);
  }
  await sql.end();
  await service.stop();
  process.stdout.write(`1 % of ${rows} objects changed, ${batchSize} objects a request\n\n`);
  process.stdout.write(`${table(['the mapping owns', 'requests', 'least possible'], lines)}\n`);
}

async function fill(url: string, rows: number): Promise<string> {
  await migrate(url);
  await migrateQueue({ postgresUrl: url });
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  await sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, seats int)`;
  await sql`INSERT INTO rooms SELECT 'R' || i, 'Room ' || i, i % 300 FROM generate_series(1, ${rows}) AS i`;
  await sql`CREATE TABLE noted (code text PRIMARY KEY, object text, at timestamptz)`;
  await sql`ANALYZE`;
  const machine = await describeMachine({ sql });
  await sql.end();
  return machine;
}

/** The sandbox in a process of its own, as the service is. */
async function startService() {
  const port = await findFreePort();
  const args = ['sandbox', '--port', String(port), '--rate', '0', '--latency', String(LATENCY_MS)];
  const { child, finished, output } = start(args, {}, '/');
  const url = `http://127.0.0.1:${port}`;
  await until(() => output().includes(url), { describe: () => `the sandbox to start: ${output()}` });
  await fetch(`${url}/sandbox/schema`, {
    method: 'PUT',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      types: [{ extId: 'room' }],
      fields: [{ extId: 'room.name' }, { extId: 'room.seats' }],
    }),
  });
  return {
    url,
    async stop(): Promise<void> {
      child.kill('SIGTERM');
      await finished;
    },
  };
}

/** One run over everything. */
async function slotsync(
  { url, serviceUrl, batchSize, owns = 'object' }: Stage,
  store: QueueStore,
): Promise<{ seconds: number; requests: number }> {
  const { streams, service } = checkConfiguration({
    streams: {
      rooms: {
        from: 'rooms',
        key: 'code',
        type: 'room',
        externalId: 'room_{code}',
        fields: { 'room.name': 'name', 'room.seats': 'seats' },
        owns,
        batchSize,
      },
    },
  });
  const log = pino({ level: 'silent' });
  const state = openState({ url });
  const mirror = createMirror({ url });
  const destination = createDestination({ api: apiOf(serviceUrl), limiter: UNLIMITED, log, ...service });
  const bullmq = openBullmq(store, crypto.randomUUID(), log);
  const producer = createProducer({ bullmq, state });
  const workers = createWorkers({
    bullmq,
    producer,
    log,
    state,
    mirror,
    destination,
    streams: new Map(streams.map((stream) => [stream.name, stream])),
    concurrency: CONCURRENCY,
    probe: async () => undefined,
    startDueRuns: async () => undefined,
  });
  await workers.start();
  const startedAt = performance.now();
  const { run } = await startRun(state.db, { kind: 'backfill', lane: 'backfill', streams: ['rooms'] });
  await producer.enqueueRun(run.id, run.lane);
  await until(async () => (await readRun(state.db, run.id))?.finishedAt, {
    describe: 'the run to end',
    timeoutMs: 300_000,
    intervalMs: 10,
  });
  const seconds = (performance.now() - startedAt) / 1000;
  const finished = await readRun(state.db, run.id);
  if (finished?.status !== 'succeeded') throw new Error(`the run is ${finished?.status}`);
  const requests = destination.requests();
  await workers.stop();
  await producer.close();
  await destination.close();
  await mirror.close();
  await state.close();
  return { seconds, requests };
}

/** What one would write: pages of rows by key, one PUT a page, one statement that notes it. */
async function bare({ url, serviceUrl, batchSize }: Stage, atOnce: number): Promise<{ seconds: number }> {
  const sql = postgres(url, { max: CONCURRENCY, onnotice: () => undefined });
  const pool = new Pool(serviceUrl, { connections: CONCURRENCY });
  const { key, organizationId, region } = apiOf(serviceUrl);
  const startedAt = performance.now();
  const authenticated = await pool.request({
    method: 'POST',
    path: `/v1/organizations/${organizationId}/api-keys/authenticate`,
    headers: { authorization: `Api-Key ${key}`, 'x-region': region },
  });
  const { token } = (await authenticated.body.json()) as { token: string };
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };

  async function put(rows: readonly { code: string; name: string; seats: number }[]): Promise<void> {
    const objects = rows.map(({ code, name, seats }) => ({
      extId: `room_${code}`,
      typeId: 'room',
      active: true,
      fields: [
        { fieldId: 'room.name', values: [name] },
        { fieldId: 'room.seats', values: [String(seats)] },
      ],
    }));
    const body = JSON.stringify({ idFormat: 'EXTERNAL', objects });
    const answer = await pool.request({ method: 'PUT', path: '/v1/objects', headers, body });
    const { results } = (await answer.body.json()) as { results: { extId: string; status: number }[] };
    if (results.some(({ status }) => status >= 300)) throw new Error('an object was refused');
    const noted = rows.map(({ code }, at) => ({ code, object: JSON.stringify(objects[at]), at: new Date() }));
    await sql`INSERT INTO noted ${sql(noted)} ON CONFLICT (code) DO UPDATE SET object = excluded.object, at = excluded.at`;
  }

  const limit = pLimit(atOnce);
  const puts: Promise<void>[] = [];
  for (let last = ''; ;) {
    const rows = await sql<{ code: string; name: string; seats: number }[]>`
      SELECT code, name, seats FROM rooms WHERE code COLLATE "C" > ${last} ORDER BY code COLLATE "C" LIMIT 1000`;
    for (let at = 0; at < rows.length; at += batchSize) {
      puts.push(limit(() => put(rows.slice(at, at + batchSize))));
    }
    const end = rows.at(-1);
    if (!end) break;
    last = end.code;
  }
  await Promise.all(puts);
  const seconds = (performance.now() - startedAt) / 1000;
  await pool.destroy();
  await sql.end();
  return { seconds };
}
