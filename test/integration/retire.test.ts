// Guarantee 6
// The deactivation of an object whose row is gone, the fields that it sets beside `active`, and what stops it.
import { describe, expect, it } from 'vitest';
import { listWrites } from '../../src/state/history.js';
import { describeOperations } from '../../src/sync/plan/planned-operations.js';
import { findUnknownNames } from '../../src/sync/plan/unknown-names.js';
import type { Declaration } from '../support/campus.js';
import { codes, keepRooms, ROOMS, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const CONTEXT = { lane: 'sync' } as const;

/** Returns the batches of a run, with the mark of those that come after all others. */
const levelsOf = ({ sql }: RoomWorld, runId: number) => sql`
  SELECT stream, operation, level > 1 AS "isLast" FROM slotsync.batches WHERE run_id = ${runId} ORDER BY stream`;

describe('a row that is gone', () => {
  const retiring = rooms({ retire: 'deactivate' });

  it('has its object deactivated, and no other object', async () => {
    const world = await open(retiring, { synced: ['A', 'B'] });
    await world.remove('A');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 1, unchanged: 1 } } });
    expect(world.sandbox.object('room_A')).toMatchObject({
      active: false,
      fields: [{ fieldId: 'room.name', values: ['Room A'] }],
    });
    expect(world.isActive('room_B')).toBe(true);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced' });
    await world.expectNothingToSend();
    // It is activated again when the row comes back.
    await world.addRooms('A');
    await world.sync();
    expect(world.isActive('room_A')).toBe(true);
    await world.expectInSync();
    await world.expectNothingToSend();
  });

  it('has every other property of its object kept, whatever the stream owns', async () => {
    const halls: Declaration = { ...ROOMS, from: 'halls', externalId: 'hall_{code}', owns: 'object' };
    const world = await open({
      streams: { rooms: { ...ROOMS, retire: 'deactivate' }, halls: { ...halls, retire: 'deactivate' } },
    });
    await world.addRooms('A', 'B');
    await world.sql`CREATE TABLE halls AS SELECT * FROM rooms`;
    await world.sync();
    const properties = { members: [{ objectId: 'person_1' }], organization: 'north' };
    for (const extId of ['room_A', 'hall_A']) world.sandbox.changeObject(extId, { properties });
    await world.sql`WITH gone AS (DELETE FROM rooms WHERE code = 'A') DELETE FROM halls WHERE code = 'A'`;
    await world.sync();
    for (const extId of ['room_A', 'hall_A'])
      expect(world.sandbox.object(extId)).toMatchObject({ active: false, properties });
  });

  it('has its object deactivated after every other write of the run, without references to it', async () => {
    const { streams } = roomsAndCourses();
    const world = await open({ streams: { ...streams, rooms: { ...ROOMS, retire: 'deactivate' } } });
    await world.addRooms('A', 'B');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    await world.remove('A');
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
    expect(world.isActive('room_A')).toBe(true);
    await world.finish(runId, queue);
    expect(world.fieldsOf('course_c1')?.['course.room']).toBe('room_B');
    expect(world.isActive('room_A')).toBe(false);
  });

  it('is not sent again after a refused deactivation until it is back or is retried', async () => {
    const world = await open(retiring, { synced: ['A', 'B', 'C', 'D'] });
    for (const id of ['room_A', 'room_B']) world.refuse(id, 409);
    await world.remove('A', 'B', 'D');
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({
      status: 'dead',
      error_code: 'retirement_refused_409',
    });
    await world.expectNothingToSend();

    for (const id of ['room_A', 'room_B']) world.sandbox.allowObject(id);
    await world.expectNothingToSend();
    await world.retry('A');
    await world.addRooms('B');
    await world.sync();
    expect(world.isActive('room_A')).toBe(false);
    expect(await world.statusesOf('rooms')).toEqual({
      A: 'retired',
      B: 'synced',
      C: 'synced',
      D: 'retired',
    });
  });

  it('has its object left alone where the stream retires nothing', async () => {
    const world = await open(rooms({ retire: 'keep' }), { synced: ['A', 'B'] });
    await world.remove('A');
    // A preview counts the row before and after a sync has noted that it was deleted.
    const kept = async () => (await world.preview()).kept;
    expect(await kept()).toBe(1);
    await world.expectNothingToSend();
    expect(world.isActive('room_A')).toBe(true);
    expect(await kept()).toBe(1);
  });

  it('leaves its record settled as it was when it goes between plan and request', async () => {
    const world = await open(retiring, { synced: ['A', 'B'] });
    await world.rename('A', 'Aula');
    const { runId, queue } = await world.plan();
    await world.remove('A');
    await world.finish(runId, queue);
    expect(world.isActive('room_A')).toBe(true);
    await world.sync();
    expect(world.isActive('room_A')).toBe(false);
  });

  it('has no object deactivated if all rows are gone while a lost answer is repeated', async () => {
    const world = await open(retiring, { synced: codes(30) });
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

    async function openMoved(): Promise<RoomWorld> {
      const world = await open(byNumber);
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('Z', 'z', '9')`;
      await world.sync();
      await world.sql`UPDATE rooms SET code = 'B' WHERE code = 'A'`;
      return world;
    }

    it('keeps its object active when the new record is refused', async () => {
      const world = await openMoved();
      await world.rename('B', 'b');
      world.refuse('room_1');
      const { runId, queue } = await world.plan();
      const [first = 0, ...rest] = queue;
      const { queue: next } = await world.apply(first);
      world.sandbox.allowObject('room_1');
      await world.finish(runId, [...rest, ...next]);
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
      // Or when its answers are lost.
      await world.rename('B', 'c');
      world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer', times: 4 });
      await world.sync();
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
    });
  });
});

describe('a deactivation that sets fields', () => {
  const FIELDS = ['name', 'seats', 'tags', 'count', 'open', 'color'].map((name) => ({
    extId: `room.${name}`,
  }));
  const NOTE = { 'room.note': 'closed' };
  const closing = (
    fields: Record<string, string | number | boolean | string[] | null>,
    changes: Partial<Declaration> = {},
  ) => rooms({ retire: { deactivate: true, fields }, ...changes });

  async function openRetired(config = closing({ 'room.name': 'closed', ...NOTE })): Promise<RoomWorld> {
    const world = await open(config, { synced: ['A', 'B'] });
    world.edit('room_A', { 'room.name': 'Room A' });
    await world.remove('A');
    await world.sync();
    return world;
  }
  const fieldsOf = (world: RoomWorld) => world.fieldsOf('room_A');

  it('sets the fields beside active: false, and keeps all other fields', async () => {
    const world = await open(
      closing({
        'room.name': 'closed',
        'room.seats': null,
        'room.tags': ['x', 'y'],
        'room.count': 0,
        'room.open': false,
      }),
      { synced: ['B'], sandbox: { schema: { types: [{ extId: 'room' }], fields: FIELDS } } },
    );
    await world.sql`INSERT INTO rooms (code, name, seats) VALUES ('A', 'Room A', 4)`;
    await world.sync();
    world.sandbox.changeObject('room_A', {
      fields: [...(world.sandbox.object('room_A')?.fields ?? []), { fieldId: 'room.color', values: ['red'] }],
    });
    await world.remove('A');
    await world.sync();
    expect(world.isActive('room_A')).toBe(false);
    expect(fieldsOf(world)).toEqual({
      'room.name': 'closed',
      'room.tags': 'x,y',
      'room.count': '0',
      'room.open': 'false',
      'room.color': 'red',
    });
    expect(world.isActive('room_B')).toBe(true);
    const [latest] = await listWrites(world.state.db, { stream: 'rooms', localKey: 'A' }, 1);
    expect(latest?.fields?.join(' ')).toBe('active room.name room.seats room.count room.open room.tags');
    await world.expectNothingToSend();
  });

  it('is shown field by field before it happens', async () => {
    const world = await open(closing(NOTE), { synced: ['A', 'B'] });
    await world.remove('A');
    const changes = [
      { field: 'active', old: ['true'], new: ['false'] },
      { field: 'room.note', old: [], new: ['closed'] },
    ];
    const planned = [{ operation: 'retire', key: 'A' }] as const;
    expect(await describeOperations(world.deps(), world.stream('rooms'), planned, CONTEXT)).toMatchObject([
      { changes },
    ]);
    expect((await world.explain('A')).changes).toEqual(changes);
  });

  it.each(['fields', 'object'] as const)(
    'is undone by the mapping when the row is back (owns: %s)',
    async (owns) => {
      const world = await openRetired(closing({ 'room.name': 'closed', ...NOTE }, { owns }));
      expect(fieldsOf(world)).toEqual({ 'room.name': 'closed', 'room.note': 'closed' });
      await world.addRooms('A');
      await world.sync();
      expect(world.isActive('room_A')).toBe(true);
      expect(fieldsOf(world)).toEqual({ 'room.name': 'Room A' });
      await world.expectInSync();
      await world.expectNothingToSend();
    },
  );

  it('leaves an unmapped field as somebody has written it when the row is back', async () => {
    const world = await openRetired();
    world.edit('room_A', { 'room.note': 'reopens in May' });
    await world.addRooms('A');
    await world.sync();
    expect(fieldsOf(world)).toEqual({ 'room.name': 'Room A', 'room.note': 'reopens in May' });
    // Nor does it empty a field of an active object that has the same value.
    world.edit('room_A', { 'room.note': 'closed' });
    await world.rename('A', 'Aula');
    await world.sync();
    expect(fieldsOf(world)).toEqual({ 'room.name': 'Aula', 'room.note': 'closed' });
  });

  it('waits for the end of bookings, and sets the fields of an object that somebody has deactivated', async () => {
    const world = await open(closing({ 'room.name': 'closed' }), { synced: ['A', 'B'] });
    world.book('room_A');
    await world.remove('A');
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'deferred' });
    expect(world.nameOf('A')).toBe('Room A');
    world.sandbox.cancelReservation('res_room_A');
    world.sandbox.changeObject('room_A', { active: false });
    await world.sync();
    expect(world.nameOf('A')).toBe('closed');
    await world.expectNothingToSend();
  });

  it.each(['changed', 'onCreate'] as const)(
    'has an emptied field filled by the mapping again when the row is back (write: %s)',
    async (write) => {
      const world = await openRetired(
        closing({ 'room.name': null }, { fields: { 'room.name': { from: 'name', write } } }),
      );
      expect(world.nameOf('A')).toBeUndefined();
      // A find lags behind younger acceptances.
      await world.passHour();
      await world.addRooms('A');
      await world.sync();
      expect(world.nameOf('A')).toBe('Room A');
      await world.expectNothingToSend();
    },
  );

  it('is no drift when a field changes later, and is repeated when the object is active again', async () => {
    const world = await openRetired(closing({ 'room.name': 'closed' }));
    world.edit('room_A', { 'room.name': 'Old hall' });
    await world.passHour();
    expect(await world.verify()).toMatchObject({ drifting: 0 });
    world.sandbox.changeObject('room_A', { active: true });
    expect(await world.verify()).toMatchObject({ drifting: 1 });
    await world.repair();
    expect(world.isActive('room_A')).toBe(false);
    expect(world.nameOf('A')).toBe('closed');
  });

  it('names a field that the service does not know before anything is written', async () => {
    const world = await open(closing(NOTE), {
      sandbox: {
        schema: {
          types: [{ extId: 'room' }],
          fields: [{ extId: 'room.name' }, { extId: 'room.seats' }, { extId: 'room.notes' }],
        },
      },
    });
    expect(await findUnknownNames(world.destination, [world.stream('rooms')], CONTEXT)).toEqual([
      "the service knows no field 'room.note' (streams.rooms); did you mean 'room.notes'?",
    ]);
  });
});
