// Guarantee 10
// External ids that rows share, in any number, or that change: each such row is refused with its reason, and a plan and a check of
// rows foresee it.
import { describe, expect, it } from 'vitest';
import { readBatch } from '../../src/state/runs/batches.js';
import { checkRows } from '../../src/sync/operator/check-rows.js';
import type { PlanSink } from '../../src/sync/plan/planned-batches.js';
import { planStream } from '../../src/sync/plan/plan-stream.js';
import { explainRefusal } from '../../src/sync/plan/plan-lists.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { COURSES, keepRooms, ROOMS, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const byNumber = rooms({ externalId: 'room_{number}' });
const MANY = 60_000;

/** Collects what a plan does. Refusals come in portions. */
function watch() {
  const refused: { key: string; message: string }[][] = [];
  const planned: string[] = [];
  const sink: PlanSink = {
    addBatch: async (_kind, entries) => void planned.push(...entries.map(({ key }) => key)),
    refuse: async (rows) => void refused.push([...rows]),
  };
  return { sink, refused, planned };
}
const WHOLE = { kind: 'sync', range: null, room: { records: Infinity }, context: { lane: 'sync' } } as const;

it('an external id of 60 000 rows is counted, named with six keys, and its rows are refused in portions', async () => {
  const world = await open(byNumber);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', '1' FROM generate_series(1, ${MANY}) AS i`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room', '2')`;
  const [shared, ...others] = await world.mirror.findSharedExternalIds(world.stream('rooms'));
  expect(others).toEqual([]);
  expect(shared).toEqual({
    externalId: 'room_1',
    count: MANY,
    keys: ['r1', 'r10', 'r100', 'r1000', 'r10000', 'r10001'],
  });
  const { sink, refused, planned } = watch();
  await planStream(world.deps(), world.stream('rooms'), WHOLE, sink);
  expect(planned).toEqual(['A']);
  expect(refused).toHaveLength(MANY / 1000);
  expect(Math.max(...refused.map(({ length }) => length))).toBe(1000);
  const messages = new Map(refused.flat().map(({ key, message }) => [key, message]));
  expect(messages.size).toBe(MANY);
  expect(messages.get('r10')).toBe(
    "external id 'room_1' is also that of r1, r100, r1000, r10000, r10001 and 59994 more rows",
  );
  expect(Math.max(...[...messages.values()].map(({ length }) => length))).toBeLessThan(120);
});

it('rows with an empty code have no external id and a reason each, and all other rows are sent', async () => {
  const world = await open(byNumber);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', '' FROM generate_series(1, ${MANY}) AS i`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room', '2')`;
  const { sink, refused, planned } = watch();
  await planStream(world.deps(), world.stream('rooms'), WHOLE, sink);
  expect(refused).toEqual([]);
  expect(planned).toHaveLength(MANY + 1);

  await world.sql`DELETE FROM rooms WHERE code > 'r3'`;
  await world.sql`DELETE FROM rooms WHERE code NOT IN ('A', 'r1', 'r2')`;
  expect((await world.sync()).run).toMatchObject({ counts: { rooms: { synced: 1, dead: 2, failed: 0 } } });
  const dead = {
    status: 'dead',
    error_code: 'mapping_failed',
    error_message: 'rooms.externalId: column number of the external id is empty',
  };
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced' }, r1: dead, r2: dead });
});

it('a run refuses rows that share an external id with a batch for each portion', async () => {
  const world = await open(byNumber);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', (i % 2)::text FROM generate_series(1, 2500) AS i`;
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 2500, synced: 0 } } });
  expect(await world.sql`SELECT cardinality(keys) AS keys FROM slotsync.batches ORDER BY id`).toEqual(
    [1000, 1000, 500].map((keys) => ({ keys })),
  );
  expect(await world.statusesOf('rooms')).toMatchObject({ r1: 'failed', r2500: 'failed' });
});

it('the message of a row that shares an external id names up to five other rows', () => {
  const row = { operation: 'refuse', hash: '1', sharedId: 0, isSettled: false, decision: 'create' } as const;
  const rows: [count: number, keys: string, key: string, others: string][] = [
    [2, 'ab', 'a', 'b'],
    [2, 'ab', 'b', 'a'],
    [7, 'abcdef', 'a', 'b, c, d, e, f and 1 more row'],
    [6, 'abcdef', 'c', 'a, b, d, e, f'],
    [60_000, 'abcdef', 'z', 'a, b, c, d, e and 59994 more rows'],
  ];
  for (const [count, keys, key, others] of rows) {
    const { message } = explainRefusal({ ...row, key }, [{ externalId: 'x', count, keys: keys.split('') }]);
    expect(message).toBe(`external id 'x' is also that of ${others}`);
  }
});

it('rows that share an external id are refused in the part of a run, if they would be sent', async () => {
  const world = await open(byNumber);
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '2')`;
  await world.sync();
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('C', 'c', '1'), ('D', 'd', '2')`;
  const { sink, refused, planned } = watch();
  const range = { where: "number = '1'" };
  await planStream(world.deps(), world.stream('rooms'), { ...WHOLE, kind: 'backfill', range }, sink);
  expect(planned).toEqual([]);
  expect(refused.flat().map(({ key }) => key)).toEqual(['C']);
  // A run over the whole stream reports what was accepted, too.
  const whole = watch();
  await planStream(world.deps(), world.stream('rooms'), WHOLE, whole.sink);
  expect(whole.refused.flat().map(({ key }) => key)).toEqual(['A', 'B', 'C', 'D']);
});

describe('an external id', () => {
  it('is sent for neither of two rows that share it, until the rows are corrected', async () => {
    const world = await open(byNumber);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '1'), ('C', 'c', '2')`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1, failed: 2 } } });
    expect([world.metered('rooms', 'synced'), world.metered('rooms', 'failed')]).toEqual([1, 2]);
    expect(world.ids()).toEqual(['room_2']);
    const both = { status: 'failed', error_code: 'external_id_shared' };
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { ...both, error_message: expect.stringMatching(/room_1.*B/) },
      B: { ...both, error_message: expect.stringMatching(/room_1.*A/) },
    });
    await world.sql`UPDATE rooms SET number = '3' WHERE code = 'B'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect(world.ids()).toEqual(['room_2', 'room_1', 'room_3']);
  });

  it('belongs to the first of two streams that share it, and the other record names its owner', async () => {
    const { streams } = roomsAndCourses();
    const world = await open({ streams: { ...streams, courses: { ...COURSES, externalId: 'room_{code}' } } });
    await world.addRooms('A');
    await world.sql`INSERT INTO courses VALUES ('A', 'One', 'A'), ('B', 'Two', 'A')`;
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      A: { error_code: 'external_id_shared', error_message: expect.stringContaining("rooms 'A'") },
      B: { status: 'synced' },
    });
    expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'room' });
  });

  it.each([
    ['its key', 'room_{code}'],
    ['another column', 'room_{number}'],
  ])('is sent for only one of two streams that create it at once, from %s', async (_, externalId) => {
    const world = await open({
      streams: { rooms: { ...ROOMS, externalId }, halls: { ...ROOMS, externalId } },
    });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    const { queue, runId } = await world.plan();
    expect(queue).toHaveLength(2);
    world.sandbox.setLatency(100);
    await Promise.allSettled(queue.map((id) => world.apply(id)));
    // The first leaves the object to the other, and finds out when it is sent.
    const batches = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    const left = batches.flatMap((batch) => (batch?.state === 'queued' ? [batch.id] : []));
    await world.finish(runId, left);
    expect(world.writes().length).toBeLessThanOrEqual(1);
    const others = await world.sql`SELECT status, error_code FROM slotsync.records WHERE status <> 'synced'`;
    expect(others.length).toBeGreaterThanOrEqual(1);
    for (const other of others) expect(other).toEqual({ status: 'failed', error_code: 'external_id_shared' });
  });
});

/** Opens four rooms, `k1` with the number 1 and so on, and two labs whose template may make the ids of rooms. */
async function openSynced(): Promise<RoomWorld> {
  const numbered = { ...ROOMS, externalId: 'room_{number}', fields: { 'room.name': 'name' } };
  const world = await open({ streams: { rooms: numbered, labs: { ...numbered, from: 'labs' } } });
  await world.sql`CREATE TABLE labs (code text PRIMARY KEY, name text, number text)`;
  await world.sql`INSERT INTO rooms (code, name, number) SELECT 'k' || i, 'Room ' || i, i::text FROM generate_series(1, 4) AS i`;
  await world.sql`INSERT INTO labs VALUES ('l1', 'Lab 1', '11'), ('l2', 'Lab 2', '12')`;
  await world.sync();
  return world;
}
const faultsOf = async (world: RoomWorld, stream: string) =>
  (await checkRows(world.deps(), world.stream(stream))).faults;
const codesOf = async (world: RoomWorld, stream: string) =>
  Object.fromEntries(
    Object.entries(await world.recordsOf(stream)).map(([key, { error_code: code }]) => [key, code]),
  );

it('a plan foresees that a changed external id is refused', async () => {
  const world = await openSynced();
  await world.sql`UPDATE rooms SET number = '1x' WHERE code = 'k1'`;
  await world.sql`UPDATE rooms SET name = 'New name' WHERE code = 'k2'`;
  const message = "the service knows this record as 'room_1', but its row now has 'room_1x'";
  const planned = await world.preview();
  expect(planned).toMatchObject({ refused: 1, refusals: [{ key: 'k1', message }], handovers: [] });
  expect(planned.samples.map(({ key }) => key)).toEqual(['k2']);
  const listed: unknown[] = [];
  await previewStream(world.deps(), world.stream('rooms'), {
    each: async (some) => void listed.push(...some),
  });
  expect(listed).toMatchObject([
    { key: 'k1', problem: message },
    { key: 'k2', problem: undefined },
  ]);
  expect(await faultsOf(world, 'rooms')).toEqual([
    { reason: 'rooms.externalId: it is another one than the service accepted', count: 1, keys: ['k1'] },
  ]);
  await world.sync();
  expect(await codesOf(world, 'rooms')).toMatchObject({ k1: 'external_id_changed', k2: null });
});

it('a plan foresees the refusal of an external id that a row of another stream has', async () => {
  const world = await openSynced();
  await world.sql`INSERT INTO labs VALUES ('l3', 'Lab 3', '3'), ('l9', 'Lab 9', '99')`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k9', 'Room 9', '99')`;
  const [code, first] = ['external_id_shared', 'only the row that is sent first will be accepted'];
  expect((await world.preview('labs')).refusals).toEqual([
    { key: 'l3', code, message: "external id 'room_3' is also that of rooms 'k3'" },
    { key: 'l9', code, message: `external id 'room_99' is also that of rooms 'k9'; ${first}` },
  ]);
  expect((await world.preview()).refusals).toEqual([
    { key: 'k9', code, message: `external id 'room_99' is also that of labs 'l9'; ${first}` },
  ]);
  const shared = 'labs.externalId: a row of another stream has it, too';
  expect(await faultsOf(world, 'labs')).toEqual([{ reason: shared, count: 2, keys: ['l3', 'l9'] }]);
  await world.sync();
  expect(await codesOf(world, 'labs')).toMatchObject({ l3: 'external_id_shared' });
});

it('a plan foresees swapped codes as updates whose objects change hands', async () => {
  const world = await openSynced();
  await world.sql`UPDATE rooms SET number = (3 - number::int)::text WHERE code IN ('k1', 'k2')`;
  const planned = await world.preview();
  expect(planned).toMatchObject({ counts: { update: 2 }, refused: 0, handedOver: 2 });
  expect(planned.handovers).toMatchObject([
    { externalId: 'room_2', from: { localKey: 'k2' }, to: 'k1' },
    { externalId: 'room_1', from: { localKey: 'k1' }, to: 'k2' },
  ]);
  expect(await faultsOf(world, 'rooms')).toEqual([]);
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  expect(world.fieldsOf('room_2')?.['room.name']).toBe('Room 1');
});
