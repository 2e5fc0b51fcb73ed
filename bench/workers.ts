// How much of the quota a pool of workers uses: one backlog, worked by one process or by several, near their databases or
// with a hop in between that takes its time in each direction.
import { parseArgs } from 'node:util';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import type { Arrival } from '../src/sandbox/quota.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { startCountingHop } from '../test/support/round-trips.js';
import { until } from '../test/support/wait.js';
import { ceiling, percent, RATE, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';
import { fillThings, THINGS, THINGS_SCHEMA } from './things.js';

const LATENCY_MS = 100;
const STORES = ['postgres', 'redis'] as const;
const HEADINGS = ['of the quota', 'requests/s', 'longest gap, ms', 'finds', 'most in a second', 'seconds'];

/**
 * `npm run bench -- workers [workers …] [--rows N] [--size N|auto] [--ms N] [--store postgres|redis] [--concurrency N]
 * [--beside <folder>]`: numbers of processes, 1 2 3 8 16 unless given; rows; objects in one request; milliseconds to the
 * databases in each direction; also the built program of the tree in that folder. A minute for each line.
 */
export async function benchWorkers(words: readonly string[]): Promise<void> {
  const { positionals, values } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: {
      rows: { type: 'string', default: '5000' },
      size: { type: 'string', default: '5' },
      ms: { type: 'string', default: '0' },
      store: { type: 'string' },
      concurrency: { type: 'string' },
      beside: { type: 'string' },
    },
  });
  const numbers = positionals.length === 0 ? [1, 2, 3, 8, 16] : positionals.map(Number);
  const stores = STORES.filter((store) => values.store === undefined || values.store === store);
  const trees = [undefined, ...(values.beside === undefined ? [] : [values.beside])];
  const batchSize = values.size === 'auto' ? 'auto' : Number(values.size);
  const args = values.concurrency === undefined ? [] : ['--concurrency', values.concurrency];
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const redis = await startRedisServer();
    onEnd(() => redis.stop());
    const [toPostgres, toRedis] = [await startCountingHop(server.url), await startCountingHop(redis.url)];
    onEnd(() => Promise.all([toPostgres.close(), toRedis.close()]));

    async function measure(store: string, workers: number, tree: string | undefined, database: string) {
      const databaseUrl = await server.createDatabase(database);
      const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
      await fillThings(sql, Number(values.rows));
      const service = await startService({ rate: RATE, latencyMs: LATENCY_MS, schema: THINGS_SCHEMA });
      const isFar = values.ms !== '0';
      const redisUrl = isFar ? toRedis.through(redis.url) : redis.url;
      const slotsync = await install({
        databaseUrl: isFar ? toPostgres.through(databaseUrl) : databaseUrl,
        serviceUrl: service.url,
        configuration: { streams: { things: { ...THINGS.streams.things, owns: 'object', batchSize } } },
        env: { REDIS_URL: store === 'redis' ? redisUrl : undefined },
        tree,
      });
      try {
        await slotsync.command('migrate');
        await Promise.all(Array.from({ length: workers }, () => slotsync.startWorker(...args)));
        // The first whole sync of a new stream is started by a worker.
        const isSent = async () => (await sql`SELECT FROM slotsync.records WHERE status = 'synced'`).length;
        await until(async () => (await isSent()) >= Number(values.rows), {
          describe: 'every row to be sent',
          timeoutMs: 600_000,
          intervalMs: 500,
        });
        const answer = await fetch(`${service.url}/sandbox/arrivals`);
        const { mostInAnySecond } = await service.summary();
        return [...describe((await answer.json()) as Arrival[], mostInAnySecond)];
      } finally {
        await slotsync.close();
        await service.stop();
        await sql.end({ timeout: 1 });
      }
    }

    const lines: Cell[][] = [];
    for (const store of stores)
      for (const workers of numbers)
        for (const tree of trees) {
          for (const hop of [toPostgres, toRedis]) hop.setShape({ delayMs: Number(values.ms) });
          const figures = await measure(store, workers, tree, `bench_${lines.length}`);
          lines.push([store === 'redis' ? 'Redis' : 'PostgreSQL', tree ?? 'this one', workers, ...figures]);
          process.stderr.write(`${lines.at(-1)?.join('  ')}\n`); // not lost when it is interrupted
          showProgress(lines.length, stores.length * numbers.length * trees.length);
        }
    const sql = postgres(server.url, { max: 1 });
    onEnd(() => sql.end({ timeout: 1 }));
    const headings = ['queue and quota on', 'program', 'workers', ...HEADINGS];
    process.stdout.write(`${await describeMachine({ sql })}\n\n${table(headings, lines)}\n`);
  });
}

/** From the first object request to the last write. */
function describe(arrivals: readonly Arrival[], mostInAnySecond: number): Cell[] {
  const planned = arrivals.findLastIndex(({ path }) => path.endsWith('/fields/find'));
  const sent = arrivals.slice(planned + 1);
  const lastWrite = sent.findLastIndex(({ method }) => method === 'PUT');
  const times = sent.slice(0, lastWrite + 1).map(({ at }) => at);
  const seconds = ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1000;
  const gap = Math.max(...times.slice(1).map((at, index) => at - (times[index] ?? at)));
  const rate = (times.length - 1) / seconds;
  const finds = sent.filter(({ path }) => path.endsWith('/find')).length;
  return [
    percent(rate / ceiling(LATENCY_MS)),
    rate.toFixed(2),
    Math.round(gap),
    finds,
    mostInAnySecond,
    seconds.toFixed(1),
  ];
}
