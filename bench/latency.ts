// How long a single change takes from its COMMIT in the mirror to its acceptance, while a backfill takes the rest of
// the quota, with small requests or with large ones: two workers of the built program, against the service with its quota.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import type { Env } from '../test/support/program.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { ceiling, percent, quantile, RATE, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

const CHANGES = 60;
const ROOMS = 100;

/** The load that the backfill sends beside the changes, and how long the service takes for it. */
const LOADS = {
  small: {
    batchSize: 1,
    /** Rows that outlast one change. */
    rowsAChange: 65,
    latency: { latencyMs: 32, jitterMs: 30, latencyPerObjectMs: 0 },
  },
  large: {
    batchSize: 'auto',
    rowsAChange: 10_000,
    latency: { latencyMs: 20, jitterMs: 0, latencyPerObjectMs: 0.3 },
  },
} as const;
type Load = (typeof LOADS)[keyof typeof LOADS];

const roomStream = (from: string, owns: string, batchSize: number | 'auto') => ({
  from,
  key: 'code',
  type: 'room',
  externalId: `${from}_{code}`,
  fields: { 'room.name': 'name' },
  owns,
  batchSize,
});

/**
 * `npm run bench -- latency [changes] [small|large]`. One change a second; takes about three minutes for small requests and
 * five for large ones.
 */
export async function benchLatency(words: readonly string[]): Promise<void> {
  const changes = Number(words.find((word) => /^\d+$/.test(word)) ?? CHANGES);
  const loads = Object.entries(LOADS).filter(
    ([name]) => words.includes(name) || !words.some((word) => word in LOADS),
  );
  await withCleanup(async (onEnd) => {
    const [server, redis] = [await startEmbeddedPostgres(), await startRedisServer()];
    onEnd(() => Promise.all([server.stop(), redis.stop()]));
    const stores: [string, Env][] = [
      ['PostgreSQL', {}],
      ['Redis', { REDIS_URL: redis.url }],
    ];
    const lines: Cell[][] = [];
    let machine = '';
    const rows = loads.flatMap(([, load]) => stores.map(([store, env]) => ({ load, store, env })));
    for (const [index, { load, store, env }] of rows.entries()) {
      const databaseUrl = await server.createDatabase(`bench_${index}`);
      const sql = postgres(databaseUrl, { max: 2, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      machine = await describeMachine({ sql });
      lines.push([store, ...(await measure({ databaseUrl, sql, env, load }, changes))]);
      showProgress(index + 1, rows.length);
    }
    const headings = [
      'queue and quota on',
      'objects a request beside',
      'changes',
      'median, ms',
      'p95',
      'worst',
    ];
    const more = ['quota used', 'most in 1 s', 'refused'];
    process.stdout.write(`${machine}\n\n${table([...headings, ...more], lines)}\n`);
  });
}

interface Place {
  databaseUrl: string;
  sql: postgres.Sql;
  env: Env;
  load: Load;
}

async function measure({ databaseUrl, sql, env, load }: Place, changes: number): Promise<Cell[]> {
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY, name text);
    INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${ROOMS}) AS i;
    CREATE TABLE bulk (code text PRIMARY KEY, name text);
    INSERT INTO bulk SELECT 'B' || i, 'Bulk ' || i FROM generate_series(1, ${changes * load.rowsAChange}) AS i;
    ANALYZE`);
  const sandbox = await startSandbox({
    rate: RATE,
    ...load.latency,
    schema: { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] },
  });
  const streams = {
    rooms: roomStream('rooms', 'fields', 100),
    bulk: roomStream('bulk', 'object', load.batchSize),
  };
  const slotsync = await install({ databaseUrl, serviceUrl: sandbox.url, configuration: { streams }, env });
  try {
    await slotsync.command('migrate');
    await slotsync.command('sync', 'rooms');
    await slotsync.command('triggers', 'install', 'rooms');
    const puts = () => sandbox.arrivals().filter(({ objects }) => objects !== undefined);
    const began = puts().length;
    // Before a worker begins the first sync of the stream, beside which no backfill is started.
    await slotsync.command('backfill', 'bulk', '--detach');
    await Promise.all([slotsync.startWorker(), slotsync.startWorker()]);
    await until(() => puts().length > began + 3 * RATE, {
      describe: 'the backfill to begin',
      timeoutMs: 300_000,
      intervalMs: 100,
    });

    const millis: number[] = [];
    const from = performance.now();
    for (let change = 1; change <= changes && (await isRunning(sql)); change++) {
      const next = pause(1000);
      const code = `R${(change % ROOMS) + 1}`;
      const name = `Changed ${change}`;
      await sql`UPDATE rooms SET name = ${name} WHERE code = ${code}`;
      const committedAt = performance.now();
      const isAccepted = () =>
        sandbox.object(`rooms_${code}`)?.fields.some(({ values }) => values.includes(name)) ?? false;
      await until(isAccepted, { describe: `change ${change} to arrive`, timeoutMs: 20_000, intervalMs: 2 });
      millis.push(performance.now() - committedAt);
      await next;
    }
    const seconds = (performance.now() - from) / 1000;
    const sent = sandbox.arrivals().filter(({ at }) => at >= from);
    const written = sent.flatMap(({ objects = 0, lane }) => (lane === 'incremental' ? [] : objects));
    const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each, 0) / values.length;
    const { latencyMs, jitterMs, latencyPerObjectMs } = load.latency;
    const meanLatencyMs =
      latencyMs + jitterMs / 2 + latencyPerObjectMs * mean(sent.map(({ objects = 0 }) => objects));
    return [
      `${load.batchSize === 'auto' ? 'auto: ' : ''}${Math.round(mean(written))}`,
      millis.length,
      ...[0.5, 0.95, 1].map((part) => Math.round(quantile(millis, part))),
      percent(sent.length / seconds / ceiling(meanLatencyMs)),
      sandbox.mostInAnySecond(),
      sandbox.refused(),
    ];
  } finally {
    await slotsync.close();
    await sandbox.close();
  }
}

/** Whether the backfill is still under way. */
async function isRunning(sql: postgres.Sql): Promise<boolean> {
  const unfinished = await sql`SELECT FROM slotsync.runs WHERE kind = 'backfill' AND finished_at IS NULL`;
  return unfinished.length > 0;
}
