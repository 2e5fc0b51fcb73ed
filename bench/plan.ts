// The time to know what differs: `slotsync plan` as it is run, beside the floor: PostgreSQL producing both
// readings, which are thrown away.
import postgres from 'postgres';
import { checkConfiguration } from '../src/config/config-file.js';
import { hashExpression, ROW } from '../src/mirror/source-sql.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { formatNumber } from '../src/text/format.js';
import { table, type Cell } from '../src/render/table.js';
import { startSandbox } from '../src/sandbox/sandbox.js';
import { median, megabytes, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

const RUNS = 5;
/** Above so many rows three runs: each takes half a minute. */
const MANY = 2_000_000;
const FEW_RUNS = 3;
const FEW = 10_000;
const CONFIGURATION = {
  streams: {
    things: {
      from: 'public.things',
      key: 'id',
      type: 'thing',
      externalId: 'thing_{id}',
      fields: { 'thing.name': 'name', 'thing.size': 'size' },
    },
  },
};
const SCHEMA = { types: [{ extId: 'thing' }], fields: [{ extId: 'thing.name' }, { extId: 'thing.size' }] };

interface Figures {
  seconds: number;
  peakBytes?: number | undefined;
}

/**
 * `npm run bench -- plan [rows …]`; default 1 000 000. Medians of five runs, of three above two million rows, after one that
 * is not counted. Ten million rows take some fifteen minutes and 10 GB.
 */
export async function benchPlan(args: readonly string[]): Promise<void> {
  const counts = [FEW, ...(args.length === 0 ? [1_000_000] : args.map(Number))];
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(server.stop);
    const sandbox = await startSandbox({ schema: SCHEMA });
    onEnd(sandbox.close);
    const lines: Cell[][] = [];
    let machine = '';
    for (const [at, rows] of counts.entries()) {
      const url = await server.createDatabase(`bench_${at}`);
      const sql = postgres(url, { max: 1, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      const slotsync = await install({
        databaseUrl: url,
        serviceUrl: sandbox.url,
        configuration: CONFIGURATION,
      });
      onEnd(slotsync.close);
      await slotsync.command('migrate');
      machine = await describeMachine({ sql });
      await fill(sql, rows);
      const runs = rows > MANY ? FEW_RUNS : RUNS;
      const measure = async (changed: number) => {
        const floor = await repeat(runs, () => readBoth(sql));
        const plan = await repeat(runs, () => slotsync.command('plan'));
        const name = `${formatNumber(rows)}, ${changed === 0 ? 'none' : formatNumber(changed)} changed`;
        lines.push(
          [name, 'floor', ...describe(floor, floor)],
          [name, 'slotsync plan', ...describe(plan, floor)],
        );
      };
      await measure(0);
      if (rows > FEW) {
        await sql`UPDATE things SET name = name || '!' WHERE id % 100 = 0`;
        await sql`VACUUM ANALYZE things`;
        await measure(rows / 100);
      }
      showProgress(at + 1, counts.length);
    }
    const headings = ['rows', '', 'seconds (median)', 'min', 'max', 'to the floor', 'peak memory, MB'];
    process.stdout.write(`${machine}\n\n${table(headings, lines)}\n`);
  });
}

async function fill(sql: postgres.Sql, rows: number): Promise<void> {
  const { fingerprint } = checkConfiguration(CONFIGURATION).streams[0] ?? {};
  if (fingerprint === undefined) throw new Error('the configuration has a stream');
  const layout = JSON.stringify([
    ['id', 'bigint'],
    ['name', 'text'],
    ['size', 'integer'],
    ['note', 'text'],
    ['updated_at', 'timestamp with time zone'],
  ]);
  await sql`CREATE TABLE things (id bigint PRIMARY KEY, name text, size int, note text, updated_at timestamptz)`;
  await sql`
    INSERT INTO things
    SELECT g, 'Thing number ' || g, g % 300, repeat('x', 40), now() FROM generate_series(1, ${rows}) AS g`;
  // The row hash depends on how the session prints a timestamp: as the mirror's own sessions do.
  await sql`SET TimeZone = 'UTC'`;
  await sql.unsafe(`
    INSERT INTO slotsync.records (stream, local_key, external_id, source_hash, object_hash, status)
    SELECT 'things', id::text, 'thing_' || id, ${hashExpression({ fingerprint, layout })}, 'x', 'synced'
    FROM things AS ${ROW}`);
  await sql`VACUUM ANALYZE`;
}

/** The readings of a plan, one after the other. */
async function readBoth(sql: postgres.Sql): Promise<Figures> {
  const startedAt = performance.now();
  await sql.unsafe(`
    COPY (SELECT id::text, hashtextextended(t::text, 0) FROM things AS t ORDER BY id::text COLLATE "C") TO '/dev/null'`);
  await sql.unsafe(`
    COPY (SELECT local_key, source_hash FROM slotsync.records WHERE stream = 'things' ORDER BY local_key) TO '/dev/null'`);
  return { seconds: (performance.now() - startedAt) / 1000 };
}

async function repeat(runs: number, run: () => Promise<Figures>): Promise<Figures[]> {
  await run();
  const figures: Figures[] = [];
  for (let round = 0; round < runs; round++) figures.push(await run());
  return figures;
}

function describe(figures: readonly Figures[], floor: readonly Figures[]): Cell[] {
  const seconds = figures.map((each) => each.seconds);
  const toFloor = median(seconds) / median(floor.map((each) => each.seconds));
  const peaks = figures.flatMap(({ peakBytes }) => peakBytes ?? []);
  return [
    ...[median(seconds), Math.min(...seconds), Math.max(...seconds), toFloor].map((value) =>
      value.toFixed(2),
    ),
    megabytes(peaks.length === 0 ? undefined : Math.max(...peaks)),
  ];
}
