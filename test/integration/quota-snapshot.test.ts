// Guarantee 1
// The quota in PostgreSQL while another session holds a snapshot, so that former versions of its row cannot be removed.
import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createPostgresStore } from '../../src/destination/quota/postgres-store.js';
import { quotaRules } from '../../src/destination/quota/quota-rules.js';
import { openState } from '../../src/state/database.js';
import { checkSnapshots } from '../../src/sync/operator/check.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

/** Rules under which a waiter that asks gets a slot at once. */
const AT_ONCE = { bootGuardMs: 0, paceMs: 0, aheadMs: 0, holdMs: 0, pauseExtraMs: 0 };

let database: TestDatabase;
let sql: postgres.Sql;
let holder: postgres.ReservedSql;
beforeAll(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 5, onnotice: () => undefined });
  holder = await sql.reserve();
  await holder.unsafe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
});
afterAll(async () => {
  holder.release();
  await sql.end({ timeout: 1 });
  await database.drop();
});

async function takeAndRelease(key: string, id: string): Promise<string> {
  const store = createPostgresStore({ sql, key, rate: 20, rules: AT_ONCE });
  const [grant] = (await store.take({ id, lane: 'sync', wanted: 1 }, 30_000)).grants;
  if (!grant) throw new Error('no slot was granted');
  await store.release(grant.token);
  return grant.token;
}

async function collect<T>(values: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const value of values) all.push(value);
  return all;
}

const STEPS = [
  `slotsync.take_slots($1, 'b', 'sync', 0, 1, $2)`,
  `slotsync.withdraw_waiter($1, 'nobody', $2)`,
  `slotsync.release_slot($1, '0-1-1', $2)`,
  `slotsync.quota_throttled($1, 0, $2)`,
  `slotsync.quota_usage($1, $2)`,
];

/** Returns how many blocks each step reads: the mean of several calls, because some meet a full page. */
async function blocksOfSteps(key: string): Promise<number[]> {
  const rules = JSON.stringify(quotaRules(20, { ...AT_ONCE, reduceEveryMs: 1e9 }));
  const calls = 10;
  const means = [];
  for (const step of STEPS) {
    let blocks = 0;
    for (let call = 0; call < calls; call++) {
      const statement = `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT ${step.replace('$1', `'${key}'`).replace('$2', `'${rules}'`)}`;
      const [row] = await sql.unsafe(statement);
      const plan = row?.['QUERY PLAN'][0].Plan as Record<string, number>;
      blocks += (plan['Shared Hit Blocks'] ?? NaN) + (plan['Shared Read Blocks'] ?? NaN);
    }
    means.push(blocks / calls);
  }
  return means;
}

it('the quota reads as much for a step after thousands of steps as after a few', async () => {
  const key = 'long';
  for (let grant = 0; grant < 100; grant++) await takeAndRelease(key, 'a');
  const before = await blocksOfSteps(key);
  for (let grant = 0; grant < 1_500; grant++) await takeAndRelease(key, 'a');
  const [versions] = await sql`SELECT pg_relation_size('slotsync.quota_limiters') / 8192 AS blocks`;
  expect(Number(versions?.['blocks'])).toBeGreaterThan(200); // the snapshot does keep them
  const after = await blocksOfSteps(key);
  for (const [step, blocks] of after.entries()) {
    const mean = before[step] ?? 0;
    expect(blocks, `${STEPS[step]}, before: ${mean}`).toBeLessThan(2 * mean + 10);
  }
});

it('check names the program and the session that hold an old snapshot', async () => {
  const state = openState({ url: database.url });
  try {
    expect(await collect(checkSnapshots(state))).toEqual([]); // as old as this test
    const [session] = await holder<{ pid: number }[]>`
      SELECT pg_backend_pid() AS pid, set_config('application_name', 'pg_dump', false)`;
    const text = expect.stringMatching(`^pg_dump .*pid ${session?.pid}`);
    expect(await collect(checkSnapshots(state, 0))).toEqual([
      { what: 'state', result: 'warning', text, remedy: expect.stringContaining('capacity.md') },
    ]);
  } finally {
    await state.close();
  }
});

it('the quota has one row per limiter and grants no slot twice, even while generations change', async () => {
  const key = 'shared';
  await takeAndRelease(key, 'first');
  const clients = ['a', 'b', 'c', 'd'];
  const tokens = await Promise.all(
    clients.map(async (id) => {
      const taken = [];
      for (let grant = 0; grant < 150; grant++) taken.push(await takeAndRelease(key, id));
      return taken;
    }),
  );
  expect(new Set(tokens.flat()).size).toBe(4 * 150);
  const rows = await sql`
    SELECT seq::int, changes >= 2 * seq AS "areCounted", generation = changes / 64 AS "isCurrent",
      (SELECT count(*)::int FROM unnest(slot_seq) AS s WHERE s <> 0) AS held
    FROM slotsync.quota_limiters WHERE key = ${key}`;
  expect(rows).toEqual([{ seq: 4 * 150 + 1, areCounted: true, isCurrent: true, held: 0 }]);
});
