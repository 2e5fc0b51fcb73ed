// The first load of an organization: how long a backfill takes with the quota, by the number of objects in a request, where
// the service takes longer for more objects. A request of 1 000 objects takes 320 ms here.
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { startRedisServer } from '../test/support/redis-server.js';
import { megabytes, percent, RATE, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';
import { fillThings, THINGS, THINGS_SCHEMA } from './things.js';

const OBJECTS = 100_000;
const LATENCY = { latencyMs: 20, latencyPerObjectMs: 0.3 };
const SIZES = ['100', '250', '500', '1000', 'auto'];
/** Each find has to be waited for as well, so that rows with `fields` take twice as long. */
const SIZES_OF_FIELDS = ['100', '500', '1000', 'auto'];
/** A service that takes no more objects in a request: the largest size that it takes, beside 'auto', which has to find it. */
const REFUSING = { most: 250, sizes: ['250', 'auto'] };

interface Row {
  owns: 'object' | 'fields';
  /** A number of objects in a request, or `auto`. */
  size: string;
  /** Most objects in a request that the service takes; 1 000 unless given. */
  most?: number | undefined;
}

/**
 * `npm run bench -- load [object|fields] [sizes, as 100,1000,auto] [max=<objects>] [redis]`: these rows alone; `max`: at a
 * service that refuses more objects in a request; `redis`: queue and quota there. Without words all rows, in seven minutes.
 */
export async function benchLoad(words: readonly string[]): Promise<void> {
  const rows = rowsOf(words);
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const redis = words.includes('redis') ? await startRedisServer() : undefined;
    if (redis !== undefined) onEnd(() => redis.stop());
    const measured: (Row & Figures)[] = [];
    let machine = '';
    for (const [at, row] of rows.entries()) {
      const databaseUrl = await server.createDatabase(`bench_${at}`);
      const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
      await fillThings(sql, OBJECTS);
      machine = await describeMachine({ sql });
      measured.push({ ...row, ...(await measure(databaseUrl, sql, row, redis?.url)) });
      await sql.end({ timeout: 1 });
      showProgress(at + 1, rows.length);
    }
    const lines = measured.map((row) => describe(row, measured));
    const headings = [
      'owns',
      'objects a request',
      'PUT',
      'find',
      'others',
      's from the plan’s end',
      's in all',
    ];
    const more = ['objects/s', 'to 100', 'of the best fixed', '413', '429', 'most in 1 s', 'peak memory, MB'];
    process.stdout.write(`${machine}\n\n${table([...headings, ...more], lines)}\n`);
  });
}

function rowsOf(words: readonly string[]): Row[] {
  const of = (owns: Row['owns'], sizes: readonly string[], most?: number) =>
    sizes.map((size) => ({ owns, size, most }));
  if (words.every((word) => word === 'redis'))
    return [
      ...of('object', SIZES),
      ...of('object', REFUSING.sizes, REFUSING.most),
      ...of('fields', SIZES_OF_FIELDS),
    ];
  const sizes = words.find((word) => /^(\d+|auto)(,(\d+|auto))*$/.test(word))?.split(',') ?? SIZES;
  const most = words.find((word) => word.startsWith('max='))?.slice('max='.length);
  const kinds = (['object', 'fields'] as const).filter(
    (owns) => words.includes(owns) || !(words.includes('object') || words.includes('fields')),
  );
  return kinds.flatMap((owns) => of(owns, sizes, most === undefined ? undefined : Number(most)));
}

interface Figures {
  puts: number;
  finds: number;
  others: number;
  tooMany: number;
  throttled: number;
  mostInAnySecond: number;
  sendingSeconds: number;
  seconds: number;
  peakBytes: number | undefined;
}

async function measure(
  databaseUrl: string,
  sql: postgres.Sql,
  { owns, size, most }: Row,
  redisUrl: string | undefined,
): Promise<Figures> {
  const service = await startService({ rate: RATE, ...LATENCY, schema: THINGS_SCHEMA, maxObjects: most });
  const batchSize = size === 'auto' ? size : Number(size);
  const slotsync = await install({
    databaseUrl,
    serviceUrl: service.url,
    configuration: { streams: { things: { ...THINGS.streams.things, owns, batchSize } } },
    env: { REDIS_URL: redisUrl },
  });
  try {
    await slotsync.command('migrate');
    const { seconds, peakBytes } = await slotsync.command('backfill', 'things');
    const { requests, answers, objects, mostInAnySecond } = await service.summary();
    if (objects['thing']?.active !== OBJECTS) throw new Error('the service does not hold every object');
    const [run] = await sql`
      SELECT extract(epoch FROM finished_at - started_at)::float8 AS seconds FROM slotsync.runs`;
    const puts = answers['PUT /v1/objects'] ?? {};
    const all = Object.values(answers);
    const count = (byStatus: Record<number, number> = {}) =>
      Object.values(byStatus).reduce((sum, each) => sum + each, 0);
    const finds = count(answers['POST /v1/objects/find']);
    return {
      puts: count(puts),
      finds,
      others: requests - count(puts) - finds,
      tooMany: puts[413] ?? 0,
      throttled: all.reduce((sum, byStatus) => sum + (byStatus[429] ?? 0), 0),
      mostInAnySecond,
      sendingSeconds: Number(run?.['seconds']),
      seconds,
      peakBytes,
    };
  } finally {
    await slotsync.close();
    await service.stop();
  }
}

function describe(row: Row & Figures, all: readonly (Row & Figures)[]): Cell[] {
  const fixed = all.filter(
    ({ owns, most, size }) => owns === row.owns && most === row.most && size !== 'auto',
  );
  const hundred = fixed.find(({ size }) => size === '100');
  const best =
    fixed.length === 0 ? undefined : Math.min(...fixed.map(({ sendingSeconds }) => sendingSeconds));
  return [
    row.owns,
    row.most === undefined ? row.size : `${row.size}, at most ${row.most}`,
    row.puts,
    row.finds,
    row.others,
    row.sendingSeconds.toFixed(1),
    row.seconds.toFixed(1),
    Math.round(OBJECTS / row.sendingSeconds),
    hundred === undefined ? '–' : (hundred.sendingSeconds / row.sendingSeconds).toFixed(2),
    best === undefined ? '–' : percent(best / row.sendingSeconds),
    row.tooMany,
    row.throttled,
    row.mostInAnySecond,
    megabytes(row.peakBytes),
  ];
}
