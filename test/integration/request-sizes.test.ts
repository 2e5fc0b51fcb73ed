// `batchSize: 'auto'`: how full requests are, as the service saw them.
import { describe, expect, it } from 'vitest';
import { listRequestSizes } from '../../src/state/request-sizes.js';
import type { World } from '../support/world.js';
import { addRooms, expectInSync, keepRoomWorlds, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();

const many = (count: number) => Array.from({ length: count }, (_, at) => `r${String(at).padStart(5, '0')}`);

const sizesOf = (world: World) => world.writes().map(({ objects = 0 }) => objects);

describe('the size of requests', () => {
  it('grows while the service takes them well, is kept in the state, and is taken up by the next run', async () => {
    const world = await open(rooms({ owns: 'object' }));
    await addRooms(world, ...many(2500));
    await world.sync();
    const sizes = sizesOf(world);
    expect(sizes.slice(0, 2)).toEqual([100, 200]);
    expect(sizes).toContain(400);
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(2500);
    const [room] = await listRequestSizes(world.state.db);
    expect(room).toMatchObject({ type: 'room', tooMany: null });
    expect(room?.reason).toMatch(/^\d+ took 0\.\d+ s$/);
    expect(world.lines.filter((line) => line.includes('another number from now on')).length).toBeGreaterThan(
      2,
    );
    await expectInSync(world);

    await world.sql`UPDATE rooms SET name = name || '!'`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(sizesOf(world)[0]).toBe(room?.objects);
    await expectInSync(world);
  });

  it('settles below what the service refuses, and nothing is lost', async () => {
    const world = await open(rooms({ owns: 'object' }), { sandbox: { maxObjects: 250 } });
    await addRooms(world, ...many(3000));
    const { run, errors } = await world.sync();
    expect([run.status, errors]).toEqual(['succeeded', []]);
    expect(sizesOf(world).filter((objects) => objects > 250).length).toBeLessThanOrEqual(10);
    const [room] = await listRequestSizes(world.state.db);
    expect(room?.objects).toBeGreaterThanOrEqual(212);
    await expectInSync(world);
  });

  it('is that of a number where one is configured', async () => {
    const world = await open(rooms({ owns: 'object', batchSize: 40 }));
    await addRooms(world, ...many(100));
    await world.sync();
    expect(sizesOf(world).toSorted((a, b) => a - b)).toEqual([20, 40, 40]);
    expect(await listRequestSizes(world.state.db)).toEqual([]);
  });

  it('needs no read of its own: one find serves all writes of a thousand objects', async () => {
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
});
