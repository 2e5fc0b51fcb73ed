// Guarantee 6
// The deactivation of an object whose row is gone, and what stops it.
import { describe, expect, it } from 'vitest';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import {
  addRooms,
  codes,
  expectInSync,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  rename,
  ROOMS,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

/** Returns the batches of a run, with the mark of those that come after all others. */
const levelsOf = ({ sql }: World, runId: number) => sql`
  SELECT stream, operation, level > 1 AS "isLast" FROM slotsync.batches WHERE run_id = ${runId} ORDER BY stream`;

describe('a row that is gone', () => {
  const retiring = rooms({ retire: 'deactivate' });

  it('has its object deactivated, and no other object', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 1, unchanged: 1 } } });
    expect(world.sandbox.object('room_A')).toMatchObject({
      active: false,
      fields: [{ fieldId: 'room.name', values: ['Room A'] }],
    });
    expect(isActive(world, 'room_B')).toBe(true);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced' });
    await expectNothingToSend(world);
  });

  it.each(['fields', 'object'] as const)(
    'has every other property of its object kept (owns: %s)',
    async (owns) => {
      const world = await open(rooms({ retire: 'deactivate', owns }));
      await addRooms(world, 'A', 'B');
      await world.sync();
      const properties = { members: [{ objectId: 'person_1' }], organization: 'north' };
      world.sandbox.changeObject('room_A', { properties });
      await world.sql`DELETE FROM rooms WHERE code = 'A'`;
      await world.sync();
      expect(world.sandbox.object('room_A')).toMatchObject({ active: false, properties });
    },
  );

  it('has its object deactivated after every other write of the run, without references to it', async () => {
    const { streams } = roomsAndCourses();
    const world = await open({ streams: { ...streams, rooms: { ...ROOMS, retire: 'deactivate' } } });
    await addRooms(world, 'A', 'B');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sql`UPDATE courses SET room = 'B'`;
    world.sandbox.clearArrivals();
    // The update fails once: the retirement still waits for it.
    world.sandbox.failNext({ path: '/objects', method: 'PUT', fault: 'status', status: 503, times: 1 });
    const { runId, queue } = await world.plan();
    expect(queue).toHaveLength(1);
    expect(await levelsOf(world, runId)).toEqual([
      { stream: 'courses', operation: 'update', isLast: false },
      { stream: 'rooms', operation: 'retire', isLast: true },
    ]);
    expect(isActive(world, 'room_A')).toBe(true);
    await world.finish(runId, queue);
    expect(world.fieldsOf('course_c1')?.['course.room']).toBe('room_B');
    expect(isActive(world, 'room_A')).toBe(false);
  });

  it('has its object reactivated when the row comes back', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    await addRooms(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
    await expectInSync(world);
    await expectNothingToSend(world);
  });

  it('is not sent again after a refused deactivation until it is back or is retried', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B', 'C', 'D');
    await world.sync();
    for (const id of ['room_A', 'room_B']) world.sandbox.refuseObject(id, { status: 409, message: 'no' });
    await world.sql`DELETE FROM rooms WHERE code IN ('A', 'B', 'D')`;
    await world.sync();
    expect((await world.recordsOf('rooms'))['A']).toMatchObject({
      status: 'dead',
      error_code: 'retirement_refused_409',
    });
    await expectNothingToSend(world);

    for (const id of ['room_A', 'room_B']) world.sandbox.allowObject(id);
    await expectNothingToSend(world);
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await addRooms(world, 'B');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
    expect(await world.statusesOf('rooms')).toEqual({
      A: 'retired',
      B: 'synced',
      C: 'synced',
      D: 'retired',
    });
  });

  it('has its object left alone where the stream retires nothing', async () => {
    const world = await open(rooms({ retire: 'keep' }));
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    // A preview counts the row before and after a sync has noted that it was deleted.
    const kept = async () => (await previewStream(world.deps(), world.stream('rooms'))).kept;
    expect(await kept()).toBe(1);
    await expectNothingToSend(world);
    expect(isActive(world, 'room_A')).toBe(true);
    expect(await kept()).toBe(1);
  });

  it('is only deleted from the state if it never reached the service', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await expectNothingToSend(world);
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced' });
  });

  it('leaves its record settled as it was when it goes between plan and request', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await rename(world, 'A', 'Aula');
    const { runId, queue } = await world.plan();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.finish(runId, queue);
    expect(isActive(world, 'room_A')).toBe(true);
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
  });

  it('has no object deactivated if all rows are gone while a lost answer is repeated', async () => {
    const world = await open(retiring);
    await addRooms(world, ...codes(30));
    await world.sync();
    await world.sql`UPDATE rooms SET name = name || '!'`;
    const { runId, queue } = await world.plan();
    world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    await world.sql`TRUNCATE rooms`;
    await world.finish(runId, queue);
    expect(world.sandbox.objects().filter(({ active }) => !active)).toEqual([]);
  });

  // Guarantee 6
  describe('but is there under another key', () => {
    const byNumber = rooms({ externalId: 'room_{number}', retire: 'deactivate' });

    async function openMoved(): Promise<World> {
      const world = await open(byNumber);
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('Z', 'z', '9')`;
      await world.sync();
      await world.sql`UPDATE rooms SET code = 'B' WHERE code = 'A'`;
      return world;
    }

    it('keeps its object active, which the new record takes over', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      await world.sync();
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
      expect(world.fieldsOf('room_1')).toEqual({ 'room.name': 'b' });
      expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', Z: 'synced' });
      await expectNothingToSend(world);
    });

    it('keeps its object active when the new record is refused', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      world.sandbox.refuseObject('room_1', { status: 400, message: 'no' });
      const { runId, queue } = await world.plan();
      const [first = 0, ...rest] = queue;
      const { queue: next } = await world.apply(first);
      world.sandbox.allowObject('room_1');
      await world.finish(runId, [...rest, ...next]);
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
    });

    it('keeps its object active when the answer to the new record was lost', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer', times: 4 });
      await world.sync();
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
    });
  });
});
