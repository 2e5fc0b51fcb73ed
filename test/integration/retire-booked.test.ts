// A booked object is not deactivated. Its deactivation waits automatically for the end of its bookings.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { SandboxStatus } from '../../src/sandbox/reservations.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { formatMinute } from '../../src/text/format.js';
import { ROOMS, type Declaration } from '../support/campus.js';
import { until } from '../support/wait.js';
import { type World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const rooms = (
  changes: Partial<Declaration> = {},
  service: SlotsyncConfig['service'] = {},
): SlotsyncConfig => ({
  service,
  streams: {
    rooms: { ...ROOMS, retire: 'deactivate', ...changes },
  },
});

const HOUR = 60 * 60;
const DAY = 24 * HOUR;
const NOW = Math.floor(Date.now() / 1000);

const openWorld = keepWorlds();

/** Opens rooms A to E and as many more as asked for, all synced. */
async function open(config: SlotsyncConfig = rooms(), more = 0): Promise<World> {
  const world = await openWorld(config);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`
    INSERT INTO rooms SELECT c, 'Room ' || c FROM unnest('{A,B,C,D,E}'::text[]) AS c
    UNION ALL SELECT 'm' || i, 'Room' FROM generate_series(1, ${more}) AS i`;
  await world.sync();
  world.sandbox.clearArrivals();
  return world;
}

/** Books rooms for an hour that begins in `inSeconds`. */
const book = (world: World, extId: string, codes: string[], inSeconds = DAY, status: SandboxStatus[] = []) =>
  world.sandbox.addReservation({
    extId,
    begin: NOW + inSeconds,
    end: NOW + inSeconds + HOUR,
    status,
    objects: codes.map((code) => ({ typeId: 'room', objectId: `room_${code}` })),
  });
const remove = (world: World, ...codes: string[]) => world.sql`DELETE FROM rooms WHERE code = ANY (${codes})`;
const isActive = (world: World, code: string) => world.sandbox.object(`room_${code}`)?.active;
const bookingFinds = (world: World) =>
  world.sandbox.arrivals().filter(({ path }) => path.endsWith('/reservations/find'));

describe('an object with bookings yet to come', () => {
  it('is not retired by a process whose clock is ahead of the bookings', async () => {
    const world = await open();
    book(world, 'res_1', ['A'], DAY);
    await remove(world, 'A');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * DAY * 1000 });
    onTestFinished(() => void vi.useRealTimers());
    await world.sync();
    expect(isActive(world, 'A')).toBe(true);
  });

  it('is not retired and names its bookings, while other objects of its request are retired', async () => {
    const world = await open();
    for (const at of [4, 2, 1, 3, 5]) book(world, `res_${at}`, ['A'], at * DAY);
    book(world, 'res_6', ['A', 'B'], 6 * DAY);
    await remove(world, 'A', 'B', 'C');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { deferred: 2, synced: 1 } } });
    expect(['A', 'B', 'C'].map((code) => isActive(world, code))).toEqual([true, true, false]);
    const { A, B } = await world.recordsOf('rooms');
    expect(A).toMatchObject({ status: 'deferred', error_code: 'still_reserved', waits_for: null });
    expect(A?.error_message).toMatch(
      /^the row was deleted, but its object is booked: res_1 at \d{4}-\d\d-\d\d \d\d:\d\d UTC, res_2 at .*, res_3 at [^,]* and 3 more$/,
    );
    expect(B?.error_message).toMatch(/booked: res_6 at [^,]* UTC$/);
    expect(bookingFinds(world)).toHaveLength(1);
  });

  it('has its bookings searched twice at most, however long the search takes', async () => {
    const world = await open();
    await remove(world, 'A');
    const { queue } = await world.plan();
    const deps = world.deps();
    let ahead = 0;
    const findUpcomingReservations: typeof deps.destination.findUpcomingReservations = (...asked) => {
      ahead += 100_000;
      return deps.destination.findUpcomingReservations(...asked);
    };
    const destination = { ...deps.destination, findUpcomingReservations };
    const clock = () => performance.now() + ahead;
    for (const id of queue) await world.apply(id, undefined, { ...deps, clock, destination });
    expect(isActive(world, 'A')).toBe(false);
    expect(bookingFinds(world)).toHaveLength(2);
  });

  it('shows the times of its bookings in the configured time zone', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    const { queue } = await world.plan();
    const timeZone = async () => 'Asia/Tokyo';
    for (const id of queue) await world.apply(id, undefined, { ...world.deps(), timeZone });
    const shown = formatMinute(new Date((NOW + DAY) * 1000), 'Asia/Tokyo');
    expect((await world.recordsOf('rooms')).A?.error_message).toContain(`booked: res_1 at ${shown}`);
  });

  it('is retired by the run after its bookings are over', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    await world.sync();
    await world.sync();
    expect(isActive(world, 'A')).toBe(true);
    world.passDays(2);
    await world.sync();
    expect(isActive(world, 'A')).toBe(false);
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'retired' });
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.sandbox.arrivals()).toEqual([]);
  });

  it('is retired when its bookings are cancelled', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    await world.sync();
    world.sandbox.cancelReservation('res_1');
    await world.sync();
    expect(isActive(world, 'A')).toBe(false);
  });

  it('is synced again, without a request, when its row comes back', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    await world.sync();
    await world.sql`INSERT INTO rooms VALUES ('A', 'Room A')`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', error_code: null, error_message: null },
    });
  });

  it('is retired where the stream says unlessReserved: false', async () => {
    const world = await open(rooms({ unlessReserved: false }));
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'A')).toBe(false);
    expect(bookingFinds(world)).toEqual([]);
  });

  it.each<[string, number, SandboxStatus[], boolean]>([
    ['is not retired with a booking that has begun', -HOUR / 2, [], true],
    ['is retired with a booking that is over', -2 * HOUR, [], false],
    [
      'is not retired with an incomplete and preliminary booking',
      DAY,
      ['B_INCOMPLETE', 'C_PRELIMINARY'],
      true,
    ],
    ['is not retired with a planned booking', DAY, ['B_COMPLETE', 'C_PLANNED'], true],
    ['is not retired with a requested booking', DAY, ['B_COMPLETE', 'C_REQUESTED'], true],
    ['is retired with a rejected booking', DAY, ['B_COMPLETE', 'C_REJECTED'], false],
    ['is not retired with a booking years ahead', 3 * 365 * DAY, [], true],
  ])('%s', async (_, inSeconds, status, keeps) => {
    const world = await open();
    book(world, 'res_1', ['A'], inSeconds, status);
    await remove(world, 'A');
    await world.sync();
    expect(isActive(world, 'A')).toBe(keeps);
  });
});

describe('the bookings of objects to be retired', () => {
  it('are asked for page by page, each time for the objects not seen yet', async () => {
    const world = await open(rooms({}, { pageSize: 2 }));
    for (const at of [1, 2, 3, 4]) book(world, `res_${at}`, ['A'], at * DAY);
    book(world, 'res_5', ['B'], 5 * DAY);
    await remove(world, 'A', 'B', 'C');
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'deferred', B: 'deferred', C: 'retired' });
    expect(bookingFinds(world)).toHaveLength(2);
  });

  it('are read in a few requests, whatever is booked meanwhile', async () => {
    const world = await open(rooms({}, { pageSize: 2 }), 1);
    for (const [at, code] of ['A', 'A', 'B', 'C', 'D'].entries()) book(world, `res_${at}`, [code]);
    await remove(world, 'A', 'B', 'C', 'D', 'E');
    const finds = { path: '/reservations/find', hold: 'answer' } as const;
    world.sandbox.closeGate(finds);
    let isDone = false;
    const syncing = world.sync().finally(() => {
      isDone = true;
    });
    for (let more = 1; ; more++) {
      await until(() => isDone || world.sandbox.gate().held > 0, { describe: 'a find, or the end' });
      if (isDone) break;
      book(world, `more_${more}`, ['A']);
      world.sandbox.openGate();
      world.sandbox.closeGate(finds);
    }
    world.sandbox.openGate();
    expect((await syncing).run.status).toBe('succeeded');
    expect(await world.statusesOf('rooms')).toMatchObject({
      A: 'deferred',
      B: 'deferred',
      C: 'deferred',
      D: 'deferred',
      E: 'retired',
    });
    expect(bookingFinds(world).length).toBeLessThanOrEqual(5);
  });

  it('are asked for 4 times if all objects have many, the third time for one page', async () => {
    const world = await open(rooms({}, { pageSize: 4 }), 5);
    for (const code of ['A', 'B', 'C', 'D'])
      for (const day of [1, 2, 3, 4]) book(world, `res_${code}_${day}`, [code], day * DAY);
    await remove(world, 'A', 'B', 'C', 'D', 'E');
    await world.sync();
    expect(bookingFinds(world)).toHaveLength(4);
    expect(await world.statusesOf('rooms')).toMatchObject({
      A: 'deferred',
      B: 'deferred',
      C: 'deferred',
      D: 'deferred',
      E: 'retired',
    });
  });

  it('are not asked for when nothing is retired, or for an object that is inactive already', async () => {
    const world = await open();
    await world.sql`UPDATE rooms SET name = 'x'`;
    await world.sync();
    const object = world.sandbox.object('room_A');
    if (!object) throw new Error('no object');
    world.sandbox.putObject({ ...object, active: false });
    await remove(world, 'A');
    await world.sync();
    expect(bookingFinds(world)).toEqual([]);
  });

  it('keep all objects active if they cannot be read', async () => {
    const world = await open();
    await remove(world, 'A', 'B');
    world.sandbox.failNext({ path: '/reservations/find', fault: 'status', status: 500, times: 4 });
    const { run } = await world.sync();
    expect(run.status).toBe('failed');
    expect([isActive(world, 'A'), isActive(world, 'B')]).toEqual([true, true]);
    await world.sync();
    expect([isActive(world, 'A'), isActive(world, 'B')]).toEqual([false, false]);
  });

  it('keep all objects active if they do not name their objects', async () => {
    const world = await open();
    await remove(world, 'A');
    const booking = { id: 1, extId: 'res_1', begin: NOW + DAY, end: NOW + 2 * DAY };
    const body = { results: [booking], page: 1, totalPages: 1, totalResults: 1 };
    world.sandbox.failNext({ path: '/reservations/find', fault: 'status', status: 200, body, times: 4 });
    await world.sync();
    const { A } = await world.recordsOf('rooms');
    expect(A).toMatchObject({ status: 'deferred', error_message: expect.stringContaining('res_1') });
    expect(isActive(world, 'A')).toBe(true);
  });

  it('count beside objects without a name, which keep no object active', async () => {
    const world = await open();
    const { id } = world.sandbox.addObject({ typeId: 'room' });
    const objects = [
      { typeId: 'room', objectId: null },
      { typeId: 'room', objectId: id },
      { typeId: null, objectId: null },
    ];
    const [begin, end] = [NOW + DAY, NOW + 2 * DAY];
    const A = { typeId: 'room', objectId: 'room_A' };
    world.sandbox.addReservation({ extId: null, begin, end, status: ['X_OWN'], objects: [...objects, A] });
    world.sandbox.addReservation({ extId: 'res_2', begin, end, objects });
    await remove(world, 'A', 'B');
    const { run } = await world.sync();
    expect(run.status).toBe('succeeded');
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'deferred', B: 'retired' });
    expect([isActive(world, 'A'), isActive(world, 'B')]).toEqual([true, false]);
  });

  it('count as requests in a preview', async () => {
    const world = await open();
    await remove(world, 'A');
    expect(await previewStream(world.deps(), world.stream('rooms'))).toMatchObject({ requests: 3 });
    world.configure(rooms({ unlessReserved: false }));
    expect(await previewStream(world.deps(), world.stream('rooms'))).toMatchObject({ requests: 2 });
  });
});

describe('deactivations that wait for the end of bookings', () => {
  it('are not held again night after night once they were let through', async () => {
    const world = await open(rooms({ limits: { retire: { count: 2, percent: 10 } } }), 5);
    book(world, 'res_1', ['A', 'B']);
    await remove(world, 'A', 'B');
    await world.sync();
    await world.sql`UPDATE slotsync.batches SET created_at = created_at - interval '1 day'`;
    await remove(world, 'C');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 3 } } });
    expect(['A', 'B', 'C'].map((code) => isActive(world, code))).toEqual([true, true, false]);
  });

  it('are held with all other deactivations when the source is empty', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await remove(world, 'A');
    await world.sync();
    world.sandbox.cancelReservation('res_1');
    await world.sql`TRUNCATE rooms`;
    expect((await world.sync()).run.status).toBe('held');
    expect(isActive(world, 'A')).toBe(true);
  });
});
