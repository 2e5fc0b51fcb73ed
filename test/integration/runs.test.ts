// Guarantees 10, 11
// The report of a run with failures, and the work that it still completes.
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createMirror } from '../../src/mirror/mirror.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { claimRecords } from '../../src/state/records/claims.js';
import type { Outcome } from '../../src/state/records/outcome-types.js';
import { insertBatches, readBatch, type Batch } from '../../src/state/runs/batches.js';
import { cancelRun, finishRun } from '../../src/state/runs/end-run.js';
import { failBatch, settleBatch } from '../../src/state/runs/finish-batch.js';
import { findPausableRun, readRun } from '../../src/state/runs/read-runs.js';
import { startReading } from '../../src/state/runs/reconcile-and-verify-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { planRun } from '../../src/sync/plan/plan-run.js';
import {
  addRooms,
  codes,
  expectInSync,
  expectNothingToSend,
  keepRoomWorlds,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import { findFreePort } from '../support/free-port.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

describe('a run', () => {
  it('ends before the first write if the service does not know a type or field', async () => {
    const config = rooms({ type: 'rom', fields: { 'room.nam': 'name', 'room.seats': 'seats' } });
    const schema = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }, { extId: 'room.seats' }] };
    const world = await open(config, { sandbox: { schema } });
    await addRooms(world, 'A');
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'failed', errorCode: 'configuration' });
    expect(run.errorMessage).toMatch(/type 'rom' \(streams\.rooms\); did you mean 'room'\?/);
    expect(run.errorMessage).toMatch(/field 'room\.nam' \(streams\.rooms\); did you mean 'room\.name'\?/);
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toEqual({});

    world.configure(rooms());
    await world.sync();
    await expectInSync(world);
  });

  it.each(['reconcile', 'verify'] as const)('cannot be paused if it only reads (%s)', async (kind) => {
    const { db } = (await open(rooms())).state;
    const id = await startReading(db, { kind, lane: 'verify', streams: [], startedBy: 'command' });
    await expect(findPausableRun(db, id)).rejects.toThrow(
      `run ${id} cannot be paused, because a ${kind} only reads`,
    );
  });

  it('fails only the stream of a broken source', async () => {
    const world = await open(roomsAndCourses({ from: 'lectures', references: {} }));
    await addRooms(world, 'A');
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'partial',
      errorCode: 'mirror_source',
      counts: { rooms: { synced: 1 } },
    });
    expect(run.errorMessage).toMatch(/^courses: .*lectures/);
    await expectInSync(world);
  });

  it('ends with the reason of a withdrawn key, and its records are sent by the next run', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'Aula');
    const { runId, queue } = await world.plan();
    // With a fresh key too, and whatever is asked.
    world.sandbox.failNext({ path: '/find', fault: 'status', status: 403, times: 3 });
    const { run } = await world.finish(runId, queue);
    expect(run).toMatchObject({ status: 'failed', errorCode: 'unauthorized' });
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'failed', error_code: 'unauthorized' },
    });
    await world.sync();
    await expectInSync(world);
  });

  it('keeps its attempts while the authentication answers 400', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    await world.sync();
    await rename(world, 'A', 'Aula');
    const { runId, queue } = await world.plan();
    world.sandbox.revokeTokens();
    const body = { message: 'unknown region' };
    world.sandbox.failNext({ path: '/authenticate', fault: 'status', status: 400, body });
    await world.finish(runId, queue);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'failed', error_code: 'unauthorized' },
      B: { status: 'synced' },
    });
    await world.sync();
    await expectInSync(world);
  });

  it('goes on past a batch that is out of attempts', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    await addRooms(world, 'A', 'B', 'C', 'D');
    const { runId, queue } = await world.plan();
    const [one = 0, ...rest] = queue;
    const batch = await readBatch(world.state.db, one);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'answered 500' });
    const { run } = await world.finish(runId, rest);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, failed: 2 } } });
    await world.sync();
    await expectInSync(world);
  });

  it('ends with every object as its row says, after failures of every kind', async () => {
    const schedule = fc.record({
      status500: fc.double({ min: 0, max: 0.15, noNaN: true }),
      reset: fc.double({ min: 0, max: 0.15, noNaN: true }),
      loseAnswer: fc.double({ min: 0, max: 0.15, noNaN: true }),
      brokenJson: fc.double({ min: 0, max: 0.15, noNaN: true }),
    });
    const world = await open(
      rooms({ batchSize: 4, retire: 'deactivate', limits: { retire: { count: 100 } } }),
    );
    await fc.assert(
      fc.asyncProperty(
        schedule,
        fc.array(fc.array(fc.nat({ max: 14 }), { maxLength: 8 }), { maxLength: 4 }),
        async (faults, edits) => {
          await world.sql`DELETE FROM rooms`;
          await addRooms(world, ...codes(15));
          world.sandbox.setFaults(faults);
          for (const [step, touched] of edits.entries()) {
            await world.sync();
            for (const at of touched) {
              const code = codes(15)[at] ?? '';
              if (at % 5 === 4) await world.sql`DELETE FROM rooms WHERE code = ${code}`;
              else await rename(world, code, `step ${step}`);
            }
          }
          world.sandbox.setFaults({});
          await world.sync();
          await world.sync();
          const rows = await world.sql<
            { code: string; name: string }[]
          >`SELECT code, name FROM rooms ORDER BY code`;
          const there = world.sandbox
            .objects()
            .filter(({ active }) => active)
            .map(({ extId, fields }) => ({ code: extId.slice('room_'.length), name: fields[0]?.values[0] }));
          expect(there.toSorted((a, b) => (a.code < b.code ? -1 : 1))).toEqual(
            rows.map((row) => ({ ...row })),
          );
          await expectNothingToSend(world);
        },
      ),
      { numRuns: 8 },
    );
  });
});

/** Courses whose view raises an error with this SQLSTATE for every row, as long as `trouble` has a row. */
async function openTroubled(sqlstate: string): Promise<World> {
  const world = await open(roomsAndCourses({ from: 'offered', references: {} }));
  await addRooms(world, 'A');
  await world.sql`INSERT INTO courses VALUES ('c1', 'One'), ('c2', 'Two')`;
  await world.sql`CREATE TABLE trouble AS SELECT 1 AS is_there`;
  await world.sql.unsafe(`
    CREATE FUNCTION checked(name text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM trouble) THEN RAISE EXCEPTION 'no' USING ERRCODE = '${sqlstate}'; END IF;
      RETURN name; END $$;
    CREATE VIEW offered AS SELECT code, checked(name) AS name FROM courses`);
  return world;
}
const calm = ({ sql }: World) => sql`DELETE FROM trouble`;

describe('a stream whose source raises an error', () => {
  it.each([
    ['an error of its own (P0001)', 'P0001', 'mirror_raised'],
    ['a division by zero', '22012', 'mirror_source'],
    ['a subquery that returns several rows', '21000', 'mirror_raised'],
    ['a statement timeout', '57014', 'mirror_timeout'],
  ])('fails alone at once with %s', async (_, sqlstate, code) => {
    const world = await openTroubled(sqlstate);
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'partial', errorCode: code, counts: { rooms: { synced: 1 } } });
    expect(run.errorMessage).toMatch(/^courses: /);
    await expectInSync(world);
    await calm(world);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced', c2: 'synced' });
  });

  it.each([
    ['a conflict on a standby', '40001'],
    ['a server without memory', '53200'],
  ])('fails alone after three attempts with %s', async (_, sqlstate) => {
    const world = await openTroubled(sqlstate);
    const { run, errors } = await world.sync();
    expect(errors).toMatchObject([{ code: 'mirror_failed' }, { code: 'mirror_failed' }]);
    expect(run).toMatchObject({ status: 'partial', errorCode: 'mirror_failed' });
    await expectInSync(world);
  });

  it('fails alone at once when its reading takes longer than its time', async () => {
    const world = await open(roomsAndCourses({ from: 'offered', references: {} }), { statementSeconds: 2 });
    await addRooms(world, 'A');
    await world.sql`CREATE VIEW offered AS SELECT code, name FROM courses, pg_sleep(600)`;
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'partial', errorCode: 'mirror_timeout' });
    expect(run.errorMessage).toMatch(/^courses: the mirror did not answer in time/);
    await expectInSync(world);
  });

  it('is tried again, and is sent when the error has passed', async () => {
    const world = await openTroubled('40001');
    const runId = await world.startRun();
    await expect(world.planRun(runId)).rejects.toMatchObject({ code: 'mirror_failed' });
    await calm(world);
    const { queue } = await world.planRun(runId, 1);
    expect((await world.finish(runId, queue)).run.status).toBe('succeeded');
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced', c2: 'synced' });
  });

  it('fails alone in an incremental run, and its keys come back later', async () => {
    const world = await openTroubled('P0001');
    await addChanges(world.state.db, 'rooms', ['A']);
    await addChanges(world.state.db, 'courses', ['c1']);
    const taken = await takeChanges(world.state.db, ['rooms', 'courses']);
    if (typeof taken === 'string') throw new Error(taken);
    const { run } = await world.finish(taken.runId, (await world.planRun(taken.runId)).queue);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1 } } });
    const waiting =
      await world.sql`SELECT stream, local_key, not_before > now() AS later FROM slotsync.changes`;
    expect([...waiting]).toEqual([{ stream: 'courses', local_key: 'c1', later: true }]);
  });

  it('does not fail while the mirror cannot be reached, for which the whole plan waits', async () => {
    const world = await open(roomsAndCourses());
    const mirror = createMirror({ url: `postgres://nobody@127.0.0.1:${await findFreePort()}/nowhere` });
    const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: ['rooms'] } as const;
    const { run } = await startRun(world.state.db, request);
    try {
      const planned = planRun({ ...world.deps(), mirror }, run.id, { attemptsMade: 8 });
      await expect(planned).rejects.toMatchObject({ code: 'mirror_unreachable' });
      expect(await readRun(world.state.db, run.id)).toMatchObject({ status: 'planning', errorCode: null });
    } finally {
      await mirror.close();
    }
  });
});

it('a run sends nothing of a stream whose reading ends with a repeated key', async () => {
  const world = await open(roomsAndCourses({ batchSize: 2, references: {} }));
  await addRooms(world, 'A');
  await world.sql`ALTER TABLE courses DROP CONSTRAINT courses_pkey`;
  // So many that hundreds of batches are rows before the last key is read.
  await world.sql`INSERT INTO courses SELECT lpad(i::text, 5, '0'), 'Course' FROM generate_series(1, 1400) AS i`;
  await world.sql`INSERT INTO courses VALUES ('01400', 'again')`;
  const { run } = await world.sync();
  expect(run).toMatchObject({
    status: 'partial',
    errorCode: 'key_not_unique',
    counts: { rooms: { synced: 1 } },
  });
  expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A']);
  expect(await world.recordsOf('courses')).toEqual({});
});

it('a run is started once by eight simultaneous requests over one stream', async () => {
  const world = await open(rooms());
  const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: ['rooms'] } as const;
  const started = await Promise.all(Array.from({ length: 8 }, () => startRun(world.state.db, request)));
  expect(started.filter((one) => one.started)).toHaveLength(1);
  expect(new Set(started.map(({ run }) => run.id)).size).toBe(1);
  expect(await world.sql`SELECT FROM slotsync.runs`).toHaveLength(1);
});

it('a run started before another run is committed waits, and joins that run', async () => {
  const world = await open(rooms());
  const request = { kind: 'sync', lane: 'sync', startedBy: 'command', streams: ['rooms'] } as const;
  const [first, second] = await world.state.db.transaction(async (tx) => {
    const started = await startRun(tx, request);
    const other = startRun(world.state.db, request);
    const isWaiting = async () => {
      const waiting = await world.sql`
        SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
      return waiting.length > 0;
    };
    await Promise.race([other, until(isWaiting, { describe: 'the other to wait' })]);
    return [started, { other }] as const;
  });
  expect(await second.other).toMatchObject({ started: false, run: { id: first.run.id } });
});

describe('the end of a run', () => {
  async function planned(): Promise<{ world: World; runId: number; queue: number[] }> {
    const world = await open(rooms({ batchSize: 2 }));
    await addRooms(world, 'A', 'B', 'C', 'D');
    return { world, ...(await world.plan()) };
  }

  it('is not a success when a batch is lost', async () => {
    const { world, runId, queue } = await planned();
    const [one = 0, two = 0] = queue;
    await world.sql`DELETE FROM slotsync.batches WHERE id = ${two}`;
    const { run } = await world.finish(runId, [one]);
    expect(run).toMatchObject({
      status: 'partial',
      errorCode: 'outcomes_missing',
      errorMessage: 'rooms: 4 records planned, 2 in ended batches, 2 with an outcome',
    });
    await world.sync();
    await expectInSync(world);
  });

  it('is not a success when a batch that ended lost an outcome', async () => {
    const { world, runId, queue } = await planned();
    const [one = 0, two = 0] = queue;
    await world.apply(one);
    await world.sql`UPDATE slotsync.batches SET counts = '{"synced": 1}' WHERE id = ${one}`;
    const { run } = await world.finish(runId, [two]);
    expect(run).toMatchObject({ status: 'partial', errorCode: 'outcomes_missing' });
    expect(run.errorMessage).toContain('4 in ended batches, 3 with an outcome');
  });

  it('is not a success when a batch never ended', async () => {
    const { world, runId, queue } = await planned();
    const [one = 0] = queue;
    await world.apply(one);
    await finishRun(world.state.db, runId);
    expect(await readRun(world.state.db, runId)).toMatchObject({
      status: 'partial',
      errorCode: 'outcomes_missing',
      errorMessage: 'rooms: 4 records planned, 2 in ended batches, 2 with an outcome',
    });
  });

  it('is not a success when a batch was planned twice', async () => {
    const { world, runId, queue } = await planned();
    await insertBatches(world.state.db, [{ runId, stream: 'rooms', level: 0, keys: ['A'], state: 'queued' }]);
    const [last] = await world.sql<{ id: number }[]>`SELECT max(id)::int AS id FROM slotsync.batches`;
    const { run } = await world.finish(runId, [...queue, last?.id ?? 0]);
    expect(run).toMatchObject({ status: 'partial', errorCode: 'outcomes_missing' });
  });

  it('returns the keys of an incremental run that lost a batch', async () => {
    const world = await open(rooms({ batchSize: 1 }));
    await addRooms(world, 'A', 'B');
    await addChanges(world.state.db, 'rooms', ['A', 'B']);
    const taken = await takeChanges(world.state.db, ['rooms']);
    if (typeof taken === 'string') throw new Error(taken);
    const [one = 0, two = 0] = (await world.planRun(taken.runId)).queue;
    await world.sql`DELETE FROM slotsync.batches WHERE id = ${two}`;
    const { run } = await world.finish(taken.runId, [one]);
    expect(run.status).toBe('partial');
    expect(await world.sql`SELECT FROM slotsync.changes WHERE run_id IS NULL`).toHaveLength(2);
  });
});

describe('a batch that was read before another process settled a part of it', () => {
  const outcome = (localKey: string): Outcome => ({
    localKey,
    outcome: 'synced',
    externalId: `room_${localKey}`,
    sourceHash: '1',
    objectHash: 'x',
  });
  async function settle(world: World, batch: Batch, token: string, ...keys: string[]): Promise<string[]> {
    const claim = { token, stream: 'rooms', seconds: 60, lateSeconds: 60 };
    const externalIds = new Map(keys.map((key) => [key, `room_${key}`]));
    const { binding } = world.destination;
    await claimRecords(world.state.db, { ...claim, keys, runId: batch.runId, externalIds, binding });
    const settled = { token, outcomes: keys.map(outcome), isReferredTo: false };
    return (await settleBatch(world.state, batch, settled)).open;
  }
  async function halfSettled(): Promise<{ world: World; stale: Batch }> {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
    const { queue } = await world.plan();
    const stale = await readBatch(world.state.db, queue[0] ?? 0);
    if (!stale) throw new Error('no batch');
    expect(await settle(world, stale, 'one', 'A')).toEqual(['B', 'C']);
    return { world, stale };
  }

  it('counts no record twice', async () => {
    const { world, stale } = await halfSettled();
    expect(await settle(world, stale, 'two', 'A', 'B')).toEqual(['C']);
    expect(await settle(world, stale, 'three', 'A', 'B', 'C')).toEqual([]);
    expect(await settle(world, stale, 'four', 'A')).toEqual([]);
    await world.advance(stale.runId);
    expect(await readRun(world.state.db, stale.runId)).toMatchObject({
      status: 'succeeded',
      counts: { rooms: { synced: 3, unchanged: 0 } },
    });
  });

  it('fails without the settled records', async () => {
    const { world, stale } = await halfSettled();
    expect(await failBatch(world.state, stale, { code: 'service_failed', message: 'answered 500' })).toBe(2);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'failed', C: 'failed' });
    await world.advance(stale.runId);
    expect(await readRun(world.state.db, stale.runId)).toMatchObject({
      status: 'partial',
      errorCode: 'service_failed',
      counts: { rooms: { synced: 1, failed: 2 } },
    });
  });
});

it('a batch that is cancelled while it is sent leaves no claim behind', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A');
  const { runId, queue } = await world.plan();
  world.sandbox.closeGate({ method: 'PUT' });
  const stopping = new AbortController();
  const applying = world.apply(queue[0] ?? 0, stopping.signal);
  await until(() => world.sandbox.gate().held, { describe: 'the request' });
  await cancelRun(world.state.db, runId);
  stopping.abort(new Error('stopping'));
  await applying;
  world.sandbox.openGate();
  expect((await world.recordsOf('rooms'))['A']).toMatchObject({ claimed_by: null, in_doubt: true });
});

it('a batch out of attempts ends even if one of its records cannot be written', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A', 'B');
  const long = randomBytes(3600).toString('base64');
  const { runId, queue } = await world.planBatches('rooms', [['A', long, 'B']]);
  const { run, errors } = await world.finish(runId, queue);
  expect(errors).toMatchObject([{ code: 'state_failed' }, {}, {}, {}]);
  expect(run).toMatchObject({ status: 'failed', counts: { rooms: { failed: 3 } } });
  expect(await world.statusesOf('rooms')).toEqual({ A: 'failed', B: 'failed' });
  await world.sync();
  await expectInSync(world);
});
