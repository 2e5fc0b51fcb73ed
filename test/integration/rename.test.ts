// Guarantee 4
// A row has another key: its object follows it, with its number and its bookings, or nothing has changed.
import { describe, expect, it } from 'vitest';
import { claimRecords } from '../../src/state/records/claim-records.js';
import { claimObjects } from '../../src/state/records/claim-objects.js';
import { renameKey } from '../../src/sync/operator/rename-record.js';
import {
  addRooms,
  expectNothingToSend,
  keepRoomWorlds,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

const renameRow = (world: World, from: string, to: string) =>
  world.sql`UPDATE rooms SET code = ${to} WHERE code = ${from}`;
const rename = (world: World, from: string, to: string) =>
  renameKey(world.deps(), world.stream('rooms'), { from, to });
/** The row of A is renamed while a batch writes the record of a key. */
async function claimBeforeRename(world: World, key: string): Promise<void> {
  await renameRow(world, 'A', 'B');
  const claim = { token: 't', stream: 'rooms', seconds: 60, lateSeconds: 60 };
  await claimRecords(world.state.db, { ...claim, keys: [key], runId: 1 });
}
const linksOf = (world: World) => world.sql<{ local_key: string; external_id: string; linked_by: string }[]>`
  SELECT local_key, external_id, linked_by FROM slotsync.links ORDER BY local_key`;

describe('rename', () => {
  it('lets the object follow the row: it keeps its number, is updated, and no other is made or retired', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await addRooms(world, 'A', 'C');
    await world.sync();
    const { id } = world.sandbox.object('room_A') ?? {};
    await world.sql`UPDATE rooms SET code = 'B', seats = 4 WHERE code = 'A'`;
    expect(await rename(world, 'A', 'B')).toEqual({
      externalId: 'room_A',
      isLinked: true,
      templateId: 'room_B',
    });
    expect(await linksOf(world)).toEqual([{ local_key: 'B', external_id: 'room_A', linked_by: 'rename' }]);
    await world.drainInbox();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', C: 'synced' });
    expect(world.sandbox.object('room_A')).toMatchObject({ id, active: true });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.seats': '4' });
    expect(world.sandbox.objects()).toHaveLength(2);
    await expectNothingToSend(world);
  });

  it('links nothing where the template makes the same external id, and moves a link that is there', async () => {
    const world = await open(rooms({ externalId: 'room_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    await world.sync();
    await renameRow(world, 'A', 'B');
    expect(await rename(world, 'A', 'B')).toMatchObject({ isLinked: false });
    expect(await linksOf(world)).toEqual([]);
    await world.sql`UPDATE rooms SET code = 'C', number = '3'`;
    expect(await rename(world, 'B', 'C')).toMatchObject({ isLinked: true });
    await renameRow(world, 'C', 'D');
    expect(await rename(world, 'C', 'D')).toMatchObject({ isLinked: true });
    expect(await linksOf(world)).toEqual([{ local_key: 'D', external_id: 'room_1', linked_by: 'rename' }]);
    await world.sync();
    await world.sql`UPDATE rooms SET code = 'E', number = '1'`;
    expect(await rename(world, 'D', 'E')).toMatchObject({ isLinked: false });
    expect(await linksOf(world)).toEqual([]);
    await world.sync();
    expect(world.sandbox.objects().map(({ extId, active }) => [extId, active])).toEqual([['room_1', true]]);
    expect(await world.statusesOf('rooms')).toEqual({ E: 'synced' });
  });

  it('brings a retired object back, and takes the place of a record that was never accepted', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await addRooms(world, 'A', 'C');
    await world.sync();
    await renameRow(world, 'A', 'B');
    world.sandbox.refuseObject('room_B', { status: 400, message: 'no' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'retired' });
    await world.sql`UPDATE slotsync.records SET check_after = NULL WHERE local_key = 'B'`;
    await rename(world, 'A', 'B');
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', C: 'synced' });
    expect(world.sandbox.object('room_A')).toMatchObject({ active: true });
    expect(world.sandbox.object('room_B')).toBeUndefined();
  });

  it('wakes what waits for the new key, moves what waits for the old one, its drift and its changes', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, 'A');
    await world.sync();
    await world.sql`INSERT INTO courses VALUES ('1', 'One', 'B')`;
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ 1: 'deferred' });
    await renameRow(world, 'A', 'B');
    await world.sql`
      INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'A', 'changed', now())`;
    await world.sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
    await rename(world, 'A', 'B');
    expect(await world.sql`SELECT local_key FROM slotsync.drift`).toMatchObject([{ local_key: 'B' }]);
    expect(await world.sql`SELECT FROM slotsync.changes WHERE local_key = 'A'`).toHaveLength(0);
    await world.drainInbox();
    expect(await world.statusesOf('courses')).toEqual({ 1: 'synced' });
    expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_A' });
  });

  it('is refused to a row of the template that comes later: its record names the owner', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await renameRow(world, 'A', 'B');
    await rename(world, 'A', 'B');
    await addRooms(world, 'A');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringContaining("rooms 'B'"),
      },
      B: { status: 'synced', external_id: 'room_A' },
    });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'Room A' });
  });

  it.each<[string, (world: World) => Promise<unknown>, [string, string], RegExp]>([
    [
      'both rows are there',
      (world) => addRooms(world, 'B'),
      ['A', 'B'],
      /'A' is still in the mirror, and so is that of 'B'/,
    ],
    ['the old row is there', async () => undefined, ['A', 'B'], /'A' is still in the mirror$/],
    ['both keys are one', async () => undefined, ['A', 'A'], /both keys/],
    [
      'there is no new row',
      (world) => world.sql`DELETE FROM rooms WHERE code = 'A'`,
      ['A', 'B'],
      /'B' has no row/,
    ],
    ['there is no record', (world) => addRooms(world, 'B'), ['X', 'B'], /'X' has no object/],
    [
      'the new record has an object',
      (world) => world.sql`DELETE FROM rooms WHERE code = 'A'`,
      ['A', 'C'],
      /object of its own, 'room_C'/,
    ],
    [
      'a batch writes the old record',
      (world) => claimBeforeRename(world, 'A'),
      ['A', 'B'],
      /a batch is writing/,
    ],
    [
      'a batch writes the new record',
      (world) => claimBeforeRename(world, 'B'),
      ['A', 'B'],
      /a batch is writing/,
    ],
    [
      'a batch writes the object',
      async (world) => {
        await renameRow(world, 'A', 'B');
        await claimObjects(world.state.db, { token: 't', seconds: 60 }, ['room_A']);
      },
      ['A', 'B'],
      /a batch is writing/,
    ],
    [
      'a write of the new record is in doubt',
      async (world) => {
        await renameRow(world, 'A', 'B');
        await world.sql`INSERT INTO slotsync.records (stream, local_key, status, in_doubt) VALUES ('rooms', 'B', 'failed', true)`;
      },
      ['A', 'B'],
      /may have been sent/,
    ],
    [
      'the new key is linked',
      async (world) => {
        await renameRow(world, 'A', 'B');
        await world.sql`INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'B', 'x', 'match')`;
      },
      ['A', 'B'],
      /linked to 'x'/,
    ],
  ])('is refused when %s, and changes nothing', async (_, prepare, [from, to], reason) => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'C');
    await world.sync();
    await prepare(world);
    const before = await world.recordsOf('rooms');
    await expect(rename(world, from, to)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringMatching(reason),
    });
    expect(await world.recordsOf('rooms')).toEqual(before);
    expect((await linksOf(world)).filter(({ linked_by }) => linked_by === 'rename')).toEqual([]);
    expect(await world.sql`SELECT FROM slotsync.object_claims WHERE claimed_by LIKE 'rename%'`).toHaveLength(
      0,
    );
  });
});
