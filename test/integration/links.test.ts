// Guarantee 5
// Links: made only where nothing speaks against them, and what they are worth to the writing of rows.
import { describe, expect, it } from 'vitest';
import { linkRecords, type NewLink } from '../../src/state/records/link-records.js';
import { claimObjects } from '../../src/state/records/object-claims.js';
import { addRooms, keepRoomWorlds, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();

const link = (localKey: string, externalId: string, more: Partial<NewLink> = {}): NewLink => ({
  stream: 'rooms',
  localKey,
  externalId,
  destinationId: null,
  assignsId: false,
  linkedBy: 'match',
  fields: ['room.name'],
  ...more,
});

describe('linkRecords', () => {
  it('links keys that have no record, and notes the object with a record that was never accepted', async () => {
    const world = await open(rooms());
    await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status) VALUES
      ('rooms', 'B', 'room_B', 'failed')`;
    const { linked, refused } = await linkRecords(world.state, [link('A', 'old_A'), link('B', 'old_B')]);
    expect(linked.map(({ localKey }) => localKey)).toEqual(['A', 'B']);
    expect(refused).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({ B: { external_id: 'old_B' } });
    expect(await world.sql`SELECT FROM slotsync.object_claims`).toHaveLength(0);
  });

  it.each([
    ['a second link of a key', link('A', 'other'), /linked to 'old_A' already/],
    ['a second link to an object', link('B', 'old_A'), /rooms 'A' is linked to 'old_A'/],
    ['a second link to a number', link('B', 'other', { destinationId: 7 }), /number 7/],
    ['an object that was accepted as another record', link('B', 'room_S'), /object of rooms 'S'/],
    ['a key whose object was accepted', link('S', 'other'), /has the object 'room_S'/],
    ['an object whose write is in doubt', link('B', 'room_D'), /object of rooms 'D'/],
    ['a key whose write is in doubt', link('D', 'other'), /has the object 'room_D'/],
    ['an object that a batch has claimed', link('B', 'busy'), /a batch is writing/],
  ])('refuses %s', async (_, wanted, reason) => {
    const world = await open(rooms());
    await addRooms(world, 'S');
    await world.sync();
    await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status, in_doubt) VALUES
      ('rooms', 'D', 'room_D', 'failed', true)`;
    await claimObjects(world.state.db, { token: 'batch', seconds: 60 }, ['busy']);
    await linkRecords(world.state, [link('A', 'old_A', { destinationId: 7 })]);
    const { linked, refused } = await linkRecords(world.state, [wanted]);
    expect({ linked, refused }).toEqual({
      linked: [],
      refused: [{ link: wanted, reason: expect.any(String) }],
    });
    expect(refused[0]?.reason).toMatch(reason);
    expect(await world.sql`SELECT FROM slotsync.links`).toHaveLength(1);
  });

  it('of two at once for one object makes at most one', async () => {
    const world = await open(rooms());
    const made = await Promise.all(
      ['A', 'B', 'C'].map((key) => linkRecords(world.state, [link(key, 'old')])),
    );
    expect(made.flatMap(({ linked }) => linked).length).toBeLessThanOrEqual(1);
    expect(made.flatMap(({ refused }) => refused).length).toBeGreaterThanOrEqual(2);
  });
});
