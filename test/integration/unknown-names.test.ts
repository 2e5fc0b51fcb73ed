// The check of the types and fields that runs write. It asks the service before the first write, and not again for an hour in
// the same process.
import { expect, it } from 'vitest';
import { createNameCheck } from '../../src/sync/plan/unknown-names.js';
import { keepRoomWorlds, roomsAndCourses } from '../support/room-worlds.js';

const open = keepRoomWorlds();
const CONTEXT = { lane: 'sync' } as const;
const MINUTE = 60 * 1000;

it('the check of names asks once for all types and once for all fields, again after an hour', async () => {
  const world = await open(roomsAndCourses());
  let now = 0;
  const nameCheck = createNameCheck(world.destination, () => now);
  const [rooms, courses] = [world.stream('rooms'), world.stream('courses')];
  const requests = async (...streams: (typeof rooms)[]) => {
    world.sandbox.clearArrivals();
    await nameCheck.requireKnownNames(streams, CONTEXT);
    return world.sandbox.arrivals().filter(({ path }) => !path.endsWith('/authenticate')).length;
  };
  expect(await requests(rooms)).toBe(2);
  expect(await requests(rooms, courses)).toBe(2);
  now += 59 * MINUTE;
  expect(await requests(rooms, courses)).toBe(0);
  now += 2 * MINUTE;
  expect(await requests(rooms, courses)).toBe(2);
});

it('the check of names asks again for names that the service did not know', async () => {
  const world = await open(roomsAndCourses(), { sandbox: { schema: { types: [], fields: [] } } });
  const nameCheck = createNameCheck(world.destination, () => 0);
  for (let attempt = 0; attempt < 2; attempt++) {
    world.sandbox.clearArrivals();
    const asking = nameCheck.requireKnownNames([world.stream('rooms')], CONTEXT);
    await expect(asking).rejects.toMatchObject({ code: 'configuration' });
    expect(world.sandbox.arrivals().length).toBeGreaterThan(0);
  }
});
