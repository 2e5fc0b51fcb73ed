// How long a single change takes from its COMMIT in the mirror to its acceptance, while a backfill takes all of the
// quota that is left: the built program as it is run, two workers of it, against the service played with its quota.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { table } from '../src/report/format.js';
import { createProgress } from '../src/report/progress.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { mostInAnySecond } from '../src/sandbox/arrivals.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import { run, start, type Env } from '../test/support/program.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { ceiling, RATE } from './judge.js';
import { describeMachine } from './machine.js';

const SECOND = 1000;
const WORKERS = 2;
const CHANGES = 60;
const LATENCY_MS = 47;
const JITTER_MS = 30;
const ROOMS = 100;
/** One object a request, so that the backfill outlasts the changes. */
const BULK = 4_000;

const CONFIGURATION = `
import { defineConfig } from 'slotsync';
const room = (from, owns, batchSize) => ({ from, key: 'code', type: 'room', externalId: from + '_{code}',
  fields: { 'room.name': 'name' }, owns, batchSize });
export default defineConfig({ streams: { rooms: room('rooms', 'fields', 100), bulk: room('bulk', 'object', 1) } });
`;

interface Measured {
  millis: number[];
  share: number;
  most: number;
  refused: number;
}

/** `npm run bench -- latency`; wants the built program. Takes about three minutes. */
export async function benchLatency(): Promise<void> {
  const server = await startEmbeddedPostgres();
  const redis = await startRedisServer();
  const progress = createProgress('latency');
  const lines: (string | number)[][] = [];
  let machine = '';
  try {
    const stores: [string, Env][] = [
      ['PostgreSQL', {}],
      ['Redis', { REDIS_URL: redis.url }],
    ];
    for (const [at, [name, env]] of stores.entries()) {
      const url = await server.createDatabase(`bench_${at}`);
      const sql = postgres(url, { max: 2, onnotice: () => undefined });
      machine = await describeMachine({ sql });
      const measured = await measure(url, sql, env, (done) =>
        progress.update(at * CHANGES + done, stores.length * CHANGES),
      );
      await sql.end({ timeout: 1 });
      lines.push([name, ...describe(measured)]);
    }
    progress.stop();
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
  } finally {
    await redis.stop();
    await server.stop();
  }
}

async function measure(
  url: string,
  sql: postgres.Sql,
  stores: Env,
  changed: (done: number) => void,
): Promise<Measured> {
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
  const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-bench-'));
  await writeFile(path.join(folder, 'sync.config.ts'), CONFIGURATION);
  const env: Env = {
    ...stores,
    MIRROR_DATABASE_URL: url,
    API_BASE_URL: sandbox.url,
    API_ORGANIZATION_ID: 'demo',
    API_KEY: 'sandbox-key',
    LOG_LEVEL: 'info',
  };
  const slotsync = async (...args: string[]) => {
    const { code, stderr } = await run(args, env, folder);
    if (code !== 0) throw new Error(`slotsync ${args.join(' ')} ended with ${code}: ${stderr}`);
  };
  await slotsync('migrate');
  await slotsync('sync', 'rooms');
  await slotsync('triggers', 'install', 'rooms');
  const workers = Array.from({ length: WORKERS }, () => start(['worker'], env, folder));
  try {
    for (const { output } of workers) {
      await until(() => output().includes('worker started'), { describe: output, timeoutMs: 20_000 });
    }
    await slotsync('backfill', 'bulk', '--detach');
    const began = sandbox.arrivals().length;
    await until(() => sandbox.arrivals().length > began + 3 * RATE, {
      describe: () => `the backfill to begin: ${workers.map(({ output }) => output()).join('')}`,
      timeoutMs: 30_000,
    });

    const millis: number[] = [];
    const from = performance.now();
    for (let at = 1; at <= CHANGES; at++) {
      const next = pause(SECOND);
      const code = `R${(at % ROOMS) + 1}`;
      const name = `Changed ${at}`;
      await sql`UPDATE rooms SET name = ${name} WHERE code = ${code}`;
      const committed = performance.now();
      const isThere = () =>
        sandbox.object(`rooms_${code}`)?.fields.some(({ values }) => values.includes(name)) ?? false;
      await until(isThere, { describe: `change ${at} to arrive`, timeoutMs: 20_000, intervalMs: 2 });
      millis.push(performance.now() - committed);
      changed(at);
      await next;
    }
    const seconds = (performance.now() - from) / SECOND;
    const arrivals = sandbox.arrivals().map(({ at }) => at);
    const sent = arrivals.filter((at) => at >= from).length;
    return {
      millis,
      share: sent / seconds / ceiling(LATENCY_MS),
      most: mostInAnySecond(arrivals),
      refused: sandbox.refused(),
    };
  } finally {
    for (const { child } of workers) child.kill('SIGKILL');
    await Promise.all(workers.map(({ finished }) => finished));
    await sandbox.close();
    await rm(folder, { recursive: true, force: true });
  }
}

function describe({ millis, share, most, refused }: Measured): (string | number)[] {
  const sorted = millis.toSorted((a, b) => a - b);
  const quantile = (part: number) => Math.round(sorted[Math.ceil(part * sorted.length) - 1] ?? NaN);
  return [quantile(0.5), quantile(0.95), quantile(1), `${(100 * share).toFixed(1)} %`, most, refused];
}
