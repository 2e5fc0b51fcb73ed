// Guarantee 6
// The content of a write: fields the mapping owns, fields it keeps, and objects that need no write.
import { describe, expect, it } from 'vitest';
import {
  addRooms,
  expectNothingToSend,
  isActive,
  keepRoomWorlds,
  rename,
  rooms,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

describe('a write', () => {
  const SCHEMA = {
    types: [{ extId: 'room' }, { extId: 'hall' }],
    fields: ['room.name', 'room.seats', 'comment'].map((extId) => ({ extId })),
  };
  const standing = (fields: Record<string, string>, typeId = 'room') => ({
    extId: 'room_A',
    typeId,
    fields: Object.entries(fields).map(([fieldId, value]) => ({ fieldId, values: [value] })),
  });
  const finds = (world: World) =>
    world.sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));

  it('keeps the fields that the mapping does not own', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Old', comment: 'a person wrote this' }));
    await world.sql`INSERT INTO rooms VALUES ('A', 'New', 48)`;
    await world.sync();
    const kept = { 'room.name': 'New', 'room.seats': '48', comment: 'a person wrote this' };
    expect(world.fieldsOf('room_A')).toEqual(kept);
    world.sandbox.putObject(standing({ ...kept, comment: 'and this later' }));
    await rename(world, 'A', 'Newer');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ ...kept, 'room.name': 'Newer', comment: 'and this later' });
  });

  const PROPERTIES = {
    members: [{ objectId: 'person_1', role: 'keeper' }],
    organization: { id: 7, path: ['north', 'campus'] },
    note: null,
  };

  it.each([
    ['keeps', 'fields', PROPERTIES],
    ['with owns: object empties', 'object', undefined],
  ] as const)('%s the properties that slotsync does not know', async (_, owns, kept) => {
    const world = await open(rooms({ owns }), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject({ ...standing({ 'room.name': 'Old' }), properties: PROPERTIES });
    await world.sql`INSERT INTO rooms VALUES ('A', 'New', 48)`;
    await world.sync();
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'New' });
    expect(world.sandbox.object('room_A')?.properties).toEqual(kept);
  });

  it('replaces without reading with owns: object', async () => {
    const world = await open(rooms({ owns: 'object' }), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Old', comment: 'gone' }));
    await addRooms(world, 'A');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Room A' });
    world.sandbox.clearArrivals();
    await rename(world, 'A', 'Newer');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Newer' });
    expect(finds(world)).toEqual([]);
  });

  it.each(['fields', 'object'] as const)(
    'empties an owned field when its column becomes null (owns: %s)',
    async (owns) => {
      const world = await open(rooms({ owns }));
      await world.sql`INSERT INTO rooms VALUES ('A', 'Aula', 48)`;
      await world.sync();
      expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Aula', 'room.seats': '48' });
      await world.sql`UPDATE rooms SET seats = NULL`;
      await world.sync();
      expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Aula' });
    },
  );

  it('is left out if an equal object exists', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Room A', comment: 'kept' }));
    await addRooms(world, 'A');
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({ rooms: { synced: 0, unchanged: 1 } });
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', object_hash: expect.any(String) },
    });
    await expectNothingToSend(world);
  });

  it('activates an equal object that is inactive', async () => {
    const world = await open(rooms());
    world.sandbox.putObject({ ...standing({ 'room.name': 'Room A' }), active: false });
    await addRooms(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('sends a null inside an array as no value', async () => {
    const from = { query: 'SELECT code, ARRAY[name, NULL] AS name, seats FROM rooms' };
    const world = await open(rooms({ from }));
    await addRooms(world, 'A');
    await world.sync();
    expect(world.sandbox.object('room_A')?.fields).toEqual([{ fieldId: 'room.name', values: ['Room A'] }]);
  });
});
