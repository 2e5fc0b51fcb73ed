// Guarantee 5
// A run over unchanged rows sends nothing twice.
import { describe, expect, it } from 'vitest';
import {
  addRooms,
  codes,
  expectInSync,
  expectNothingToSend,
  keepRoomWorlds,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';

const open = keepRoomWorlds();

// Guarantee 5
describe('a second run', () => {
  it('sends no write over an unchanged mirror, whatever became of the records', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, ...codes(250), 'refused');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'r001'), ('c2', 'Two', 'nowhere'), ('c3', 'Three', NULL)`;
    world.sandbox.refuseObject('room_refused', { status: 400, message: 'no' });
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({
      rooms: { synced: 250, dead: 1 },
      courses: { synced: 2, deferred: 1 },
    });
    await expectNothingToSend(world);
    await expectNothingToSend(world);
  });

  it('sends only what changed', async () => {
    const world = await open(rooms({ batchSize: 3 }));
    await addRooms(world, ...codes(10));
    await world.sync();
    world.sandbox.clearArrivals();
    await rename(world, 'r003', 'Changed');
    await rename(world, 'r008', 'Changed too');
    await world.sync();
    expect(world.writes().map(({ objects }) => objects)).toEqual([2]);
    await expectInSync(world);
  });

  it('sends nothing for a change of a column that is not mapped', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await world.sql`UPDATE rooms SET number = '7'`;
    await expectNothingToSend(world);
    await expectNothingToSend(world);
  });

  it('sends no record again that was refused after a lost answer', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_B', { status: 400, message: 'no' });
    world.sandbox.failNext({ path: '/objects', fault: 'reset' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'dead' });
    await expectNothingToSend(world);
  });
});
