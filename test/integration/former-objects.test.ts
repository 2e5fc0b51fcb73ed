// Guarantees 6, 10
// The former object of a record whose external id has changed: a record of its own keeps it, shows it, and retires it when an
// operator asks.
import { describe, expect, it } from 'vitest';
import { countFormerObjects, listFormerObjects } from '../../src/state/records/read/owners.js';
import { retireFormer } from '../../src/state/records/retry-records.js';
import { COURSES, keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const BY_NUMBER = rooms({ externalId: 'room_{number}', retire: 'deactivate' });

/** Opens a world with one room, accepted as room_1. */
async function openWithRoom(): Promise<RoomWorld> {
  const world = await open(BY_NUMBER);
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
  await world.sync();
  return world;
}

/** Opens the same world after its row got the number 2 and a sync has given its record up. */
async function openRenumbered(): Promise<RoomWorld> {
  const world = await openWithRoom();
  await setNumber(world, 'A', '2');
  await world.sync();
  return world;
}

const setNumber = (world: RoomWorld, code: string, number: string) =>
  world.sql`UPDATE rooms SET number = ${number} WHERE code = ${code}`;
const retireFormerA = (world: RoomWorld) =>
  retireFormer(world.state.db, { streams: ['rooms'], stream: 'rooms', keys: ['A'] });
const formerOf = async (world: RoomWorld) =>
  (await listFormerObjects(world.state.db, 'rooms', ['A'])).map(({ externalId }) => externalId);

describe('a former object', () => {
  it('belongs to its record until the retry, and to a record of its own afterwards', async () => {
    const world = await openWithRoom();
    expect(await world.recordOf('A')).toMatchObject({ status: 'synced', external_id: 'room_1' });
    const accepted = (await world.recordOf('A'))?.object_hash;
    await setNumber(world, 'A', '2');
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ status: 'dead', external_id: 'room_1' });
    expect(await formerOf(world)).toEqual([]);
    await world.retry('A');
    const facts = { object_hash: accepted, destination_id: expect.anything() };
    const kept = { external_id: 'room_1', former_key: 'A', ...facts };
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'failed', external_id: null, object_hash: null },
      '#former room_1': kept,
    });
    await world.sync();
    await world.renameAll('b');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_2' },
      '#former room_1': kept,
    });
    expect(world.activeIds()).toEqual(['room_1', 'room_2']);
    expect(await countFormerObjects(world.state.db)).toBe(1);
  });

  it('is no former object any more when the row has its external id again', async () => {
    const world = await openWithRoom();
    const expectFirst = async (former: string[]) => {
      await setNumber(world, 'A', '1');
      await world.sync();
      expect(await world.recordOf('A')).toMatchObject({ status: 'synced', external_id: 'room_1' });
      expect(await formerOf(world)).toEqual(former);
    };
    const renumber = async () => [await setNumber(world, 'A', '2'), await world.sync()];
    await renumber();
    await expectFirst([]);
    await renumber();
    await world.retry('A');
    await expectFirst([]);
    // Once the new object is made, that one is the former object.
    await renumber();
    await world.retry();
    await world.sync();
    await expectFirst(['room_2']);
  });

  it.each([
    ['with a dead record', false],
    ['with a record accepted under its new id', true],
  ])('is retired alone by the next sync when an operator asks for it, %s', async (_, isAccepted) => {
    const world = await openWithRoom();
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('B', 'b', '7')`;
    await setNumber(world, 'A', '2');
    await world.sync();
    if (isAccepted) {
      await world.retry('A');
      await world.sync();
      expect(world.activeIds()).toEqual(['room_1', 'room_7', 'room_2']);
    }
    expect(await retireFormerA(world)).toEqual([{ stream: 'rooms', localKey: 'A', externalIds: ['room_1'] }]);
    expect(await retireFormerA(world)).toEqual([]);
    const { run } = await world.sync();
    expect(run.plan['rooms']).toMatchObject({ retire: 1 });
    expect(world.activeIds().toSorted()).toEqual(['room_2', 'room_7']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_2' },
      B: { status: 'synced' },
      '#former room_1': { status: 'retired', external_id: 'room_1' },
    });
    await world.expectNothingToSend();
  });

  it('is retired again when its record took it back and left it once more', async () => {
    const world = await openWithRoom();
    for (const number of ['2', '1', '2']) {
      await setNumber(world, 'A', number);
      await world.sync();
      await retireFormerA(world);
      await world.sync();
      expect(world.activeIds()).toEqual([`room_${number}`]);
    }
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', '#former room_1': 'retired' });
  });

  it('counts towards the limit of deactivations, and many are held', async () => {
    const world = await open(BY_NUMBER);
    await world.sql`INSERT INTO rooms (code, name, number) SELECT 'c' || i, 'n', i::text FROM generate_series(1, 20) AS i`;
    await world.sync();
    await world.sql`UPDATE rooms SET number = 'new' || number`;
    await world.sync();
    await retireFormer(world.state.db, { streams: ['rooms'], keys: [] });
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'held',
      holds: { rooms: { retire: { count: 20, reason: 'limit' } } },
    });
    expect(world.activeIds()).toHaveLength(40);
    await world.approve(run.id);
    expect(world.activeIds()).toHaveLength(20);
    expect(world.activeIds().every((extId) => extId.startsWith('room_new'))).toBe(true);
  });

  it('is kept for each of two changes in a row, and an operator may retire both', async () => {
    const world = await openRenumbered();
    await world.retry('A');
    await world.sync();
    await setNumber(world, 'A', '3');
    await world.sync();
    expect(await world.recordOf('A')).toMatchObject({ external_id: 'room_2', status: 'dead' });
    expect(await formerOf(world)).toEqual(['room_1']);
    expect(await retireFormerA(world)).toMatchObject([{ externalIds: ['room_1', 'room_2'] }]);
    await world.sync();
    expect(world.activeIds()).toEqual(['room_3']);
  });

  it('is left alone while a batch has claimed its record, and by a request for another stream', async () => {
    const world = await openRenumbered();
    expect(await retireFormer(world.state.db, { streams: ['halls'], keys: [] })).toEqual([]);
    await world.sql`UPDATE slotsync.records SET claimed_by = 'b', claimed_until = now() + interval '1 minute'`;
    expect(await retireFormerA(world)).toEqual([]);
    expect(await world.recordOf('A')).toMatchObject({ status: 'dead', external_id: 'room_1' });
    // Afterwards it takes the pending check of its record with it.
    const [{ at } = {}] = await world.sql`
      UPDATE slotsync.records SET check_after = now() + interval '1 minute', in_doubt = true, claimed_by = NULL,
        claimed_until = NULL RETURNING check_after::text AS at`;
    await retireFormerA(world);
    const checks = await world.sql`
      SELECT local_key, check_after::text AS at, in_doubt FROM slotsync.records ORDER BY local_key`;
    expect(checks).toEqual([
      { local_key: '#former room_1', at, in_doubt: true },
      { local_key: 'A', at: null, in_doubt: false },
    ]);
  });

  it('stays known when its record has neither a row nor an object of its own', async () => {
    const world = await openRenumbered();
    await world.retry('A');
    await world.sql`DELETE FROM rooms`;
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('B', 'b', '7')`;
    await world.sync();
    expect(await countFormerObjects(world.state.db)).toBe(1);
    await world.expectNothingToSend();
    await retireFormer(world.state.db, { streams: ['rooms'], keys: [] });
    await world.sync();
    expect(world.activeIds()).toEqual(['room_7']);
  });

  it('stays known when another row has taken over the object of its record', async () => {
    const world = await openRenumbered();
    await world.retry('A');
    await world.sync();
    await world.sql`UPDATE rooms SET code = 'B'`;
    await world.sync();
    await world.sync();
    expect(await world.recordOf('B')).toMatchObject({ status: 'synced', external_id: 'room_2' });
    expect(await countFormerObjects(world.state.db)).toBe(1);
    await retireFormer(world.state.db, { streams: ['rooms'], keys: [] });
    await world.sync();
    expect(world.activeIds()).toEqual(['room_2']);
  });

  it('is not retired when another row has taken it over', async () => {
    const world = await openRenumbered();
    await retireFormerA(world);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('B', 'b', '1')`;
    await world.sync();
    await world.sync();
    expect(world.activeIds().toSorted()).toEqual(['room_1', 'room_2']);
    expect(await world.recordOf('B')).toMatchObject({ status: 'synced', external_id: 'room_1' });
    expect(await world.recordOf('#former room_1')).toBeUndefined();
    await world.expectNothingToSend();
  });

  it.each([
    ['by a retry', (world: RoomWorld) => world.retry('A')],
    ['by its deactivation', retireFormerA],
  ])('has the referring records sent again with the new object when it is released %s', async (_, letGo) => {
    const world = await open({ streams: { ...BY_NUMBER.streams, courses: COURSES } });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '7')`;
    await world.sql`INSERT INTO courses VALUES ('c', 'C', 'A'), ('d', 'D', 'B')`;
    await world.sync();
    expect(world.fieldsOf('course_c')).toMatchObject({ 'course.room': 'room_1' });
    await setNumber(world, 'A', '2');
    await world.sync();
    await letGo(world);
    await world.sync();
    await world.sync();
    expect(world.fieldsOf('course_c')).toMatchObject({ 'course.room': 'room_2' });
    expect(world.fieldsOf('course_d')).toMatchObject({ 'course.room': 'room_7' });
  });
});
