// Guarantees 5, 6, 10
// The content of a write: fields the mapping owns, fields it keeps, and objects that need no write. A second run sends nothing
// twice. An object too large to read at the service stops only its own record.
import { describe, expect, it } from 'vitest';
import type { FailRule } from '../../src/sandbox/faults.js';
import { codes, fieldsFrom, keepRooms, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

describe('a write', () => {
  const SCHEMA = {
    types: [{ extId: 'room' }, { extId: 'hall' }],
    fields: ['room.name', 'room.seats', 'comment'].map((extId) => ({ extId })),
  };
  const standing = (fields: Record<string, string>, typeId = 'room') => ({
    extId: 'room_A',
    typeId,
    fields: fieldsFrom(fields),
  });
  const finds = (world: RoomWorld) =>
    world.sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));

  it('keeps the fields that the mapping does not own', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Old', comment: 'a person wrote this' }));
    await world.sql`INSERT INTO rooms VALUES ('A', 'New', 48)`;
    await world.sync();
    const kept = { 'room.name': 'New', 'room.seats': '48', comment: 'a person wrote this' };
    expect(world.fieldsOf('room_A')).toEqual(kept);
    world.sandbox.putObject(standing({ ...kept, comment: 'and this later' }));
    await world.rename('A', 'Newer');
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
    await world.addRooms('A');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Room A' });
    world.sandbox.clearArrivals();
    await world.rename('A', 'Newer');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Newer' });
    expect(finds(world)).toEqual([]);
  });

  it('empties an owned field when its column becomes null, and sends a null inside an array as no value', async () => {
    const from = { query: 'SELECT code, ARRAY[name, NULL] AS name, seats FROM rooms' };
    for (const owns of ['fields', 'object'] as const) {
      const world = await open(rooms({ from, owns }));
      await world.sql`INSERT INTO rooms VALUES ('A', 'Aula', 48)`;
      await world.sync();
      expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Aula', 'room.seats': '48' });
      await world.sql`UPDATE rooms SET seats = NULL`;
      await world.sync();
      expect(world.sandbox.object('room_A')?.fields).toEqual(fieldsFrom({ 'room.name': 'Aula' }));
    }
  });

  it('is left out if an equal object exists', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Room A', comment: 'kept' }));
    await world.addRooms('A');
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({ rooms: { synced: 0, unchanged: 1 } });
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', object_hash: expect.any(String) },
    });
    await world.expectNothingToSend();
    // An equal object that is inactive is activated.
    world.addObject('room_B', { 'room.name': 'Room B' });
    world.sandbox.changeObject('room_B', { active: false });
    await world.addRooms('B');
    await world.sync();
    expect(world.isActive('room_B')).toBe(true);
  });
});

describe('a second run', () => {
  it('sends no write over an unchanged mirror, whatever became of the records', async () => {
    const world = await open(roomsAndCourses());
    await world.addRooms(...codes(250), 'refused');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'r001'), ('c2', 'Two', 'nowhere'), ('c3', 'Three', NULL)`;
    world.refuse('room_refused');
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({
      rooms: { synced: 250, dead: 1 },
      courses: { synced: 2, deferred: 1 },
    });
    await world.expectNothingToSend();
    await world.expectNothingToSend();
    // A column that is not mapped changes nothing, and another one only its object.
    await world.sql`UPDATE rooms SET number = '7' WHERE code <> 'refused'`;
    await world.expectNothingToSend();
    await world.rename('r003', 'Changed');
    await world.sync();
    expect(world.writes().map(({ objects }) => objects)).toEqual([1]);
    expect(world.nameOf('r003')).toBe('Changed');
  });

  it('sends no record again that was refused after a lost answer', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B');
    world.refuse('room_B');
    world.sandbox.failNext({ path: '/objects', fault: 'reset' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'dead' });
    await world.expectNothingToSend();
  });
});

/** A find of room_B is answered with more values than the client parses. */
const TOO_LARGE: FailRule = {
  path: '/objects/find',
  extId: 'room_B',
  fault: 'status',
  status: 200,
  body: { results: [], more: Array.from({ length: 4_000_001 }, () => 0) },
  times: 'always',
};

it('an object too large to read fails, is not overwritten, and does not stop its batch', async () => {
  const world = await open(rooms());
  await world.addRooms('A', 'B', 'C');
  world.sandbox.putObject({ extId: 'room_B', typeId: 'room', fields: [] });
  world.sandbox.failNext(TOO_LARGE);
  expect((await world.sync()).run.status).toBe('partial');
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: {
      status: 'failed',
      error_code: 'answer_too_large',
      error_message: "POST /v1/objects/find: the answer is too large: it is for a single name: 'room_B'",
    },
    C: { status: 'synced' },
  });
  expect(['A', 'B', 'C'].map((code) => world.nameOf(code))).toEqual(['Room A', undefined, 'Room C']);

  world.sandbox.clearFailures();
  await world.rename('A', 'new');
  await world.sync();
  expect(['A', 'B'].map((code) => world.nameOf(code))).toEqual(['new', 'Room B']);
});

it('an object too large to read is not created again where its row may match another object', async () => {
  const world = await open(rooms({ match: ['room.name'] }));
  await world.addRooms('A', 'B');
  world.sandbox.putObject({ extId: 'room_B', typeId: 'room', fields: [] });
  world.addObject('other', { 'room.name': 'Room B' });
  world.sandbox.failNext(TOO_LARGE);
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: { status: 'failed', error_code: 'answer_too_large' },
  });
  expect(await world.sql`SELECT FROM slotsync.links`).toHaveLength(0);
  expect(world.sandbox.objects()).toHaveLength(3);
});
