// How soon the quota is used in full again after something was taken away: four workers of the built program, against
// the service with its quota. What counts is what arrives there.
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { mostInAnySecond } from '../src/sandbox/quota.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { ceiling, percent, RATE } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

const SECOND = 1000;
const WORKERS = 4;
/** Each request has one object, so that requests do not run out. */
const ROWS = 6_000;
const LATENCY_MS = 50;
const JITTER_MS = 40;
const WINDOW_MS = 2 * SECOND;
/** The least share of the ceiling, in the window and in all that follows. One slot of twenty that is missing must show. */
const FULL = 0.95;
const AFTERWARDS_MS = 10 * SECOND;
const SETTLE_MS = 5 * SECOND;
const GIVE_UP_MS = 60 * SECOND;
const OUTAGE_MS = 10 * SECOND;
const ROOMS = { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}' };
const CONFIGURATION = {
  streams: { rooms: { ...ROOMS, fields: { 'room.name': 'name' }, batchSize: 1, owns: 'object' } },
};

/** `npm run bench -- recovery [repeats]`. Takes about three minutes with two repeats. */
export async function benchRecovery([repeats = '2']: readonly string[]): Promise<void> {
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const databaseUrl = await server.createDatabase('bench');
    const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
    onEnd(() => sql.end({ timeout: 1 }));
    await sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text);
      INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${ROWS}) AS i`);
    let redis = await startRedisServer();
    onEnd(() => redis.stop());
    const service = await openService();
    onEnd(service.close);
    const env = { REDIS_URL: redis.url, LOG_LEVEL: 'error' };
    const slotsync = await install({
      databaseUrl,
      serviceUrl: service.url,
      configuration: CONFIGURATION,
      env,
    });
    onEnd(slotsync.close);
    await slotsync.command('migrate');
    await slotsync.command('sync', '--detach');
    const workers = await Promise.all(Array.from({ length: WORKERS }, () => slotsync.startWorker()));
    await pause(SETTLE_MS);

    /** Does its harm and resolves when it is over: from then on the time to the full rate counts. */
    const events: [string, () => Promise<void>][] = [
      [
        'SIGKILL of one worker of four',
        async () => {
          const worker = workers.shift();
          worker?.child.kill('SIGKILL');
          await worker?.finished;
        },
      ],
      [
        'Redis killed, and back empty',
        async () => {
          await redis.kill();
          redis = await startRedisServer({ port: redis.port });
        },
      ],
      [
        'the service back after 10 s away',
        async () => {
          await service.close();
          await pause(OUTAGE_MS);
          await service.reopen();
        },
      ],
    ];
    const lines: Cell[][] = [];
    for (const [name, event] of events) {
      for (let repeat = 0; repeat < Number(repeats); repeat++) {
        const from = performance.now();
        await event();
        lines.push([name, ...(await measureRecovery(service.arrivals, from, performance.now()))]);
        while (workers.length < WORKERS) workers.push(await slotsync.startWorker());
        await pause(SETTLE_MS); // to share the work again
      }
    }
    const client = new Redis(redis.url);
    onEnd(() => client.quit());
    const machine = await describeMachine({ redis: client, sql });
    const headings = ['after', 'seconds to the full rate', 'longest silence, s'];
    const result = table([...headings, 'of 20/(1+latency) in the next 10 s'], lines);
    const most = mostInAnySecond(service.arrivals());
    process.stdout.write(`${machine}\n\n${result}\n\n`);
    process.stdout.write(`Refused by the service: ${service.refused()}. Most in any second: ${most}.\n`);
  });
}

/** From `over` to the full rate; the longest silence is looked for from `from` on. */
async function measureRecovery(arrivals: () => number[], from: number, over: number): Promise<Cell[]> {
  const shareFrom = async (begin: number, lengthMs: number) => {
    await pause(Math.max(0, begin + lengthMs - performance.now()));
    const count = arrivals().filter((time) => time >= begin && time < begin + lengthMs).length;
    return count / ((ceiling(LATENCY_MS) * lengthMs) / SECOND);
  };
  for (let begin = over; begin < over + GIVE_UP_MS; begin += 50) {
    if ((await shareFrom(begin, WINDOW_MS)) < FULL) continue;
    const share = await shareFrom(begin, AFTERWARDS_MS);
    if (share < FULL) continue;
    const within = [from, ...arrivals().filter((time) => time >= from && time <= begin + WINDOW_MS)];
    const gaps = within.slice(1).map((time, before) => time - (within[before] ?? time));
    return [((begin - over) / SECOND).toFixed(1), (Math.max(...gaps) / SECOND).toFixed(1), percent(share)];
  }
  return [`more than ${GIVE_UP_MS / SECOND}`, '–', '–'];
}

/** The service, which can go away and come back at the same address. */
async function openService() {
  const begin = (port: number) =>
    startSandbox({
      port,
      rate: RATE,
      latencyMs: LATENCY_MS - JITTER_MS / 2,
      jitterMs: JITTER_MS,
      schema: { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] },
    });
  let sandbox = await begin(0);
  const { url } = sandbox;
  /** The figures of sandboxes that were closed. */
  const earlier = { arrivals: [] as number[], refused: 0 };
  const arrivals = () => sandbox.arrivals().map(({ at }) => at);
  return {
    url,
    arrivals: (): number[] => [...earlier.arrivals, ...arrivals()],
    refused: (): number => earlier.refused + sandbox.refused(),
    close: (): Promise<void> => sandbox.close(),
    async reopen(): Promise<void> {
      earlier.arrivals.push(...arrivals());
      earlier.refused += sandbox.refused();
      sandbox = await begin(Number(new URL(url).port));
    },
  };
}
