// `batchSize: 'auto'`: how full requests are, as the service saw them.
import { situationDocument } from '../../src/documents/situation.js';
import { contentToText } from '../../src/render/text.js';
import { readSituation } from '../../src/situation/situation.js';
import { describe, expect, it } from 'vitest';
import { listRequestSizes, saveRequestSize } from '../../src/state/request-sizes.js';
import { FIRST_SIZE } from '../../src/sync/apply/request-size.js';
import { createRequestSizes } from '../../src/sync/apply/request-sizes.js';
import type { World } from '../support/world.js';
import { until } from '../support/wait.js';
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
    expect(sizes[0]).toBe(100);
    expect(sizes.reduce((sum, one) => sum + one, 0)).toBe(2500);
    const [room] = await listRequestSizes(world.state.db);
    expect(room).toMatchObject({ type: 'room', tooMany: null });
    expect(room?.objects).toBeGreaterThanOrEqual(200);
    expect(room?.reason).toMatch(/^\d+ took \d+\.\d+ s$/);
    expect(world.lines.some((line) => line.includes('another number from now on'))).toBe(true);
    const facts = await readSituation(world.state.db, { streams: ['rooms'] });
    expect(facts.requestSizes).toMatchObject([{ type: 'room', objects: room?.objects }]);
    const { sections } = situationDocument({ ...facts, quota: null });
    const shown = sections.find(({ id }) => id === 'request-sizes') ?? {};
    expect(contentToText(shown, { timeZone: 'UTC' }).join('\n')).toMatch(
      /^type +objects a request +because\nroom +[\d ]+ +\d+ took/,
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
    const [room] = await listRequestSizes(world.state.db);
    expect(room?.objects).toBeLessThanOrEqual(250);
    await expectInSync(world);
  });

  it('is learned anew by a process whose clock is behind that of another, and stays learned', async () => {
    const world = await open(rooms());
    const changedAt = new Date(Date.now() + 24 * 60 * 60 * 1000);
    const reason = 'a clock that is a day ahead';
    await saveRequestSize(world.state.db, { type: 'room', ...FIRST_SIZE, objects: 400, reason, changedAt });
    let now = Date.now();
    const openSizes = () =>
      createRequestSizes({ state: world.state, log: world.log, requestTimeoutMs: 30_000, now: () => now });
    const sizes = openSizes();
    await sizes.refresh();
    expect(sizes.of('room').objects).toBe(400);
    for (const objects of [400, 200, 100]) {
      await sizes.learn('room', { outcome: 'too_large', objects, bytes: 30_000, seconds: 0.1 });
      now += 6000;
      await sizes.refresh();
    }
    expect(sizes.of('room')).toMatchObject({ objects: 50, tooMany: 100 });
    const other = openSizes();
    await other.refresh();
    expect(other.of('room')).toMatchObject({ objects: 50, tooMany: 100 });
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

  it('an object that was read too long before its write is read again, and changes at the service are kept', async () => {
    const world = await open(rooms());
    world.configure(rooms({ fields: { 'room.name': 'name' } }));
    await addRooms(world, ...many(200));
    await world.sync();
    const few = {
      objects: 1,
      accepted: 1,
      tooMany: 2,
      acceptedBytes: 1000,
      refusedBytes: null,
      seconds: null,
    };
    const size = { type: 'room', ...few, reason: 'a test', changedAt: new Date() };
    await saveRequestSize(world.state.db, size);
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
