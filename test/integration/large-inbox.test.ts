// An inbox with very many changes: the cost of each row stays the same, and a single change does not wait behind them.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Queries } from '../../src/state/database.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { addDueChecks, takeChanges, type TakenRun } from '../../src/state/inbox/take-changes.js';
import { cancelRun, failRun } from '../../src/state/runs/end-run.js';
import { keepRoomWorlds, roomsAndCourses } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const STREAMS = ['rooms', 'courses'];
const openWorld = keepRoomWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld(roomsAndCourses({ owns: 'object' }));
});
afterEach(() => world.sql`TRUNCATE slotsync.changes, slotsync.runs, slotsync.batches`);

/** Adds changes of which the planner expects no row: ANALYZE sees the pages of uncommitted rows, but not the rows. */
const addMany = (count: number) =>
  world.sql.begin(async (tx) => {
    await tx`
      INSERT INTO slotsync.changes (stream, local_key) SELECT 'rooms', 'R' || i FROM generate_series(1, ${count}::int) AS i`;
    await world.sql`ANALYZE slotsync.changes`;
  });

/** Takes changes as a worker does. */
async function take(first?: 'oldest' | 'newest') {
  const isWorkWaiting = await addDueChecks(world.state.db, STREAMS);
  const taken = await takeChanges(world.state.db, STREAMS, undefined, undefined, first && { first });
  return { isWorkWaiting, taken };
}
async function takeRun(first?: 'oldest' | 'newest'): Promise<TakenRun> {
  const { taken } = await take(first);
  if (typeof taken === 'string') throw new Error(taken);
  return taken;
}
async function takeAll(): Promise<TakenRun[]> {
  const runs: TakenRun[] = [];
  for (let { taken } = await take(); typeof taken !== 'string'; { taken } = await take()) runs.push(taken);
  return runs;
}

interface PlanNode {
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Join Filter'?: number;
  Plans?: PlanNode[];
}

/** Counts the rows that all nodes of a plan have read. */
function countRows(node: PlanNode): number {
  const { 'Rows Removed by Filter': filtered = 0, 'Rows Removed by Join Filter': unjoined = 0 } = node;
  const own = node['Actual Loops'] * (node['Actual Rows'] + filtered + unjoined);
  return (node.Plans ?? []).reduce((sum, each) => sum + countRows(each), own);
}

const ROLLBACK = new Error('rolled back');
async function undone(transaction: Promise<unknown>): Promise<void> {
  await expect(transaction).rejects.toBe(ROLLBACK);
}

/** Counts the rows that the statements of `work` read in the inbox. Rolls `work` back. */
async function rowsLookedAt(work: (tx: Queries) => Promise<unknown>): Promise<number> {
  const statements: string[] = [];
  const { options } = world.state.client;
  options.debug = (_, statement) => statements.push(statement);
  await undone(
    world.state.db.transaction(async (tx) => {
      await work(tx);
      throw ROLLBACK;
    }),
  );
  options.debug = false;
  let rows = 0;
  for (const message of statements.filter((text) => text.includes('slotsync.changes'))) {
    await undone(
      world.sql.begin(async (tx) => {
        for (const statement of message.split(';\n')) {
          const answers = await tx.unsafe<{ 'QUERY PLAN': { Plan: PlanNode }[] }[]>(
            `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ${statement}`,
          );
          for (const { Plan } of answers.flatMap((answer) => answer['QUERY PLAN'])) rows += countRows(Plan);
        }
        throw ROLLBACK;
      }),
    );
  }
  expect(rows).toBeGreaterThan(0);
  return rows;
}

describe('the cost of a row in a large inbox', () => {
  const COUNT = 4000;
  /** At one row for each pair of keys it would be millions. */
  const MOST = 100 * COUNT;

  it('stays the same when the row is taken beside a run with the same keys', async () => {
    await addMany(COUNT);
    await takeRun();
    await addMany(COUNT);
    await world.sql`INSERT INTO slotsync.changes (stream, local_key) SELECT 'courses', local_key FROM slotsync.changes`;
    expect(await rowsLookedAt((tx) => addDueChecks(tx, STREAMS))).toBeLessThan(MOST);
    expect(await rowsLookedAt((tx) => takeChanges(tx, STREAMS))).toBeLessThan(MOST);
  });

  it('stays the same when the run of the row is cancelled', async () => {
    await world.sql`ANALYZE slotsync.batches`;
    await addMany(COUNT);
    const { runId } = await takeRun();
    await world.sql`
      INSERT INTO slotsync.batches (run_id, stream, level, keys, state)
      SELECT ${runId}::int, 'rooms', 0, array_agg(local_key), CASE WHEN id % 4 = 0 THEN 'planned' ELSE 'done' END
      FROM slotsync.changes GROUP BY id % 4`;
    expect(await rowsLookedAt((tx) => cancelRun(tx, runId))).toBeLessThan(MOST);
    await cancelRun(world.state.db, runId);
    const [left] =
      await world.sql`SELECT count(*)::int AS count, count(run_id)::int AS taken FROM slotsync.changes`;
    expect(left).toEqual({ count: COUNT / 4, taken: 0 });
  });
});

it('a change whose key is in flight is checked once, and taken when its run has ended', async () => {
  await addMany(3000);
  const { runId } = await takeRun();
  await addMany(3000);
  await takeAll();
  expect(await take()).toEqual({ isWorkWaiting: false, taken: 'nothing' });
  await failRun(world.state.db, runId, { code: 'x', message: 'y' });
  const { isWorkWaiting, taken } = await take();
  expect(isWorkWaiting).toBe(true);
  expect(taken).toMatchObject({ lane: 'sync' });
});

it('many changed keys make one run in the lane of a sync, in batches of a sync', async () => {
  await world.sql`INSERT INTO rooms (code, name) SELECT 'R' || i, 'Room' FROM generate_series(1, 2500) AS i`;
  await addMany(2500);
  const { runId, lane } = await takeRun();
  expect(lane).toBe('sync');
  await world.planRun(runId);
  const batches = await world.sql`SELECT cardinality(keys) AS keys FROM slotsync.batches ORDER BY id`;
  expect(batches.map(({ keys }) => Number(keys))).toEqual([1000, 1000, 500]);
});

describe('a single change beside very many changes', () => {
  it('is taken while runs over the many changes are under way', async () => {
    await addMany(50_000);
    expect((await takeAll()).map(({ lane }) => lane)).toEqual(Array.from({ length: 5 }, () => 'sync'));
    await addChanges(world.state.db, 'courses', ['C']);
    expect(await takeRun()).toMatchObject({ lane: 'incremental', keys: { courses: ['C'] } });
  });

  it('is taken before the rest of the many changes', async () => {
    await addMany(20_000);
    await addChanges(world.state.db, 'courses', ['C']);
    expect(await takeRun()).toMatchObject({ lane: 'sync', isFull: true });
    const { lane, keys } = await takeRun('newest');
    expect(lane).toBe('incremental');
    expect(keys).toMatchObject({ courses: ['C'] });
    expect(keys['rooms']).toHaveLength(99);
  });
});
