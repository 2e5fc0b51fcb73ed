// What a plan costs over rows that did not change, beside the floor (PostgreSQL producing both readings, thrown
// away) and beside what one would write first: read everything, hash in JavaScript, compare in a Map.
import { createHash } from 'node:crypto';
import { availableParallelism, cpus } from 'node:os';
import postgres from 'postgres';
import { checkConfiguration } from '../src/config-file.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { createMirror } from '../src/mirror/mirror.js';
import { copyHashes } from '../src/mirror/source-sql.js';
import { openState } from '../src/state/database.js';
import { migrate } from '../src/state/migrate.js';
import type { Stream } from '../src/streams/streams.js';
import { planStream } from '../src/sync/plan.js';
import { table } from '../src/commands/print.js';

const RUNS = 5;
const MEGABYTE = 1024 * 1024;

/** `npm run bench -- plan [rows]`; default 1 000 000. Prints medians of five runs. */
export async function benchPlan([rowsText = '1000000']: readonly string[]): Promise<void> {
  const rows = Number(rowsText);
  const server = await startEmbeddedPostgres();
  try {
    const url = await server.createDatabase('bench');
    await migrate(url);
    const sql = postgres(url, { max: 2, onnotice: () => undefined });
    const stream = declare();
    await fill(sql, stream, rows);
    const mirror = createMirror({ url });
    const state = openState({ url });
    const plan = async () => {
      const differences = planStream({ mirror, state }, stream);
      let step = await differences.next();
      while (!step.done) step = await differences.next();
      return step.value;
    };

    const results = [
      await measure('floor: COPY of both readings, thrown away', () => floor(sql, stream)),
      await measure('slotsync plan', plan),
      await measure('read all rows, hash in JavaScript, look up in a Map', () => naive(sql)),
    ];
    const [lowest] = results;
    process.stdout.write(
      `${rows} rows, none changed; ${cpus()[0]?.model ?? 'unknown'} × ${availableParallelism()}, Node ${process.version}\n\n`,
    );
    process.stdout.write(
      `${table(
        ['', 'seconds (median)', 'min', 'max', 'to the floor', 'peak memory, MB'],
        results.map(({ name, seconds, peak }) => [
          name,
          ...[seconds[Math.floor(RUNS / 2)] ?? 0, seconds[0] ?? 0, seconds.at(-1) ?? 0].map((value) =>
            value.toFixed(2),
          ),
          ((seconds[Math.floor(RUNS / 2)] ?? 0) / (lowest?.seconds[Math.floor(RUNS / 2)] ?? 1)).toFixed(2),
          Math.round(peak / MEGABYTE),
        ]),
      )}\n`,
    );
    await mirror.close();
    await state.close();
    await sql.end({ timeout: 1 });
  } finally {
    await server.stop();
  }
}

function declare(): Stream {
  const fields = { 'thing.name': 'name', 'thing.size': 'size' };
  const things = { from: 'public.things', key: 'id', type: 'thing', externalId: 'thing_{id}', fields };
  const [stream] = checkConfiguration({ streams: { things } }).streams;
  if (!stream) throw new Error('no stream');
  return stream;
}

async function fill(sql: postgres.Sql, stream: Stream, rows: number): Promise<void> {
  await sql.unsafe(
    `
    CREATE TABLE things (id bigint PRIMARY KEY, name text, size int, note text, updated_at timestamptz);
    INSERT INTO things SELECT g, 'Thing number ' || g, g % 300, repeat('x', 40), now() FROM generate_series(1, ${rows}) AS g;
    INSERT INTO slotsync.records (stream, local_key, external_id, source_hash, object_hash, status)
      SELECT 'things', id::text, 'thing_' || id, hashtextextended(t::text, (${stream.fingerprint})::bigint), 'x', 'synced' FROM things AS t;
    VACUUM ANALYZE`.replace('VACUUM ANALYZE', ''),
  );
  await sql`VACUUM ANALYZE`;
  // The row hash depends on how the session prints a timestamp: take it from the mirror's own session.
  await sql`SET TimeZone = 'UTC'`;
  await sql.unsafe(`UPDATE slotsync.records AS r SET source_hash = hashtextextended(t::text, (${stream.fingerprint})::bigint)
    FROM things AS t WHERE t.id::text = r.local_key`);
  await sql`VACUUM FULL slotsync.records`;
  await sql`ANALYZE`;
}

async function measure(name: string, run: () => Promise<unknown>) {
  await run();
  const seconds: number[] = [];
  let peak = 0;
  const watch = setInterval(() => (peak = Math.max(peak, process.memoryUsage.rss())), 10);
  for (let at = 0; at < RUNS; at++) {
    const startedAt = performance.now();
    await run();
    seconds.push((performance.now() - startedAt) / 1000);
  }
  clearInterval(watch);
  return { name, seconds: seconds.sort((a, b) => a - b), peak };
}

async function floor(sql: postgres.Sql, stream: Stream): Promise<void> {
  await sql.unsafe(copyHashes(stream).replace(/TO STDOUT$/, "TO '/dev/null'"));
  await sql.unsafe(
    `COPY (SELECT local_key, source_hash FROM slotsync.records WHERE stream = 'things' ORDER BY local_key) TO '/dev/null'`,
  );
}

async function naive(sql: postgres.Sql): Promise<number> {
  const known = new Map<string, string>();
  for (const {
    local_key: key,
    source_hash: hash,
  } of await sql`SELECT local_key, source_hash FROM slotsync.records`) {
    known.set(key as string, hash as string);
  }
  let changed = 0;
  for (const row of await sql`SELECT * FROM things`) {
    const hash = createHash('sha256').update(JSON.stringify(row)).digest('hex');
    if (known.get(String(row['id'])) !== hash) changed++;
  }
  return changed;
}
