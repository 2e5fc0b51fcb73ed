// Guarantee 6
// A deactivation that sets fields beside `active`.
import { describe, expect, it } from 'vitest';
import { listWrites } from '../../src/state/history.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { describeOperations } from '../../src/sync/plan/planned-operations.js';
import { findUnknownNames } from '../../src/sync/plan/unknown-names.js';
import { verify } from '../../src/sync/verify/verify.js';
import type { Declaration } from '../support/campus.js';
import { startRunOf } from '../support/gated-rooms.js';
import {
  addRooms,
  bookObject,
  expectInSync,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rooms,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const CONTEXT = { lane: 'sync' } as const;

describe('a deactivation that sets fields', () => {
  const FIELDS = ['name', 'seats', 'tags', 'count', 'open', 'color'].map((name) => ({
    extId: `room.${name}`,
  }));
  const NOTE = { 'room.note': 'closed' };
  const closing = (
    fields: Record<string, string | number | boolean | string[] | null>,
    changes: Partial<Declaration> = {},
  ) => rooms({ retire: { deactivate: true, fields }, ...changes });

  async function openRetired(config = closing({ 'room.name': 'closed', ...NOTE })): Promise<World> {
    const world = await open(config, { synced: ['A', 'B'] });
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.name', values: ['Room A'] }] });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    return world;
  }
  const fieldsOf = (world: World) => world.fieldsOf('room_A');

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
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
    expect(fieldsOf(world)).toEqual({
      'room.name': 'closed',
      'room.tags': 'x,y',
      'room.count': '0',
      'room.open': 'false',
      'room.color': 'red',
    });
    expect(isActive(world, 'room_B')).toBe(true);
    const [latest] = await listWrites(world.state.db, { stream: 'rooms', localKey: 'A' }, 1);
    expect(latest?.fields).toEqual([
      'active',
      'room.name',
      'room.seats',
      'room.count',
      'room.open',
      'room.tags',
    ]);
    await expectNothingToSend(world);
  });

  it('is shown field by field before it happens', async () => {
    const world = await open(closing(NOTE), { synced: ['A', 'B'] });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    const changes = [
      { field: 'active', old: ['true'], new: ['false'] },
      { field: 'room.note', old: [], new: ['closed'] },
    ];
    const planned = [{ operation: 'retire', key: 'A' }] as const;
    expect(await describeOperations(world.deps(), world.stream('rooms'), planned, CONTEXT)).toMatchObject([
      { changes },
    ]);
    expect((await explainRecord(world.deps(), world.stream('rooms'), 'A')).changes).toEqual(changes);
  });

  it.each(['fields', 'object'] as const)(
    'is undone by the mapping when the row is back (owns: %s)',
    async (owns) => {
      const world = await openRetired(closing({ 'room.name': 'closed', ...NOTE }, { owns }));
      expect(fieldsOf(world)).toEqual({ 'room.name': 'closed', 'room.note': 'closed' });
      await addRooms(world, 'A');
      await world.sync();
      expect(isActive(world, 'room_A')).toBe(true);
      expect(fieldsOf(world)).toEqual({ 'room.name': 'Room A' });
      await expectInSync(world);
      await expectNothingToSend(world);
    },
  );

  it('leaves an unmapped field as somebody has written it when the row is back', async () => {
    const world = await openRetired();
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.note', values: ['reopens in May'] }] });
    await addRooms(world, 'A');
    await world.sync();
    expect(fieldsOf(world)).toEqual({ 'room.name': 'Room A', 'room.note': 'reopens in May' });
  });

  it.each(['changed', 'onCreate'] as const)(
    'has an emptied field filled by the mapping again when the row is back (write: %s)',
    async (write) => {
      const world = await openRetired(
        closing({ 'room.name': null }, { fields: { 'room.name': { from: 'name', write } } }),
      );
      expect(nameAtService(world, 'A')).toBeUndefined();
      // A find lags behind younger acceptances.
      await world.sql`UPDATE slotsync.records SET synced_at = now() - interval '1 hour'`;
      await addRooms(world, 'A');
      await world.sync();
      expect(nameAtService(world, 'A')).toBe('Room A');
      await expectNothingToSend(world);
    },
  );

  it('does not empty an unmapped field with the same value on an active object', async () => {
    const world = await open(closing(NOTE), { synced: ['A'] });
    world.sandbox.changeObject('room_A', {
      fields: [{ fieldId: 'room.note', values: ['closed'] }],
    });
    await world.sql`UPDATE rooms SET name = 'Aula'`;
    await world.sync();
    expect(fieldsOf(world)).toEqual({ 'room.name': 'Aula', 'room.note': 'closed' });
  });

  it('sets the fields of an object that somebody has deactivated', async () => {
    const world = await open(closing({ 'room.name': 'closed' }), { synced: ['A', 'B'] });
    world.sandbox.changeObject('room_A', { active: false });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('closed');
    await expectNothingToSend(world);
  });

  it('waits for the end of bookings', async () => {
    const world = await open(closing({ 'room.name': 'closed' }), { synced: ['A', 'B'] });
    bookObject(world, 'room_A');
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'deferred' });
    expect(nameAtService(world, 'A')).toBe('Room A');
  });

  it('is no drift when a field changes later, and is repeated when the object is active again', async () => {
    const world = await openRetired(closing({ 'room.name': 'closed' }));
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.name', values: ['Old hall'] }] });
    const settle = () => world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
    await settle();
    expect(await verify(world.verifying())).toMatchObject({ drifting: 0 });
    world.sandbox.changeObject('room_A', { active: true });
    expect(await verify(world.verifying())).toMatchObject({ drifting: 1 });
    const runId = await startRunOf(world, { kind: 'repair', lane: 'verify', streams: ['rooms'] });
    await world.planRun(runId).then(({ queue }) => world.finish(runId, queue));
    expect(isActive(world, 'room_A')).toBe(false);
    expect(nameAtService(world, 'A')).toBe('closed');
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
