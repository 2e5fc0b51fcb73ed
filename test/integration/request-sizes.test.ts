// `batchSize: 'auto'`: the number of objects in each request, as the service saw it.
import { describe, expect, it } from 'vitest';
import type { World } from '../support/world.js';
import { until } from '../support/wait.js';
import { addRooms, expectInSync, keepRoomWorlds, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();

const many = (count: number) => Array.from({ length: count }, (_, at) => `r${String(at).padStart(5, '0')}`);

/** Returns the last learned size, from the log. */
function learnedSize({ lines }: World): unknown {
  const last = lines.findLast((line) => line.includes('number of objects in one request changed')) ?? '{}';
  return (JSON.parse(last) as { objects?: number }).objects;
}

const sizesOf = (world: World) => world.writes().map(({ objects = 0 }) => objects);

describe('the size of requests', () => {
  it('grows while the service takes requests well, and is kept by the next run', async () => {
    const world = await open(rooms({ owns: 'object' }), { sharesRequests: true });
    await addRooms(world, ...many(2500));
    await world.sync();
    const sizes = sizesOf(world);
    expect(sizes[0]).toBe(100);
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(2500);
    const learned = learnedSize(world);
    expect(learned).toBeGreaterThanOrEqual(200);
    await expectInSync(world);

    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(sizesOf(world)[0]).toBe(learned);
    await expectInSync(world);
  });

  it('settles below what the service refuses, and nothing is lost', async () => {
    const world = await open(rooms({ owns: 'object' }), {
      sharesRequests: true,
      sandbox: { maxObjects: 250 },
    });
    await addRooms(world, ...many(3000));
    const { run, errors } = await world.sync();
    expect([run.status, errors]).toEqual(['succeeded', []]);
    expect(learnedSize(world)).toBeLessThanOrEqual(250);
    await expectInSync(world);
  });

  it('is the number that is configured', async () => {
    const world = await open(rooms({ owns: 'object', batchSize: 40 }));
    await addRooms(world, ...many(100));
    await world.sync();
    expect(sizesOf(world).toSorted((a, b) => a - b)).toEqual([20, 40, 40]);
    expect(learnedSize(world)).toBeUndefined();
  });

  it('does not limit finds: one find serves all writes of a thousand objects', async () => {
    const world = await open(rooms(), { sandbox: { maxObjects: 100 } });
    await addRooms(world, ...many(1000));
    await world.sync();
    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes().length).toBeGreaterThanOrEqual(10);
    expect(world.sandbox.arrivals().filter(({ path }) => path === '/v1/objects/find')).toHaveLength(1);
    await expectInSync(world);
  });

  it('does not delay a write beyond the age of its reading: the object is read again', async () => {
    const world = await open(rooms(), { sharesRequests: true, sandbox: { maxObjects: 1 } });
    world.configure(rooms({ fields: { 'room.name': 'name' } }));
    await addRooms(world, ...many(200));
    await world.sync();
    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    // More requests wait for their answers than the quota has slots; the others wait for a slot.
    world.sandbox.closeGate({ method: 'PUT' });
    const syncing = world.sync();
    await until(() => world.sandbox.gate().held >= 20, { describe: 'requests to wait for their answers' });
    world.sandbox.changeObject('room_r00199', { fields: [{ fieldId: 'room.seats', values: ['12'] }] });
    world.passDays(1);
    world.sandbox.openGate();
    expect((await syncing).errors).toEqual([]);
    expect(world.sandbox.arrivals().filter(({ path }) => path === '/v1/objects/find')).toHaveLength(2);
    expect(world.fieldsOf('room_r00199')).toEqual({ 'room.name': 'Room r00199!', 'room.seats': '12' });
    await expectInSync(world);
  });
});
