// The costs of a slot of the quota in PostgreSQL while another session holds a snapshot, as pg_dump or a forgotten
// transaction does: no row version that is newer can be removed meanwhile.
import postgres from 'postgres';
import { createPostgresStore } from '../src/destination/quota/postgres-store.js';
import { startEmbeddedPostgres } from '../src/demo/embedded-postgres.js';
import { table, type Cell } from '../src/render/table.js';
import { migrate } from '../src/state/migrate.js';
import { megabytes, RATE, showProgress } from './figures.js';
import { withCleanup } from './installation.js';
import { describeMachine } from './machine.js';

/** An hour at the whole quota is 72 000. */
const GRANTS = [1_000, 20_000, 72_000];
/** Each figure is the mean of so many grants, the last of them this one. */
const BLOCK = 1_000;
/** Nothing is waited for: what is measured is the store. */
const AT_ONCE = { bootGuardMs: 0, paceMs: 0, aheadMs: 0, holdMs: 0 };

/** `npm run bench -- snapshot [grants]`. Prints each thousand on standard error. */
export async function benchSnapshot([most = '72000']: readonly string[]): Promise<void> {
  const grants = Math.max(BLOCK, Math.floor(Number(most) / BLOCK) * BLOCK);
  const shown = [...new Set([...GRANTS.filter((number) => number < grants), grants])];
  await withCleanup(async (onEnd) => {
    const server = await startEmbeddedPostgres();
    onEnd(() => server.stop());
    const lines: Cell[][] = [];
    for (const [at, held] of [false, true].entries()) {
      const url = await server.createDatabase(`bench_${at}`);
      await migrate(url);
      const { times, bytes } = await measure(url, held, grants);
      const cells = shown.map((grant) => (times[grant / BLOCK - 1] ?? NaN).toFixed(2));
      lines.push([held ? 'yes' : 'no', ...cells, megabytes(bytes)]);
      showProgress(at + 1, 2);
    }
    const sql = postgres(await server.createDatabase('machine'), { max: 1 });
    const headings = ['snapshot held', ...shown.map((grant) => `ms at ${grant}`), 'table at the end, MB'];
    process.stdout.write(`${await describeMachine({ sql })}\n\n${table(headings, lines)}\n`);
    await sql.end();
  });
}

/** Milliseconds to take and release a slot: the mean of each block. */
async function measure(url: string, held: boolean, grants: number) {
  const [sql, other] = [1, 1].map((max) => postgres(url, { max, onnotice: () => undefined }));
  if (!sql || !other) throw new Error('no connection');
  const holder = await other.reserve();
  try {
    if (held) await holder.unsafe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM slotsync.runs');
    const store = createPostgresStore({ sql, key: 'bench', rate: RATE, rules: AT_ONCE });
    const times: number[] = [];
    while (times.length * BLOCK < grants) {
      const began = performance.now();
      for (let grant = 0; grant < BLOCK; grant++) await takeAndRelease(store);
      times.push((performance.now() - began) / BLOCK);
      process.stderr.write(`${times.length * BLOCK}: ${times.at(-1)?.toFixed(3)} ms\n`);
    }
    const [size] = await sql`SELECT pg_total_relation_size('slotsync.quota_limiters')::float8 AS bytes`;
    return { times, bytes: Number(size?.['bytes']) };
  } finally {
    holder.release();
    await Promise.all([sql.end(), other.end({ timeout: 1 })]);
  }
}

async function takeAndRelease(store: ReturnType<typeof createPostgresStore>): Promise<void> {
  const [grant] = (await store.take({ id: 'bench', lane: 'sync', wanted: 1 }, 30_000)).grants;
  if (!grant) throw new Error('the bench was not granted a slot');
  await store.release(grant.token);
}
