// `operations` of a stream: an operation that is left out is counted, and no run sends it.
import { beforeEach, describe, expect, it } from 'vitest';
import { codes, COURSES, keepRooms, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const UPDATES = rooms({ operations: ['update'] });
const CREATES = rooms({ operations: ['create'] });

/** Returns the plan of a run of rooms. */
const planOf = ({ run }: { run: { plan: Record<string, object> } }) => run.plan['rooms'];

describe('a stream without create', () => {
  let world: RoomWorld;
  beforeEach(async () => {
    world = await open(UPDATES);
    world.addObject('room_A', { 'room.name': 'by hand' });
    await world.addRooms('A', 'B', 'C');
  });

  it('updates existing objects, creates nothing, and its run succeeds', async () => {
    const preview = await world.preview();
    expect(preview.counts).toMatchObject({ create: 0, update: 1, left_out: 2 });
    const result = await world.sync();
    expect(planOf(result)).toMatchObject({ create: 0, update: 1, left_out: 2 });
    expect(result.run.status).toBe('succeeded');
    expect(world.nameOf('A')).toBe('Room A');
    expect(world.ids()).toEqual(['room_A']);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    await world.expectNothingToSend();
    expect(await world.explain('B')).toMatchObject({ leftOut: 'create' });
    expect((await world.explain('A')).leftOut).toBeUndefined();
    // A repair creates no missing object.
    world.sandbox.removeObject('room_A');
    await world.verify();
    expect(planOf(await world.repair())).toMatchObject({ repair: 0, left_out: 1 });
    expect(world.ids()).toEqual([]);
  });

  it('creates nothing by an incremental run, a forced backfill or a batch that lost its object', async () => {
    await world.sync();
    const changed = await world.planChanges('rooms', 'B');
    expect(changed.queue).toEqual([]);
    await world.backfill({ force: true });
    await world.rename('A', 'new');
    const { runId, queue } = await world.plan('rooms');
    world.sandbox.removeObject('room_A');
    const { run } = await world.finish(runId, queue);
    expect(run.status).toBe('succeeded');
    expect(world.ids()).toEqual([]);
    expect(await world.statusesOf('rooms')).toEqual({});
  });

  it('keeps no record that was not in sync before its operations were declared', async () => {
    world.configure(rooms());
    world.sandbox.failNext({ fault: 'status', status: 400, method: 'PUT', times: 'always' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ B: 'failed', C: 'failed' });
    world.sandbox.clearFailures();
    world.configure(UPDATES);
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    expect(world.ids()).toEqual(['room_A']);
  });
});

it('a stream without create links what `match` finds, and creates nothing', async () => {
  const world = await open(rooms({ operations: ['update'], match: ['room.name'] }));
  world.addObject('hand_1', { 'room.name': 'Room A' });
  await world.addRooms('A', 'B');
  await world.sql`UPDATE rooms SET seats = 12`;
  const result = await world.sync();
  expect(planOf(result)).toMatchObject({ create: 0, update: 1, left_out: 1 });
  expect(world.fieldsOf('hand_1')).toMatchObject({ 'room.seats': '12' });
  expect(world.ids()).toEqual(['hand_1']);
});

it('a limit does not count what `operations` leaves out', async () => {
  const world = await open(rooms({ operations: ['update'], limits: { create: { count: 0, percent: 0 } } }));
  world.addObject('room_r000', { 'room.name': 'Room r000' });
  await world.addRooms(...codes(20));
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  await world.addRooms(...codes(20, 20));
  const more = await world.sync();
  expect(more.run).toMatchObject({ status: 'succeeded', holds: {} });
  expect(planOf(more)).toMatchObject({ left_out: 39 });
});

it('a limit of updates counts new rows that take retired objects up again', async () => {
  const keyed = {
    key: 'number',
    externalId: 'room_{code}',
    retire: 'deactivate',
    limits: { retire: { count: 10, percent: 100 }, update: { count: 2, percent: 0 } },
  } as const;
  const world = await open(rooms(keyed));
  const add = (from: number, ...names: string[]) => world.sql`INSERT INTO rooms (code, name, number)
    SELECT c, 'Room ' || c, ${from} + place FROM unnest(${names}::text[]) WITH ORDINALITY AS n(c, place)`;
  await add(10, ...codes(4));
  await world.sync();
  await world.sql`DELETE FROM rooms WHERE code <> 'r000'`;
  await world.sync();
  world.configure(rooms({ ...keyed, operations: ['update', 'retire'] }));
  await add(20, ...codes(3, 1));
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', holds: { rooms: { update: { count: 3 } } } });
  expect(codes(3, 1).map((code) => world.isActive(`room_${code}`))).toEqual([false, false, false]);
});

describe('a stream with create only', () => {
  it('creates missing objects, and leaves existing objects as they are', async () => {
    const world = await open(CREATES);
    world.addObject('room_A', { 'room.name': 'by hand' });
    await world.addRooms('A', 'B');
    const result = await world.sync();
    expect(result.run.status).toBe('succeeded');
    expect(planOf(result)).toMatchObject({ create: 1, update: 0, left_out: 1 });
    expect([world.nameOf('A'), world.nameOf('B')]).toEqual(['by hand', 'Room B']);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
    await world.rename('B', 'new');
    world.sandbox.clearArrivals();
    const next = await world.sync();
    expect(planOf(next)).toMatchObject({ update: 0, left_out: 2 });
    await world.backfill({ force: true });
    await world.retry('A', 'B');
    await world.drainInbox();
    expect(world.writes()).toEqual([]);
    // Its changes are sent once its operations include update.
    world.configure(rooms({ operations: ['create', 'update'] }));
    await world.sync();
    expect(world.nameOf('B')).toBe('new');
  });

  it('leaves an object whose update was planned before, and settles its record', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await world.rename('A', 'new');
    const { runId, queue } = await world.plan('rooms');
    world.configure(CREATES);
    const { run } = await world.finish(runId, queue);
    expect(run.status).toBe('succeeded');
    expect(world.nameOf('A')).toBe('Room A');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    expect(planOf(await world.sync())).toMatchObject({ left_out: 1 });
  });

  it('creates a missing object again by a repair, and changes no object', async () => {
    const world = await open(CREATES, { synced: ['A', 'B'] });
    world.sandbox.removeObject('room_A');
    world.edit('room_B', { 'room.name': 'by hand' });
    await world.verify();
    const repaired = await world.repair();
    expect(planOf(repaired)).toMatchObject({ repair: 1, left_out: 1 });
    expect([world.nameOf('A'), world.nameOf('B')]).toEqual(['Room A', 'by hand']);
  });
});

it('a record that refers to a stream without create waits, and names the reason', async () => {
  const world = await open({ streams: { rooms: { ...ROOMS, operations: ['update'] }, courses: COURSES } });
  await world.addRooms('A');
  await world.sql`INSERT INTO courses VALUES ('DB', 'Databases', 'A')`;
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  const { DB } = await world.recordsOf('courses');
  expect(DB).toMatchObject({ status: 'deferred', error_code: 'reference_missing' });
  expect(DB?.error_message).toContain("rooms creates nothing: its `operations` have no 'create'");
  world.addObject('room_A', { 'room.name': 'Room A' });
  await world.sync();
  expect(await world.statusesOf('courses')).toEqual({ DB: 'synced' });
});
