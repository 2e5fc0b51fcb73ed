// How many objects the program moves from rows to recorded state when the quota does not limit it, beside a bare loop
// over the same libraries that reads rows, sends them and notes them in a table, without claims, queue or recovery.
import pLimit from 'p-limit';
import postgres from 'postgres';
import { Pool } from 'undici';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { median, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { authenticate, startService } from './service.js';

const AT_ONCE = 12;
const REPEATS = 3;
/**
 * `quota`, in requests a second, is more than are ever sent. A grant costs the more the larger it is, so it is no larger
 * than that.
 */
const SIZES = [
  { batchSize: 1, rows: 2_000, quota: 1_000 },
  { batchSize: 10, rows: 10_000, quota: 1_000 },
  { batchSize: 100, rows: 200_000, quota: 400 },
  { batchSize: 1_000, rows: 200_000, quota: 100 },
];
const CHANGES = { batchSize: 100, quota: 400, rows: 100_000, part: 100 };
const SERVICE = {
  rate: 0,
  latencyMs: 2,
  schema: { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }, { extId: 'room.seats' }] },
};

/**
 * `npm run bench -- pipeline [objects a request …] [--beside <folder>] [--other-column]`: also the built program of the tree in
 * that folder, in turn with this one; external ids of another column than the key, whose objects are claimed. Medians of
 * three, each over a new database.
 */
export async function benchPipeline(words: readonly string[]): Promise<void> {
  const idColumn = words.includes('--other-column') ? 'name' : 'code';
  const named = words.filter((word) => word !== '--other-column');
  const flag = named.indexOf('--beside');
  const tree = flag < 0 ? undefined : named[flag + 1];
  const args = flag < 0 ? named : named.toSpliced(flag, 2);
  const sizes = SIZES.filter(({ batchSize }) => args.length === 0 || args.includes(String(batchSize)));
  await withCleanup(async (onEnd) => {
    const [server, redis] = [await startEmbeddedPostgres(), await startRedisServer()];
    onEnd(() => Promise.all([server.stop(), redis.stop()]));
    const names = ['bare loop, one after the other', 'bare loop, twelve at a time'];
    const ways: [string, (place: Place) => Promise<number>][] = [
      [names[0] ?? '', (place) => runBareLoop(place, 1)],
      [names[1] ?? '', (place) => runBareLoop(place, AT_ONCE)],
      ['slotsync, queue in PostgreSQL', (place) => backfill(place)],
      ['slotsync, queue on Redis', (place) => backfill({ ...place, redisUrl: redis.url })],
    ];
    if (tree !== undefined)
      ways.push(
        [`${tree}, queue in PostgreSQL`, (place) => backfill({ ...place, tree })],
        [`${tree}, queue on Redis`, (place) => backfill({ ...place, tree, redisUrl: redis.url })],
      );
    const lines: Cell[][] = [];
    for (const [at, { batchSize, rows, quota }] of sizes.entries()) {
      const rates = ways.map((): number[] => []);
      for (let repeat = 0; repeat < REPEATS; repeat++) {
        for (const [index, [, way]] of ways.entries()) {
          const databaseUrl = await server.createDatabase(`bench_${batchSize}_${repeat}_${index}`);
          const service = await startService(SERVICE);
          await fill(databaseUrl, rows);
          const seconds = await way({ databaseUrl, serviceUrl: service.url, batchSize, quota, idColumn });
          await service.stop();
          rates[index]?.push(rows / seconds);
        }
        showProgress(at * REPEATS + repeat + 1, sizes.length * REPEATS);
      }
      const bareRate = median(rates[0] ?? []);
      for (const [index, all] of rates.entries()) {
        const figures = [median(all), Math.min(...all), Math.max(...all)].map(Math.round);
        lines.push([batchSize, ways[index]?.[0] ?? '', ...figures, (median(all) / bareRate).toFixed(2)]);
      }
    }
    const databaseUrl = await server.createDatabase('bench_changes');
    const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
    onEnd(() => sql.end({ timeout: 1 }));
    const headings = ['objects a request', '', 'objects/s (median)', 'min', 'max', 'to the bare loop'];
    process.stdout.write(`${await describeMachine({ sql })}\n\n${table(headings, lines)}\n\n`);
    await fill(databaseUrl, CHANGES.rows);
    await countRequests(databaseUrl, sql);
  });
}

interface Place {
  databaseUrl: string;
  serviceUrl: string;
  batchSize: number;
  /** That the external id is made of. */
  idColumn?: string;
  /** Requests a second. */
  quota: number;
  /** Queue and quota on Redis. */
  redisUrl?: string;
  /** The folder of another tree. */
  tree?: string;
}

async function fill(databaseUrl: string, rows: number): Promise<void> {
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY, name text, seats int);
    INSERT INTO rooms SELECT 'R' || i, 'Room ' || i, i % 300 FROM generate_series(1, ${rows}) AS i;
    CREATE TABLE noted (code text PRIMARY KEY, object text, at timestamptz);
    ANALYZE`);
  await sql.end({ timeout: 1 });
}

function openProgram(
  { databaseUrl, serviceUrl, batchSize, quota, redisUrl, tree, idColumn = 'code' }: Place,
  owns: string,
) {
  const fields = { 'room.name': 'name', 'room.seats': 'seats' };
  const rooms = { from: 'rooms', key: 'code', type: 'room', externalId: `room_{${idColumn}}`, fields };
  return install({
    databaseUrl,
    serviceUrl,
    tree,
    configuration: { streams: { rooms: { ...rooms, owns, batchSize } } },
    env: { REDIS_URL: redisUrl, API_REQUESTS_PER_SECOND: String(quota) },
  });
}

/** Seconds from the end of planning to the end of the run, as the run records them. */
async function backfill(place: Place): Promise<number> {
  const slotsync = await openProgram(place, 'object');
  const sql = postgres(place.databaseUrl, { max: 1, onnotice: () => undefined });
  try {
    await slotsync.command('migrate');
    await slotsync.command('backfill', 'rooms', '--concurrency', String(AT_ONCE));
    const [run] = await sql`
      SELECT extract(epoch FROM finished_at - started_at)::float8 AS seconds FROM slotsync.runs`;
    return Number(run?.['seconds']);
  } finally {
    await sql.end({ timeout: 1 });
    await slotsync.close();
  }
}

/** Requests that a change of one row in a hundred takes, everything counted. */
async function countRequests(databaseUrl: string, sql: postgres.Sql): Promise<void> {
  const { rows, batchSize, quota, part } = CHANGES;
  const service = await startService(SERVICE);
  const lines: Cell[][] = [];
  for (const [owns, name] of [
    ['object', 'the whole object'],
    ['fields', 'its fields: read, merge, write'],
  ] as const) {
    const slotsync = await openProgram({ databaseUrl, serviceUrl: service.url, batchSize, quota }, owns);
    await slotsync.command('migrate');
    await slotsync.command('sync', 'rooms');
    await sql`UPDATE rooms SET seats = seats + 1 WHERE right(code, 2) = '07'`;
    const before = await service.requests();
    await slotsync.command('sync', 'rooms');
    const least = (rows / part / batchSize) * (owns === 'object' ? 1 : 2);
    lines.push([name, (await service.requests()) - before, least]);
    await slotsync.close();
  }
  await service.stop();
  process.stdout.write(`1 % of ${rows} objects changed, ${batchSize} objects a request\n\n`);
  process.stdout.write(`${table(['the mapping owns', 'requests', 'least possible'], lines)}\n`);
}

/** The loop that anybody would write: pages of rows by key, one PUT a batch, one statement that notes it. Returns seconds. */
async function runBareLoop({ databaseUrl, serviceUrl, batchSize }: Place, atOnce: number): Promise<number> {
  const sql = postgres(databaseUrl, { max: AT_ONCE, onnotice: () => undefined });
  const pool = new Pool(serviceUrl, { connections: AT_ONCE });
  const startedAt = performance.now();
  const headers = {
    authorization: `Bearer ${await authenticate(serviceUrl)}`,
    'content-type': 'application/json',
  };

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
    const noted = rows.map(({ code }, index) => ({
      code,
      object: JSON.stringify(objects[index]),
      at: new Date(),
    }));
    await sql`INSERT INTO noted ${sql(noted)} ON CONFLICT (code) DO UPDATE SET object = excluded.object, at = excluded.at`;
  }

  const limit = pLimit(atOnce);
  const puts: Promise<void>[] = [];
  for (let last = ''; ;) {
    const rows = await sql<{ code: string; name: string; seats: number }[]>`
      SELECT code, name, seats FROM rooms WHERE code COLLATE "C" > ${last} ORDER BY code COLLATE "C" LIMIT 1000`;
    for (let start = 0; start < rows.length; start += batchSize) {
      puts.push(limit(() => put(rows.slice(start, start + batchSize))));
    }
    const end = rows.at(-1);
    if (!end) break;
    last = end.code;
  }
  await Promise.all(puts);
  const seconds = (performance.now() - startedAt) / 1000;
  await pool.destroy();
  await sql.end();
  return seconds;
}
