// Guarantees 3, 6
// Two processes plan one run, because the queue lost everything, or because the first process was frozen. The newer planner
// wins, the other changes nothing, and every stream is sent. A plan reads mirror and state at different moments.
import { describe, expect, it } from 'vitest';
import { failPlanning } from '../../src/state/runs/end-run.js';
import { asPlanner, PlannerReplaced, takePlanning } from '../../src/state/runs/claim-planning.js';
import { listQueuedBatches } from '../../src/state/runs/batches.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import { COURSES, ROOMS } from '../support/campus.js';
import { createDeferred, until } from '../support/wait.js';
import { codes, keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const SIZE = 200;
/** More rows than a stream leaves for the end of the plan. */
const ROWS = 6 * SIZE;
const CONFIG: SlotsyncConfig = {
  streams: {
    rooms: { ...ROOMS, batchSize: SIZE },
    courses: { ...COURSES, batchSize: SIZE, references: {} },
  },
};

async function openFilled(): Promise<RoomWorld> {
  const world = await open(CONFIG);
  await world.sql`INSERT INTO rooms (code, name) SELECT 'r' || i, 'Room' FROM generate_series(1, ${ROWS}) AS i`;
  await world.sql`INSERT INTO courses (code, name) SELECT 'c' || i, 'Course' FROM generate_series(1, ${ROWS}) AS i`;
  return world;
}

/** Returns a mirror whose reading of one stream stops after `afterRows` until `continue` is called. */
function holdReading(mirror: Mirror, stream: string, afterRows: number) {
  const [reached, goOn] = [createDeferred(), createDeferred()];
  const readHashes: Mirror['readHashes'] = async function* (read, selection) {
    let rows = 0;
    for await (const block of mirror.readHashes(read, selection)) {
      const first = read.name === stream ? block.slice(0, Math.max(0, afterRows - rows)) : block;
      yield first;
      rows += first.length;
      if (first.length === block.length) continue;
      reached.resolve();
      await goOn.promise;
      yield block.slice(first.length);
    }
  };
  return { mirror: { ...mirror, readHashes }, reached: reached.promise, goOn: goOn.resolve };
}

/** Starts a planner that stops in the middle of a stream. The batches of earlier streams are rows already. */
async function planUntilHeld(world: RoomWorld, runId: number, stream: string) {
  // Readings of one process take turns; this is another one.
  const own = createMirror({ url: world.url });
  const { mirror, reached, goOn } = holdReading(own, stream, ROWS / 2);
  const planned = planRun({ ...world.deps(), mirror }, runId);
  await reached;
  return {
    async wake(): Promise<void> {
      goOn();
      await planned;
      await own.close();
    },
  };
}

const countBatches = async ({ sql }: RoomWorld, stream: string): Promise<number> => {
  const [row] = await sql<{ count: number }[]>`
    SELECT count(*)::int AS count FROM slotsync.batches WHERE stream = ${stream}`;
  return row?.count ?? 0;
};

/** Expects every row of both streams in exactly one batch of the run. */
async function expectEachKeyOnce({ sql }: RoomWorld, runId: number): Promise<void> {
  const rows = await sql`
    SELECT stream, count(*)::int AS keys, count(DISTINCT key)::int AS distinct
    FROM slotsync.batches, unnest(keys) AS key WHERE run_id = ${runId} GROUP BY stream ORDER BY stream`;
  expect([...rows]).toEqual(['courses', 'rooms'].map((stream) => ({ stream, keys: ROWS, distinct: ROWS })));
}

async function expectEveryStreamSent(world: RoomWorld, runId: number): Promise<void> {
  const queue = (await listQueuedBatches(world.state.db, runId)).map(({ id }) => id);
  const { run, errors } = await world.finish(runId, queue);
  expect(errors).toEqual([]);
  expect(run).toMatchObject({
    status: 'succeeded',
    counts: { rooms: { synced: ROWS, unchanged: 0 }, courses: { synced: ROWS, unchanged: 0 } },
  });
  expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
  expect(await world.sql`SELECT DISTINCT state FROM slotsync.batches`).toEqual([{ state: 'done' }]);
}

describe('two planners of one run', () => {
  it('leave only the effect of the second when the first sleeps between two writes', async () => {
    const world = await openFilled();
    const runId = await world.startRun();
    const first = await planUntilHeld(world, runId, 'courses');
    expect(await countBatches(world, 'rooms')).toBe(ROWS / SIZE);
    const second = await planUntilHeld(world, runId, 'rooms');
    await first.wake();
    expect(await world.sql`SELECT FROM slotsync.batches`).toHaveLength(0);
    expect((await readRun(world.state.db, runId))?.status).toBe('planning');

    await second.wake();
    await world.advance(runId);
    await expectEachKeyOnce(world, runId);
    await expectEveryStreamSent(world, runId);
    expect(world.lines.join('')).toContain('planning ended: another process plans this run');
  });

  it('leave the first without effect when it wakes, and meets an error, after the second has finished', async () => {
    const world = await openFilled();
    const runId = await world.startRun();
    await world.sql`ALTER TABLE courses DROP CONSTRAINT courses_pkey`;
    await world.sql`INSERT INTO courses SELECT * FROM courses WHERE code = 'c1'`;
    const first = await planUntilHeld(world, runId, 'courses');
    await world.sql`DELETE FROM courses WHERE ctid = (SELECT max(ctid) FROM courses WHERE code = 'c1')`;
    const { queue } = await world.planRun(runId);
    const [one = 0, ...rest] = queue;
    await world.apply(one);
    await first.wake();
    expect(await readRun(world.state.db, runId)).toMatchObject({ status: 'running', errorCode: null });
    await expectEachKeyOnce(world, runId);
    expect(await listQueuedBatches(world.state.db, runId)).toHaveLength(rest.length);
    await expectEveryStreamSent(world, runId);
  });

  it('let only the planner that replaced the other give the run up', async () => {
    const world = await open(CONFIG);
    const runId = await world.startRun();
    const { db } = world.state;
    const planner = (token: string) => ({ runId, token });
    const reason = { code: 'mirror_failed', message: 'no' };
    expect(await takePlanning(db, planner('first'))).toBe(true);
    expect(await takePlanning(db, planner('second'))).toBe(true);
    await failPlanning(db, planner('first'), reason);
    expect(await readRun(db, runId)).toMatchObject({ status: 'planning', errorCode: null });
    await failPlanning(db, planner('second'), reason);
    expect(await readRun(db, runId)).toMatchObject({ status: 'failed', errorCode: 'mirror_failed' });
    expect(await takePlanning(db, planner('first'))).toBe(false);
  });

  it('wait for a write under way at a takeover, after which the first cannot write', async () => {
    const world = await open(CONFIG);
    const runId = await world.startRun();
    const { db } = world.state;
    await takePlanning(db, { runId, token: 'first' });
    const [writing, goOn] = [createDeferred(), createDeferred()];
    const write = asPlanner(db, { runId, token: 'first' }, async (tx) => {
      writing.resolve();
      await goOn.promise;
      // A process that is frozen here is cut off, so that the other need not wait for it.
      expect(await tx.execute('SHOW idle_in_transaction_session_timeout')).toEqual([
        { idle_in_transaction_session_timeout: '30s' },
      ]);
      await tx.execute(
        `INSERT INTO slotsync.batches (run_id, stream, level, keys, state) VALUES (${runId}, 'rooms', 0, '{a}', 'planned')`,
      );
    });
    await writing.promise;
    const takeover = takePlanning(db, { runId, token: 'second' });
    goOn.resolve();
    await write;
    expect(await takeover).toBe(true);
    expect(await countBatches(world, 'rooms')).toBe(0);
    await expect(asPlanner(db, { runId, token: 'first' }, () => Promise.resolve())).rejects.toThrow(
      PlannerReplaced,
    );
  });
});

it('a key created while a plan reads the mirror is neither retired, deleted nor counted', async () => {
  const limits = { retire: { count: 0, percent: 0 } };
  const world = await open(rooms({ retire: 'deactivate', limits }), { synced: codes(5) });
  const { sql } = world;
  // The reading of the mirror has its snapshot and waits; readings by key do not.
  await sql`ALTER TABLE rooms RENAME TO source`;
  await sql.unsafe(`
    CREATE FUNCTION hold() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
      IF current_query() LIKE 'COPY%' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
      RETURN true;
    END $$;
    CREATE VIEW rooms AS SELECT * FROM source WHERE hold()`);
  const { runId, queue } = await world.planBatches('rooms', [['new', 'bad']]);
  await sql`UPDATE slotsync.runs SET kind = 'incremental' WHERE id = ${runId}`;
  world.refuse('room_bad');

  const holder = await sql.reserve();
  await holder`SELECT pg_advisory_lock(7)`;
  const syncing = world.plan();
  await until(
    async () => (await sql`SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).length > 0,
    { describe: 'the mirror is being read' },
  );
  await sql`INSERT INTO source (code, name) VALUES ('new', 'Room new'), ('bad', 'Room bad')`;
  await world.finish(runId, queue);
  expect(await world.statusesOf('rooms')).toMatchObject({ new: 'synced', bad: 'dead' });
  await holder`SELECT pg_advisory_unlock(7)`;
  holder.release();

  const planned = await syncing;
  const { run } = await world.finish(planned.runId, planned.queue);
  expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 0, unchanged: 5 } }, holds: {} });
  expect(await world.statusesOf('rooms')).toMatchObject({ new: 'synced', bad: 'dead' });
  expect(world.sandbox.object('room_new')).toMatchObject({ active: true });
});
