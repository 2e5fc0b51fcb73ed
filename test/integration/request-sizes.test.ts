// `batchSize: 'auto'`: the number of objects in each request, as the service saw it.
import { describe, expect, it } from 'vitest';
import { keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const many = (count: number) => Array.from({ length: count }, (_, at) => `r${String(at).padStart(5, '0')}`);

/** Returns the last learned size, from the log. */
function learnedSize({ lines }: RoomWorld): unknown {
  const last = lines.findLast((line) => line.includes('number of objects in one request changed')) ?? '{}';
  return (JSON.parse(last) as { objects?: number }).objects;
}

const sizesOf = (world: RoomWorld) => world.writes().map(({ objects = 0 }) => objects);

describe('the size of requests', () => {
  it('grows while the service takes requests well, and is kept by the next run, unless it is configured', async () => {
    const world = await open(rooms({ owns: 'object' }), { sharesRequests: true });
    await world.addRooms(...many(2500));
    await world.sync();
    const sizes = sizesOf(world);
    expect(sizes[0]).toBe(100);
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(2500);
    const learned = learnedSize(world);
    expect(learned).toBeGreaterThanOrEqual(200);
    await world.expectInSync();

    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(sizesOf(world)[0]).toBe(learned);
    await world.expectInSync();

    const fixed = await open(rooms({ owns: 'object', batchSize: 40 }));
    await fixed.addRooms(...many(100));
    await fixed.sync();
    expect(sizesOf(fixed).toSorted((a, b) => a - b)).toEqual([20, 40, 40]);
    expect(learnedSize(fixed)).toBeUndefined();
  });

  it('does not limit finds: one find serves all writes of a thousand objects', async () => {
    const world = await open(rooms(), { sandbox: { maxObjects: 100 }, synced: many(1000) });
    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes().length).toBeGreaterThanOrEqual(10);
    expect(world.sandbox.arrivals().filter(({ path }) => path === '/v1/objects/find')).toHaveLength(1);
    await world.expectInSync();
  });
});
