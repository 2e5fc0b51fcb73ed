// How long a single change takes from its COMMIT in the mirror to its acceptance, while a backfill takes the rest of
// the quota: two workers of the built program, against the service with its quota.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/report/format.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import type { Env } from '../test/support/program.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { ceiling, percent, quantile, RATE, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

const CHANGES = 60;
const LATENCY_MS = 47;
const JITTER_MS = 30;
const ROOMS = 100;
/** One object a request, so that the backfill outlasts the changes. */
const BULK = 4_000;
const roomStream = (from: string, owns: string, batchSize: number) => ({
  from,
  key: 'code',
  type: 'room',
  externalId: `${from}_{code}`,
  fields: { 'room.name': 'name' },
  owns,
  batchSize,
});
const CONFIGURATION = {
  streams: { rooms: roomStream('rooms', 'fields', 100), bulk: roomStream('bulk', 'object', 1) },
};

/** `npm run bench -- latency [changes]`. One change a second; takes about three minutes. */
export async function benchLatency([changes = String(CHANGES)]: readonly string[]): Promise<void> {
  await withCleanup(async (onEnd) => {
    const [server, redis] = [await startEmbeddedPostgres(), await startRedisServer()];
    onEnd(() => Promise.all([server.stop(), redis.stop()]));
    const stores: [string, Env][] = [
      ['PostgreSQL', {}],
      ['Redis', { REDIS_URL: redis.url }],
    ];
    const lines: Cell[][] = [];
    let machine = '';
    for (const [at, [name, env]] of stores.entries()) {
      const databaseUrl = await server.createDatabase(`bench_${at}`);
      const sql = postgres(databaseUrl, { max: 2, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      machine = await describeMachine({ sql });
      lines.push([name, ...(await measure(databaseUrl, sql, env, Number(changes)))]);
      showProgress(at + 1, stores.length);
    }
    const headings = [
      'queue and quota on',
      'median, ms',
      'p95',
      'worst',
      'quota used',
      'most in 1 s',
      'refused',
    ];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n`);
  });
}

async function measure(databaseUrl: string, sql: postgres.Sql, env: Env, changes: number): Promise<Cell[]> {
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY, name text);
    INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${ROOMS}) AS i;
    CREATE TABLE bulk (code text PRIMARY KEY, name text);
    INSERT INTO bulk SELECT 'B' || i, 'Bulk ' || i FROM generate_series(1, ${BULK}) AS i`);
  const sandbox = await startSandbox({
    rate: RATE,
    latencyMs: LATENCY_MS - JITTER_MS / 2,
    jitterMs: JITTER_MS,
    schema: { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] },
  });
  const slotsync = await install({ databaseUrl, serviceUrl: sandbox.url, configuration: CONFIGURATION, env });
  try {
    await slotsync.command('migrate');
    await slotsync.command('sync', 'rooms');
    await slotsync.command('triggers', 'install', 'rooms');
    await Promise.all([slotsync.startWorker(), slotsync.startWorker()]);
    await slotsync.command('backfill', 'bulk', '--detach');
    const began = sandbox.arrivals().length;
    await until(() => sandbox.arrivals().length > began + 3 * RATE, {
      describe: 'the backfill to begin',
      timeoutMs: 30_000,
    });

    const millis: number[] = [];
    const from = performance.now();
    for (let at = 1; at <= changes; at++) {
      const next = pause(1000);
      const code = `R${(at % ROOMS) + 1}`;
      const name = `Changed ${at}`;
      await sql`UPDATE rooms SET name = ${name} WHERE code = ${code}`;
      const committedAt = performance.now();
      const isAccepted = () =>
        sandbox.object(`rooms_${code}`)?.fields.some(({ values }) => values.includes(name)) ?? false;
      await until(isAccepted, { describe: `change ${at} to arrive`, timeoutMs: 20_000, intervalMs: 2 });
      millis.push(performance.now() - committedAt);
      await next;
    }
    const seconds = (performance.now() - from) / 1000;
    const sent = sandbox.arrivals().filter(({ at }) => at >= from).length;
    return [
      ...[0.5, 0.95, 1].map((part) => Math.round(quantile(millis, part))),
      percent(sent / seconds / ceiling(LATENCY_MS)),
      sandbox.mostInAnySecond(),
      sandbox.refused(),
    ];
  } finally {
    await slotsync.close();
    await sandbox.close();
  }
}
