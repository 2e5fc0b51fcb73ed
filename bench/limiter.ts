// The quota's limiter beside BullMQ's own: how much of the quota several processes use, and how often the service
// refuses a request.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import { migrate } from '../src/state/migrate.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { ceiling, percent, RATE, showProgress } from './figures.js';
import { withCleanup } from './installation.js';
import { LIMITERS, type LimiterOptions } from './limiters.js';
import { describeMachine } from './machine.js';

const SCRIPT = fileURLToPath(new URL('limiter-process.ts', import.meta.url));
/** The service answers after the latency and up to the jitter more. It counts a request halfway. */
const LATENCIES = [
  { latencyMs: 6, jitterMs: 4 },
  { latencyMs: 32, jitterMs: 30 },
  { latencyMs: 40, jitterMs: 160 },
];
const PROCESSES = [1, 4];
const CONCURRENCY = 24;
/** The first requests are counted by the service, but not taken for the rate. */
const LEAD_IN_MS = 3_000;

/** `npm run bench -- limiter [seconds a row] [part of a limiter's name]`. Takes about five minutes. */
export async function benchLimiter([seconds = '7', name = '']: readonly string[]): Promise<void> {
  const measureMs = 1000 * Math.max(1, Math.round(Number(seconds)));
  const cells = LATENCIES.flatMap((latency) =>
    PROCESSES.flatMap((processes) =>
      Object.keys(LIMITERS)
        .filter((limiter) => limiter.includes(name))
        .map((limiter) => ({ ...latency, processes, limiter })),
    ),
  );
  await withCleanup(async (onEnd) => {
    const [redisServer, server] = [await startRedisServer(), await startEmbeddedPostgres()];
    onEnd(() => Promise.all([redisServer.stop(), server.stop()]));
    const postgresUrl = await server.createDatabase('bench');
    await migrate(postgresUrl);
    const redis = new Redis(redisServer.url);
    const sql = postgres(postgresUrl, { max: 1 });
    onEnd(() => Promise.all([redis.quit(), sql.end()]));
    const lines: Cell[][] = [];
    for (const [at, cell] of cells.entries()) {
      await redis.flushall();
      lines.push(await measure({ ...cell, redisUrl: redisServer.url, postgresUrl, measureMs }));
      showProgress(at + 1, cells.length);
    }
    const headings = ['mean latency, ms', 'processes', 'limiter', 'requests/s'];
    const more = ['of 20/(1+latency)', 'most in 1 s', 'refused', 'of'];
    process.stdout.write(
      `${await describeMachine({ redis, sql })}\n\n${table([...headings, ...more], lines)}\n`,
    );
  });
}

interface CellOptions {
  limiter: string;
  latencyMs: number;
  jitterMs: number;
  processes: number;
  redisUrl: string;
  postgresUrl: string;
  measureMs: number;
}

async function measure(cell: CellOptions): Promise<Cell[]> {
  const { limiter, processes, latencyMs, jitterMs, measureMs, redisUrl, postgresUrl } = cell;
  const sandbox = await startSandbox({ rate: RATE, latencyMs, jitterMs });
  const key = `bench-${crypto.randomUUID()}`;
  const backlog = Math.ceil(((LEAD_IN_MS + measureMs) / 1000) * 2 * RATE);
  const children = Array.from({ length: processes }, (_, index) => {
    const options: LimiterOptions = {
      redisUrl,
      postgresUrl,
      key,
      concurrency: CONCURRENCY,
      backlog: index === 0 ? backlog : 0,
    };
    // The addresses hold passwords, and every user can list the arguments of a process.
    const env = { ...process.env, LIMITER_OPTIONS: JSON.stringify(options) };
    return fork(SCRIPT, [limiter, sandbox.url], { env, execArgv: ['--import', 'jiti/register'] });
  });
  try {
    await Promise.all(children.map((child) => once(child, 'message')));
    for (const child of children) child.send('begin');
    await pause(LEAD_IN_MS);
    const from = performance.now();
    await pause(measureMs);
    const arrivals = sandbox.arrivals();
    const perSecond = (1000 * arrivals.filter(({ at }) => at >= from).length) / (performance.now() - from);
    const meanLatencyMs = latencyMs + jitterMs / 2;
    return [
      meanLatencyMs,
      processes,
      limiter,
      perSecond.toFixed(2),
      percent(perSecond / ceiling(meanLatencyMs)),
      sandbox.mostInAnySecond(),
      sandbox.refused(),
      arrivals.length,
    ];
  } finally {
    for (const child of children) child.kill('SIGKILL');
    await sandbox.close();
  }
}
