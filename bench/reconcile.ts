// What a reconcile costs beside the service: seconds of our own work, memory, and requests against the least possible,
// next to reading everything into two maps. Once for the whole and once for a quarter of it: memory should not grow.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { table } from '../src/report/format.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { migrate } from '../src/state/migrate.js';
import { describeMachine } from './machine.js';

const RUNS = 3;
const MEGABYTE = 1024 * 1024;
const PAGE = 1000;
const FROM = Date.UTC(2026, 8, 1) / 1000;
/** 180 days. */
const SECONDS = 180 * 24 * 60 * 60;

interface Figures {
  seconds: number;
  cpuSeconds: number;
  peak: number;
  requests: number;
  verdicts: Record<string, number>;
}

/** `npm run bench -- reconcile [bookings]`; default 100 000. Prints medians of three runs, each in its own process. */
export async function benchReconcile([countText = '100000']: readonly string[]): Promise<void> {
  const server = await startEmbeddedPostgres();
  try {
    const rows: (string | number)[][] = [];
    let machine = '';
    for (const count of [Math.floor(Number(countText) / 4), Number(countText)]) {
      // The same density over a shorter window.
      const to = FROM + Math.floor((SECONDS * count) / Number(countText));
      const url = await server.createDatabase(`bench_${count}`);
      await migrate(url);
      machine = await fill(url, count, to);
      const service = await startService(count, to);
      try {
        for (const way of ['slotsync', 'maps'])
          rows.push(describe(way, count, await measure(way, url, service.url, to)));
      } finally {
        service.stop();
      }
    }
    process.stdout.write(`${machine}; no quota\n\n`);
    const headings = [
      '',
      'bookings',
      'seconds',
      'CPU seconds',
      'peak memory, MB',
      'requests',
      'least',
      'agree',
    ];
    process.stdout.write(`${table(headings, rows)}\n`);
  } finally {
    await server.stop();
  }
}

function describe(way: string, count: number, { seconds, cpuSeconds, peak, requests, verdicts }: Figures) {
  return [
    way === 'slotsync' ? 'slotsync reconcile' : 'everything in two maps',
    count,
    seconds.toFixed(2),
    cpuSeconds.toFixed(2),
    Math.round(peak / MEGABYTE),
    requests,
    // The key, the pages, and one page of no cancellations.
    Math.ceil(count / PAGE) + 2,
    verdicts['agrees'] ?? 0,
  ];
}

async function fill(url: string, count: number, to: number): Promise<string> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  const step = (to - FROM) / count;
  await sql.unsafe(`
    CREATE TABLE bookings (id int PRIMARY KEY, begins timestamptz, ends timestamptz, room text);
    INSERT INTO bookings SELECT i, to_timestamp(floor(${FROM} + i * ${step}::float8)), to_timestamp(floor(${FROM} + i * ${step}::float8) + 3600), (i % 100)::text
      FROM generate_series(0, ${count - 1}) AS i;
    CREATE INDEX ON bookings (begins);
    INSERT INTO slotsync.records (stream, local_key, external_id, object_hash, source_hash, status)
      SELECT 'rooms', i::text, 'room_' || i, 'x', 1, 'synced' FROM generate_series(0, 99) AS i;`);
  await sql`VACUUM ANALYZE`;
  const machine = await describeMachine({ sql });
  await sql.end({ timeout: 1 });
  return machine;
}

async function startService(count: number, to: number): Promise<{ url: string; stop: () => void }> {
  const child = spawnScript('reconcile-service.ts', [count, FROM, to], 'pipe');
  const [url] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  return { url, stop: () => child.stdin.end() };
}

/** The median run by seconds; the first is not counted, since it writes what the others find. */
async function measure(way: string, databaseUrl: string, serviceUrl: string, to: number): Promise<Figures> {
  const figures: Figures[] = [];
  for (let run = 0; run <= RUNS; run++) {
    const child = spawnScript('reconcile-once.ts', [way, databaseUrl, serviceUrl, FROM, to], 'pipe');
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
    await once(child, 'exit');
    if (run > 0) figures.push(JSON.parse(line) as Figures);
  }
  const sorted = figures.toSorted((a, b) => a.seconds - b.seconds);
  const median = sorted[Math.floor(RUNS / 2)];
  if (!median) throw new Error('nothing was measured');
  return median;
}

function spawnScript(name: string, args: readonly (string | number)[], stdio: 'pipe') {
  const script = fileURLToPath(new URL(name, import.meta.url));
  return spawn(process.execPath, ['--import', 'jiti/register', script, ...args.map(String)], {
    stdio: [stdio, stdio, 'inherit'],
  });
}
