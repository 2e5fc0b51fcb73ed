// What a plan costs, beside the floor (PostgreSQL producing both readings, thrown away) and beside what one would write
// first: read everything with an ORM, hash in JavaScript, look each up. Each is measured in a process of its own, so
// that nobody's memory is counted for another.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import postgres from 'postgres';
import { formatNumber, table } from '../src/report/format.js';
import { createProgress } from '../src/report/progress.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { migrate } from '../src/state/migrate.js';
import { median } from './judge.js';
import { describeMachine } from './machine.js';
import { PLAN_WAYS, thingsStream, type PlanOrder, type PlanReport } from './plan-ways.js';

const RUNS = 5;
const FEW = 10_000;
const MEGABYTE = 1024 * 1024;
const WAYS = fileURLToPath(new URL('./plan-ways.ts', import.meta.url));

/** `npm run bench -- plan [rows]`; default 1 000 000. Prints medians of five runs, after one that is not counted. */
export async function benchPlan([rowsText = '1000000']: readonly string[]): Promise<void> {
  const many = Number(rowsText);
  const server = await startEmbeddedPostgres();
  const progress = createProgress('plan');
  try {
    const cases = [
      { rows: FEW, changed: 0 },
      { rows: many, changed: 0 },
      { rows: many, changed: many / 100 },
    ];
    const lines: (string | number)[][] = [];
    let machine = '';
    for (const [at, { rows, changed }] of cases.entries()) {
      const url = await server.createDatabase(`bench_${at}`);
      await migrate(url);
      const sql = postgres(url, { max: 1, onnotice: () => undefined });
      await fill(sql, rows);
      if (changed > 0) await sql`UPDATE things SET name = name || '!' WHERE id % 100 = 0`;
      await sql`VACUUM ANALYZE`;
      machine = await describeMachine({ sql });
      await sql.end({ timeout: 1 });

      const reports: PlanReport[] = [];
      for (const [index, way] of PLAN_WAYS.entries()) {
        reports.push(await measure({ way, url, runs: RUNS }));
        progress.update(at * PLAN_WAYS.length + index + 1, cases.length * PLAN_WAYS.length);
      }
      const floor = median(reports[0]?.seconds ?? []);
      for (const [index, { seconds, peakBytes }] of reports.entries()) {
        lines.push([
          `${formatNumber(rows)}, ${changed === 0 ? 'none changed' : `${formatNumber(changed)} changed`}`,
          PLAN_WAYS[index] ?? '',
          ...[median(seconds), Math.min(...seconds), Math.max(...seconds)].map((value) => value.toFixed(2)),
          (median(seconds) / floor).toFixed(2),
          Math.round(peakBytes / MEGABYTE),
        ]);
      }
    }
    progress.stop();
    process.stdout.write(`${machine}\n\n`);
    const headings = ['rows', '', 'seconds (median)', 'min', 'max', 'to the floor', 'peak memory, MB'];
    process.stdout.write(`${table(headings, lines)}\n`);
  } finally {
    await server.stop();
  }
}

async function fill(sql: postgres.Sql, rows: number): Promise<void> {
  const { fingerprint } = thingsStream();
  await sql`CREATE TABLE things (id bigint PRIMARY KEY, name text, size int, note text, updated_at timestamptz)`;
  await sql`
    INSERT INTO things
    SELECT g, 'Thing number ' || g, g % 300, repeat('x', 40), now() FROM generate_series(1, ${rows}) AS g`;
  // The row hash depends on how the session prints a timestamp: as the mirror's own sessions do.
  await sql`SET TimeZone = 'UTC'`;
  await sql.unsafe(`
    INSERT INTO slotsync.records (stream, local_key, external_id, source_hash, object_hash, status)
    SELECT 'things', id::text, 'thing_' || id, hashtextextended(t::text, (${fingerprint})::bigint), 'x', 'synced'
    FROM things AS t`);
}

function measure(order: PlanOrder): Promise<PlanReport> {
  return new Promise((resolve, reject) => {
    const child = fork(WAYS, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
    child.on('message', (report: PlanReport) => resolve(report));
    child.on('exit', (code) => reject(new Error(`the process that planned ended with ${code}`)));
    child.send(order);
  });
}
