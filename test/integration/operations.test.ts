// `operations` of a stream: an operation that is left out is counted, and no run sends it.
import { beforeEach, describe, expect, it } from 'vitest';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { RunKind, RunRange } from '../../src/state/schema.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { verify } from '../../src/sync/verify/verify.js';
import { COURSES } from '../support/campus.js';
import {
  ROOMS,
  addRooms,
  codes,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

const UPDATES = rooms({ operations: ['update'] });
const CREATES = rooms({ operations: ['create'] });

const addObject = (world: World, extId: string, name: string) =>
  world.sandbox.addObject({ extId, typeId: 'room', fields: [{ fieldId: 'room.name', values: [name] }] });

const createdHere = (world: World) => world.sandbox.objects().map(({ extId }) => extId);

async function runOf(world: World, kind: RunKind, range?: RunRange) {
  const request = { kind, lane: 'sync', startedBy: 'command', streams: ['rooms'], range } as const;
  const { run } = await startRun(world.state.db, request);
  const { queue } = await world.planRun(run.id);
  return world.finish(run.id, queue);
}

/** Returns the plan of a run of rooms. */
const planOf = ({ run }: { run: { plan: Record<string, object> } }) => run.plan['rooms'];

describe('a stream without create', () => {
  let world: World;
  beforeEach(async () => {
    world = await open(UPDATES);
    addObject(world, 'room_A', 'by hand');
    await addRooms(world, 'A', 'B', 'C');
  });

  it('updates existing objects, creates nothing, and its run succeeds', async () => {
    const preview = await previewStream(world.deps(), world.stream('rooms'));
    expect(preview.counts).toMatchObject({ create: 0, update: 1, left_out: 2 });
    const result = await world.sync();
    expect(planOf(result)).toMatchObject({ create: 0, update: 1, left_out: 2 });
    expect(result.run.status).toBe('succeeded');
    expect(nameAtService(world, 'A')).toBe('Room A');
    expect(createdHere(world)).toEqual(['room_A']);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    await expectNothingToSend(world);
  });

  it('creates nothing by an incremental run, a forced backfill or a batch that lost its object', async () => {
    await world.sync();
    const changed = await world.planChanges('rooms', 'B');
    expect(changed.queue).toEqual([]);
    await runOf(world, 'backfill', { force: true });
    await rename(world, 'A', 'new');
    const { runId, queue } = await world.plan('rooms');
    world.sandbox.removeObject('room_A');
    const { run } = await world.finish(runId, queue);
    expect(run.status).toBe('succeeded');
    expect(createdHere(world)).toEqual([]);
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
    expect(createdHere(world)).toEqual(['room_A']);
  });

  it('shows in explain what is left out', async () => {
    await world.sync();
    const explained = await explainRecord(world.deps(), world.stream('rooms'), 'B');
    expect(explained).toMatchObject({ leftOut: 'create' });
    const { leftOut } = await explainRecord(world.deps(), world.stream('rooms'), 'A');
    expect(leftOut).toBeUndefined();
  });

  it('repairs no missing object', async () => {
    await world.sync();
    world.sandbox.removeObject('room_A');
    await verify(world.verifying());
    const repaired = await runOf(world, 'repair');
    expect(planOf(repaired)).toMatchObject({ repair: 0, left_out: 1 });
    expect(createdHere(world)).toEqual([]);
  });
});

it('a stream without create links what `match` finds, and creates nothing', async () => {
  const world = await open(rooms({ operations: ['update'], match: ['room.name'] }));
  addObject(world, 'hand_1', 'Room A');
  await addRooms(world, 'A', 'B');
  await world.sql`UPDATE rooms SET seats = 12`;
  const result = await world.sync();
  expect(planOf(result)).toMatchObject({ create: 0, update: 1, left_out: 1 });
  expect(world.fieldsOf('hand_1')).toMatchObject({ 'room.seats': '12' });
  expect(createdHere(world)).toEqual(['hand_1']);
});

it('a limit does not count what `operations` leaves out', async () => {
  const world = await open(rooms({ operations: ['update'], limits: { create: { count: 0, percent: 0 } } }));
  addObject(world, 'room_r000', 'Room r000');
  await addRooms(world, ...codes(20));
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  await addRooms(world, ...codes(20, 20));
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
  expect(codes(3, 1).map((code) => isActive(world, `room_${code}`))).toEqual([false, false, false]);
});

describe('a stream with create only', () => {
  it('creates missing objects, and leaves existing objects as they are', async () => {
    const world = await open(CREATES);
    addObject(world, 'room_A', 'by hand');
    await addRooms(world, 'A', 'B');
    const result = await world.sync();
    expect(result.run.status).toBe('succeeded');
    expect(planOf(result)).toMatchObject({ create: 1, update: 0, left_out: 1 });
    expect([nameAtService(world, 'A'), nameAtService(world, 'B')]).toEqual(['by hand', 'Room B']);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
    await rename(world, 'B', 'new');
    world.sandbox.clearArrivals();
    const next = await world.sync();
    expect(planOf(next)).toMatchObject({ update: 0, left_out: 2 });
    await runOf(world, 'backfill', { force: true });
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A', 'B'] });
    await world.drainInbox();
    expect(world.writes()).toEqual([]);
  });

  it('sends its changes once its operations include update', async () => {
    const world = await open(CREATES, { synced: ['A'] });
    await rename(world, 'A', 'new');
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Room A');
    world.configure(rooms({ operations: ['create', 'update'] }));
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('new');
  });

  it('leaves an object whose update was planned before, and settles its record', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await rename(world, 'A', 'new');
    const { runId, queue } = await world.plan('rooms');
    world.configure(CREATES);
    const { run } = await world.finish(runId, queue);
    expect(run.status).toBe('succeeded');
    expect(nameAtService(world, 'A')).toBe('Room A');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    expect(planOf(await world.sync())).toMatchObject({ left_out: 1 });
  });

  it('creates a missing object again by a repair, and changes no object', async () => {
    const world = await open(CREATES, { synced: ['A', 'B'] });
    world.sandbox.removeObject('room_A');
    world.sandbox.changeObject('room_B', { fields: [{ fieldId: 'room.name', values: ['by hand'] }] });
    await verify(world.verifying());
    const repaired = await runOf(world, 'repair');
    expect(planOf(repaired)).toMatchObject({ repair: 1, left_out: 1 });
    expect([nameAtService(world, 'A'), nameAtService(world, 'B')]).toEqual(['Room A', 'by hand']);
  });
});

it('a record that refers to a stream without create waits, and names the reason', async () => {
  const config: SlotsyncConfig = {
    streams: { rooms: { ...ROOMS, operations: ['update'] }, courses: COURSES },
  };
  const world = await open(config);
  await addRooms(world, 'A');
  await world.sql`INSERT INTO courses VALUES ('DB', 'Databases', 'A')`;
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  const { DB } = await world.recordsOf('courses');
  expect(DB).toMatchObject({ status: 'deferred', error_code: 'reference_missing' });
  expect(DB?.error_message).toContain("rooms creates nothing: its `operations` have no 'create'");
  addObject(world, 'room_A', 'Room A');
  await world.sync();
  expect(await world.statusesOf('courses')).toEqual({ DB: 'synced' });
});
