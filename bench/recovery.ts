// How soon the quota is used in full again after something was taken away: the built program as it is run, four
// workers of it, against the service played with its quota. What counts is what arrives there.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { table } from '../src/report/format.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { mostInAnySecond } from '../src/sandbox/arrivals.js';
import { startSandbox, type Sandbox } from '../src/sandbox/sandbox.js';
import { run, start, type Env, type Running } from '../test/support/program.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { until } from '../test/support/wait.js';
import { ceiling, RATE } from './judge.js';
import { describeMachine } from './machine.js';

const SECOND = 1000;
const WORKERS = 4;
/** One object a request, so that requests do not run out. */
const ROWS = 6_000;
const LATENCY_MS = 50;
const WINDOW_MS = 2 * SECOND;
/** Of the ceiling, in the window and in all that follows. One slot of twenty that is missing must show. */
const FULL = 0.95;
const AFTERWARDS_MS = 10 * SECOND;
const SETTLE_MS = 5 * SECOND;
const GIVE_UP_MS = 60 * SECOND;
const OUTAGE_MS = 10 * SECOND;

const CONFIGURATION = `
import { defineConfig } from 'slotsync';
export default defineConfig({ streams: { rooms: {
  from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', fields: { 'room.name': 'name' },
  batchSize: 1, owns: 'object',
} } });
`;

interface Recovery {
  after: string;
  /** From the event until the full rate; undefined: not within a minute. */
  seconds: number | undefined;
  /** Longest time in which nothing arrived, in seconds. */
  silence: number;
  /** Of the ceiling, in the ten seconds from there on. */
  share: number | undefined;
}

/** `npm run bench -- recovery`; wants the built program. Takes about three minutes. */
export async function benchRecovery(): Promise<void> {
  const world = await openWorld();
  try {
    process.stdout.write(`${await world.describe()}\n\n`);
    await world.startWorkers();
    await world.fullRateAfter(performance.now());
    const recoveries: Recovery[] = [];
    for (let at = 0; at < 2; at++) recoveries.push(await afterKill(world));
    for (let at = 0; at < 2; at++) recoveries.push(await afterRedisRestart(world));
    for (let at = 0; at < 2; at++) recoveries.push(await afterOutage(world));
    process.stdout.write(
      `${table(
        ['after', 'seconds to the full rate', 'longest silence, s', 'of 20/(1+latency) in the next 10 s'],
        recoveries.map(({ after, seconds, silence, share }) => [
          after,
          seconds?.toFixed(1) ?? `more than ${GIVE_UP_MS / SECOND}`,
          silence.toFixed(1),
          share === undefined ? '–' : `${(100 * share).toFixed(1)} %`,
        ]),
      )}\n\nRefused by the service: ${world.refused()}. Most in any second: ${world.mostInAnySecond()}.\n`,
    );
  } finally {
    await world.close();
  }
}

type World = Awaited<ReturnType<typeof openWorld>>;

async function afterKill(world: World): Promise<Recovery> {
  const event = performance.now();
  await world.killWorker();
  const recovery = await world.recovery('SIGKILL of one worker of four', event);
  await world.startWorkers();
  return recovery;
}

async function afterRedisRestart(world: World): Promise<Recovery> {
  const gone = performance.now();
  await world.restartRedis();
  return world.recovery('Redis killed, and back empty', performance.now(), gone);
}

async function afterOutage(world: World): Promise<Recovery> {
  const gone = performance.now();
  await world.closeService();
  await pause(OUTAGE_MS);
  await world.openService();
  return world.recovery('the service back after 10 s away', performance.now(), gone);
}

async function openWorld() {
  const closers: (() => Promise<unknown>)[] = [];
  const close = async () => {
    for (let closer = closers.pop(); closer; closer = closers.pop()) await closer();
  };
  try {
    const server = await startEmbeddedPostgres();
    closers.push(server.stop);
    const url = await server.createDatabase('bench');
    const sql = postgres(url, { max: 1, onnotice: () => undefined });
    closers.push(() => sql.end({ timeout: 1 }));
    await sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text);
      INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${ROWS}) AS i`);
    let redis = await startRedisServer();
    closers.push(() => redis.stop());
    let sandbox: Sandbox = await startService(0);
    closers.push(() => sandbox.close());
    const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-bench-'));
    closers.push(() => rm(folder, { recursive: true, force: true }));
    await writeFile(path.join(folder, 'sync.config.ts'), CONFIGURATION);

    const env: Env = {
      MIRROR_DATABASE_URL: url,
      REDIS_URL: redis.url,
      API_BASE_URL: sandbox.url,
      API_ORGANIZATION_ID: 'demo',
      API_KEY: 'sandbox-key',
      API_REQUESTS_PER_SECOND: String(RATE),
      LOG_LEVEL: 'error',
    };
    for (const args of [['migrate'], ['sync', '--detach']]) {
      const { code, stderr } = await run(args, env, folder);
      if (code !== 0) throw new Error(`slotsync ${args.join(' ')} ended with ${code}: ${stderr}`);
    }

    let workers: Running[] = [];
    const kill = async ({ child, finished }: Running) => {
      child.kill('SIGKILL');
      await finished;
    };
    closers.push(() => Promise.all(workers.map(kill)));

    /** Of services that were closed; their clock is ours. */
    const earlier = { moments: [] as number[], refused: 0 };
    const moments = () => [...earlier.moments, ...sandbox.arrivals().map(({ at }) => at)];
    const shareFrom = (from: number, lengthMs: number) =>
      moments().filter((at) => at >= from && at < from + lengthMs).length /
      ((ceiling(LATENCY_MS) * lengthMs) / SECOND);
    const isFullFrom = async (from: number, lengthMs: number) => {
      await pause(Math.max(0, from + lengthMs - performance.now()));
      return shareFrom(from, lengthMs) >= FULL;
    };

    /** The moment, not before `event`, from which on the rate is full and stays it; undefined: not within a minute. */
    async function fullRateAfter(event: number): Promise<number | undefined> {
      for (let from = event; from < event + GIVE_UP_MS; from += 50) {
        if ((await isFullFrom(from, WINDOW_MS)) && (await isFullFrom(from, AFTERWARDS_MS))) return from;
      }
      return undefined;
    }

    return {
      fullRateAfter,
      close,

      async describe(): Promise<string> {
        const client = new Redis(redis.url);
        const described = await describeMachine({ redis: client, sql });
        client.disconnect();
        return described;
      },

      /** As many as are missing. */
      async startWorkers(): Promise<void> {
        const missing = Array.from({ length: WORKERS - workers.length }, () =>
          start(['worker'], { ...env, LOG_LEVEL: 'info' }, folder),
        );
        workers.push(...missing);
        for (const worker of missing) {
          await until(() => worker.output().includes('worker started'), {
            describe: () => `a worker to start: ${worker.output()}`,
            timeoutMs: 20_000,
          });
        }
        await pause(SETTLE_MS); // to share the work again
      },

      async killWorker(): Promise<void> {
        const [first, ...others] = workers;
        if (first) await kill(first);
        workers = others;
      },

      async restartRedis(): Promise<void> {
        await redis.kill();
        redis = await startRedisServer({ port: redis.port });
      },

      async closeService(): Promise<void> {
        earlier.moments.push(...sandbox.arrivals().map(({ at }) => at));
        earlier.refused += sandbox.refused();
        await sandbox.close();
      },

      async openService(): Promise<void> {
        sandbox = await startService(Number(new URL(sandbox.url).port));
      },

      /** What arrived after `event`, or after `gone` where that was earlier. */
      async recovery(after: string, event: number, gone = event): Promise<Recovery> {
        const from = await fullRateAfter(event);
        const end = from ?? performance.now();
        const within = [gone, ...moments().filter((at) => at >= gone && at <= end + WINDOW_MS)];
        return {
          after,
          seconds: from === undefined ? undefined : (from - event) / SECOND,
          silence: Math.max(...within.slice(1).map((at, before) => at - (within[before] ?? at))) / SECOND,
          share: from === undefined ? undefined : shareFrom(from, AFTERWARDS_MS),
        };
      },

      refused: () => earlier.refused + sandbox.refused(),
      mostInAnySecond: () => mostInAnySecond(moments()),
    };
  } catch (error) {
    await close();
    throw error;
  }
}

function startService(port: number): Promise<Sandbox> {
  return startSandbox({
    port,
    rate: RATE,
    window: 'sliding',
    latencyMs: LATENCY_MS - 20,
    jitterMs: 40,
    schema: { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] },
  });
}
