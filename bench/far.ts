// The costs of a distance between the program and its databases: the built program with a hop in front of PostgreSQL, and of
// Redis where the queue is there, that takes its time in each direction.
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import type { Arrival } from '../src/sandbox/quota.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { addTallies, startCountingHop, type Tally } from '../test/support/round-trips.js';
import { until } from '../test/support/wait.js';
import { median, RATE, showProgress } from './figures.js';
import { install, withCleanup, type Installation } from './installation.js';
import { describeMachine } from './machine.js';
import { startService, type Service } from './service.js';
import { fillThings, THINGS, THINGS_SCHEMA } from './things.js';

const SECOND = 1000;
const DELAYS_MS = [0, 5, 10, 25];
const ROWS = 12_000;
const LATENCY_MS = 40;
const SYNCS = 3;
/** Changes are measured for this long at most. */
const CHANGES = { most: 20, withinMs: 25 * SECOND };
const COUNTED = { rows: 400, changes: 10, idleMs: 30 * SECOND };
const MEASURES = ['load', 'sync', 'change', 'statements'] as const;
type Measure = (typeof MEASURES)[number];

/**
 * `npm run bench -- far [ms …] [--rows N] [--only load|sync|change|statements] [--store postgres|redis] [--beside <folder>]
 * [--statements]`: milliseconds in each direction; also the built program of the tree in that folder; what is asked of the
 * databases, by statement. Everything takes about ten minutes; a delay and a measure of one store less than a minute.
 */
export async function benchFar(words: readonly string[]): Promise<void> {
  const { delays, rows, measures, stores, trees, isDetailed } = readWords(words);
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const redis = await startRedisServer();
    onEnd(() => redis.stop());
    const hops = [await startCountingHop(server.url), await startCountingHop(redis.url)] as const;
    for (const hop of hops) onEnd(() => hop.close());
    const sql = postgres(server.url, { max: 1 });
    onEnd(() => sql.end({ timeout: 1 }));
    const network = createNetwork(hops);

    let opened = 0;
    /** Does the work in a world of its own, which it sees through the hops. */
    const inWorld = async <T>(way: Way, settings: WorldSettings, work: (world: World) => Promise<T>) => {
      const databaseUrl = await server.createDatabase(`bench_${opened++}`);
      network.setDelay(0);
      const world = await openWorld({ ...way, ...settings, network, databaseUrl, redisUrl: redis.url });
      try {
        return await work(world);
      } finally {
        await world.close();
      }
    };

    const ways = stores.flatMap((store) => trees.map((tree): Way => ({ store, tree })));
    const lines: Cell[][] = [];
    const timed = measures.filter((measure) => measure !== 'statements');
    for (const delayMs of timed.length === 0 ? [] : delays) {
      for (const way of ways) {
        const figures = await inWorld(way, { rows, batchSize: 100 }, (world) => time(world, delayMs, timed));
        if (timed.includes('load')) {
          const large = { rows: rows * 5, batchSize: 1000 };
          figures.splice(1, 1, await inWorld(way, large, (world) => load(world, delayMs)));
        }
        lines.push([...describeWay(way), delayMs, ...figures]);
        process.stderr.write(`${lines.at(-1)?.join('  ')}\n`); // not lost when it is interrupted
        showProgress(lines.length, delays.length * ways.length);
      }
    }
    const machine = await describeMachine({ sql });
    const headings = ['requests/s at 100', 'at 1 000', 'nothing changed, s', 'a change, s', 'worst'];
    if (lines.length > 0)
      process.stdout.write(`${machine}\n\n${table([...WAY, 'ms each way', ...headings], lines)}\n\n`);
    if (measures.includes('statements')) {
      const counted: Cell[][] = [];
      const details: string[] = [];
      for (const way of ways) {
        const tallies = await inWorld(way, { rows: COUNTED.rows, batchSize: 100 }, count);
        for (const [what, tally] of Object.entries(tallies)) {
          counted.push([...describeWay(way), what, tally.statements, tally.roundTrips, tally.transactions]);
          details.push(`${describeWay(way).join(' ')}: ${what}\n\n${describePlaces(tally)}\n`);
        }
      }
      const figures = ['statements', 'round trips', 'transactions'];
      process.stdout.write(`${table([...WAY, '', ...figures], counted)}\n`);
      if (isDetailed) process.stdout.write(`\n${details.join('\n')}`);
    }
  });
}

const STORES = ['postgres', 'redis'] as const;
const WAY = ['queue and quota on', 'program'];

interface Way {
  store: (typeof STORES)[number];
  /** The folder of another tree. */
  tree: string | undefined;
}

const describeWay = ({ store, tree }: Way): string[] => [
  store === 'redis' ? 'Redis' : 'PostgreSQL',
  tree ?? 'this one',
];

function readWords(words: readonly string[]) {
  const { positionals, values } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: {
      rows: { type: 'string', default: String(ROWS) },
      only: { type: 'string', multiple: true },
      store: { type: 'string' },
      beside: { type: 'string' },
      statements: { type: 'boolean', default: false },
    },
  });
  const only = values.statements && !values.only ? ['statements'] : values.only;
  return {
    delays: positionals.length === 0 ? DELAYS_MS : positionals.map(Number),
    rows: Number(values.rows),
    measures: MEASURES.filter((measure) => only?.includes(measure) ?? true),
    stores: STORES.filter((store) => values.store === undefined || values.store === store),
    trees: [undefined, ...(values.beside === undefined ? [] : [values.beside])],
    isDetailed: values.statements,
  };
}

type Hop = Awaited<ReturnType<typeof startCountingHop>>;
type Network = ReturnType<typeof createNetwork>;

function createNetwork(hops: readonly [Hop, Hop]) {
  const [toPostgres, toRedis] = hops;
  return {
    toPostgres,
    toRedis,
    setDelay: (ms: number) => hops.forEach((hop) => hop.setShape({ delayMs: ms })),
    clear: () => hops.forEach((hop) => hop.clear()),
    tally: (): Tally => addTallies(hops.map((hop) => hop.tally())),
  };
}

interface WorldSettings {
  rows: number;
  batchSize: number;
}

interface World {
  network: Network;
  sql: postgres.Sql;
  service: Service;
  slotsync: Installation;
  close(): Promise<void>;
}

/** Rows, the service, and a program that is migrated and has sent nothing yet. */
async function openWorld(
  options: Way & WorldSettings & { network: Network; databaseUrl: string; redisUrl: string },
): Promise<World> {
  const { store, tree, network, databaseUrl, redisUrl, rows, batchSize } = options;
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  await fillThings(sql, rows);
  const service = await startService({ rate: RATE, latencyMs: LATENCY_MS, schema: THINGS_SCHEMA });
  const slotsync = await install({
    databaseUrl: network.toPostgres.through(databaseUrl),
    serviceUrl: service.url,
    configuration: { streams: { things: { ...THINGS.streams.things, owns: 'object', batchSize } } },
    env: { REDIS_URL: store === 'redis' ? network.toRedis.through(redisUrl) : undefined },
    tree,
  });
  await slotsync.command('migrate');
  return {
    network,
    sql,
    service,
    slotsync,
    async close() {
      await slotsync.close();
      await service.stop();
      await sql.end({ timeout: 1 });
    },
  };
}

/** The cells of one delay: the rate of the load, the place of a second one, an idle sync, a change and the slowest one. */
async function time(world: World, delayMs: number, measures: readonly Measure[]): Promise<Cell[]> {
  const { network, slotsync } = world;
  const rate = await load(world, measures.includes('load') ? delayMs : 0);
  network.setDelay(delayMs);
  const syncs: number[] = [];
  while (measures.includes('sync') && syncs.length < SYNCS)
    syncs.push((await slotsync.command('sync')).seconds);
  const changes = measures.includes('change') ? await timeChanges(world, delayMs) : [];
  const seconds = (value: number) => (Number.isFinite(value) ? value.toFixed(2) : '–');
  return [
    measures.includes('load') ? rate : '–',
    '–',
    seconds(median(syncs)),
    seconds(median(changes)),
    seconds(Math.max(...changes)),
  ];
}

/** Sends every row. Returns the requests a second of its batches, which look for what they create, to the last write. */
async function load({ network, slotsync, service }: World, delayMs: number): Promise<string> {
  network.setDelay(delayMs);
  await slotsync.command('sync');
  const arrivals = await readArrivals(service);
  const planned = arrivals.findLastIndex(({ path }) => path.endsWith('/fields/find'));
  const times = arrivals.slice(planned + 1).map(({ at }) => at);
  return (((times.length - 1) / ((times.at(-1) ?? 0) - (times[0] ?? 0))) * SECOND).toFixed(1);
}

const readArrivals = async ({ url }: Service): Promise<Arrival[]> =>
  (await (await fetch(`${url}/sandbox/arrivals`)).json()) as Arrival[];

const readPuts = async (service: Service): Promise<Arrival[]> =>
  (await readArrivals(service)).filter(({ method }) => method === 'PUT');

/** Seconds from the COMMIT of one row to the arrival of its object, for changes one after the other. */
async function timeChanges(world: World, delayMs: number): Promise<number[]> {
  await startWorkerWithTriggers(world);
  world.network.setDelay(delayMs);
  const seconds: number[] = [];
  const startedAt = performance.now();
  while (seconds.length < CHANGES.most && performance.now() - startedAt < CHANGES.withinMs) {
    seconds.push(await changeOne(world, seconds.length + 1));
    await untilSettled(world);
  }
  return seconds;
}

async function startWorkerWithTriggers({ network, slotsync, service }: World): Promise<void> {
  network.setDelay(0);
  await slotsync.command('triggers', 'install');
  await slotsync.startWorker();
  await pause(2 * SECOND); // its start is not what is measured
  await fetch(`${service.url}/sandbox/arrivals`, { method: 'DELETE' });
}

/** Changes the row of this id. Resolves with the seconds until its object has arrived. */
async function changeOne({ sql, service }: World, id: number): Promise<number> {
  const before = (await readPuts(service)).length;
  await sql`UPDATE things SET name = name || ' changed' WHERE id = ${id}`;
  const committedAt = performance.now();
  await until(async () => (await readPuts(service)).length > before, {
    describe: `change ${id} to arrive`,
    intervalMs: 5,
  });
  return (performance.now() - committedAt) / SECOND;
}

/** Resolves when nothing waits and nothing runs. */
async function untilSettled({ sql }: World): Promise<void> {
  const isSettled = async () => {
    const open = await sql`
      SELECT FROM slotsync.changes UNION ALL SELECT FROM slotsync.runs WHERE finished_at IS NULL`;
    return open.length === 0;
  };
  await until(isSettled, { describe: 'the run to end' });
  await pause(SECOND / 4); // the queue's last words of its jobs
}

/** Counts what is asked of the databases, wherever they are. */
async function count(world: World): Promise<Record<string, Tally>> {
  const { network, sql, slotsync } = world;
  await load(world, 0);
  await sql`UPDATE things SET name = name || ' changed' WHERE id = 1`;
  network.clear();
  await slotsync.command('sync');
  const sync = network.tally();

  await startWorkerWithTriggers(world);
  const changes: Tally[] = [];
  while (changes.length < COUNTED.changes) {
    network.clear();
    await changeOne(world, changes.length + 2);
    await untilSettled(world);
    changes.push(network.tally());
  }
  const middle = changes.toSorted((a, b) => a.statements - b.statements)[Math.floor(changes.length / 2)];
  network.clear();
  await pause(COUNTED.idleMs);
  const idle = network.tally();
  return {
    'a change, noted by a trigger': middle ?? idle,
    [`sync of one change among ${COUNTED.rows}`]: sync,
    'an idle worker, a minute': addTallies(Array.from({ length: 60_000 / COUNTED.idleMs }, () => idle)),
  };
}

function describePlaces({ places }: Tally): string {
  const lines = places.map(({ place, statements, roundTrips }) => [statements, roundTrips, place]);
  return table(['statements', 'round trips', ''], lines);
}
