// How fast a worker sends many changes that one statement makes, beside a sync of as many, and how long a single change takes
// meanwhile. Triggers note the changes; one worker of the built program; the quota does not limit it.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { until } from '../test/support/wait.js';
import { quantile, showProgress } from './figures.js';
import { install, withCleanup } from './installation.js';
import { describeMachine } from './machine.js';
import { startService } from './service.js';

const SIZES = [1_000, 50_000];
/** Rows that change alone meanwhile: of the same table and of another one. */
const SINGLE = 100;
/** Time between two single changes, in milliseconds. */
const SINGLE_EVERY_MS = 250;
/** After this time the bench reports how many changes are left. */
const MOST_SECONDS = 300;
const ENV = { API_REQUESTS_PER_SECOND: '400' };

/**
 * `npm run bench -- inbox [changes …] [--beside <folder>]`: also the built program of the tree in that folder. Half a million
 * changes take about three minutes.
 */
export async function benchInbox(words: readonly string[]): Promise<void> {
  const flag = words.indexOf('--beside');
  const trees = flag < 0 ? [undefined] : [words[flag + 1], undefined];
  const named = words.map(Number).filter((count) => count > 0);
  const sizes = named.length > 0 ? named : SIZES;
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(() => server.stop());
    const lines: Cell[][] = [];
    let machine = '';
    const rows = sizes.flatMap((changes) => trees.map((tree) => ({ changes, tree })));
    for (const [index, { changes, tree }] of rows.entries()) {
      const databaseUrl = await server.createDatabase(`bench_${index}`);
      const sql = postgres(databaseUrl, { max: 2, onnotice: () => undefined });
      onEnd(() => sql.end({ timeout: 1 }));
      machine = await describeMachine({ sql });
      lines.push([changes, tree ?? 'slotsync', ...(await measure({ databaseUrl, sql, tree }, changes))]);
      showProgress(index + 1, rows.length);
    }
    const of = (name: string) => [`${name}: changes`, 'median, ms', 'worst'];
    const headings = ['changes', '', 'UPDATE, s', 'sync, records/s', 'inbox, records/s', 'left', 'runs'];
    process.stdout.write(
      `${machine}\n\n${table([...headings, ...of('other table'), ...of('same table')], lines)}\n`,
    );
  });
}

interface Place {
  databaseUrl: string;
  sql: postgres.Sql;
  tree: string | undefined;
}

async function measure({ databaseUrl, sql, tree }: Place, changes: number): Promise<Cell[]> {
  await sql.unsafe(`
    CREATE TABLE rooms (code text PRIMARY KEY, name text);
    INSERT INTO rooms SELECT 'R' || i, 'Room ' || i FROM generate_series(1, ${changes}) AS i;
    INSERT INTO rooms SELECT 'S' || i, 'Room ' || i FROM generate_series(1, ${SINGLE}) AS i;
    CREATE TABLE halls AS SELECT code, name FROM rooms WHERE code LIKE 'S%';
    ALTER TABLE halls ADD PRIMARY KEY (code);
    ANALYZE`);
  const schema = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] };
  const service = await startService({ rate: 0, latencyMs: 2, schema });
  const streamOf = (from: string) => ({
    from,
    key: 'code',
    type: 'room',
    externalId: `${from}_{code}`,
    owns: 'object',
    fields: { 'room.name': 'name' },
  });
  const configuration = { streams: { rooms: streamOf('rooms'), halls: streamOf('halls') } };
  const slotsync = await install({ databaseUrl, serviceUrl: service.url, tree, configuration, env: ENV });
  try {
    await slotsync.command('migrate');
    await slotsync.command('sync');
    const change = (name: string) => sql`UPDATE rooms SET name = ${name} || code WHERE code LIKE 'R%'`;
    await change('By sync ');
    await slotsync.command('sync', 'rooms');
    const [run] = await sql<{ seconds: number }[]>`
      SELECT extract(epoch FROM finished_at - requested_at)::float8 AS seconds FROM slotsync.runs
      WHERE kind = 'sync' ORDER BY id DESC LIMIT 1`;
    await slotsync.command('triggers', 'install');
    await slotsync.startWorker();

    const began = performance.now();
    await change('By trigger ');
    const committed = performance.now();
    const [last] = await sql<{ id: string }[]>`SELECT max(id)::text AS id FROM slotsync.changes`;
    const isLeft = async () => {
      const left =
        await sql`SELECT FROM slotsync.changes WHERE stream = 'rooms' AND id <= ${last?.id ?? '0'} LIMIT 1`;
      return left.length > 0 && performance.now() - committed < MOST_SECONDS * 1000;
    };
    const millis = { halls: [] as number[], rooms: [] as number[] };
    const singles = Promise.all([
      changeSingly(sql, 'halls', isLeft, millis.halls),
      changeSingly(sql, 'rooms', isLeft, millis.rooms),
    ]);
    while (await isLeft()) await pause(20);
    const seconds = (performance.now() - committed) / 1000;
    const [left] = await sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM slotsync.changes WHERE stream = 'rooms' AND id <= ${last?.id ?? '0'}`;
    const [runs] = await sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM slotsync.runs WHERE kind = 'incremental'`;
    await singles;
    const latencies = (all: readonly number[]) => [
      all.length,
      ...[0.5, 1].map((part) => Math.round(quantile(all, part))),
    ];
    return [
      ((committed - began) / 1000).toFixed(1),
      Math.round(changes / (run?.seconds ?? NaN)),
      Math.round((changes - (left?.count ?? 0)) / seconds),
      left?.count ?? 0,
      runs?.count ?? 0,
      ...latencies(millis.halls),
      ...latencies(millis.rooms),
    ];
  } finally {
    await slotsync.close();
    await service.stop();
  }
}

/** Changes one row after the other while `goesOn`, and adds how long each took until the service had accepted it. */
async function changeSingly(
  sql: postgres.Sql,
  name: 'halls' | 'rooms',
  goesOn: () => Promise<boolean>,
  millis: number[],
): Promise<void> {
  for (let at = 1; await goesOn(); at++) {
    const next = pause(SINGLE_EVERY_MS);
    const code = `S${(at % SINGLE) + 1}`;
    const [changed] = await sql<{ at: string }[]>`
      UPDATE ${sql(name)} SET name = ${`Single ${at}`} WHERE code = ${code} RETURNING clock_timestamp()::text AS at`;
    const committedAt = performance.now();
    const isAccepted = async () =>
      (
        await sql`SELECT FROM slotsync.records
          WHERE stream = ${name} AND local_key = ${code} AND synced_at > ${changed?.at ?? ''}::text::timestamptz`
      ).length > 0;
    const timeoutMs = MOST_SECONDS * 1000;
    await until(isAccepted, { describe: `${name} ${code} to arrive`, timeoutMs, intervalMs: 10 });
    millis.push(performance.now() - committedAt);
    await next;
  }
}
