// A booked object is not deactivated. Its deactivation waits automatically for the end of its bookings.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { SandboxStatus } from '../../src/sandbox/reservations.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { formatMinute } from '../../src/text/format.js';
import { ROOMS, type Declaration } from '../support/campus.js';
import { codes, keepRooms, until, type RoomWorld } from '../support/steps.js';

const rooms = (
  changes: Partial<Declaration> = {},
  service: SlotsyncConfig['service'] = {},
): SlotsyncConfig => ({
  service,
  streams: { rooms: { ...ROOMS, retire: 'deactivate', ...changes } },
});

const HOUR = 60 * 60;
const DAY = 24 * HOUR;
const NOW = Math.floor(Date.now() / 1000);

const openWorld = keepRooms();
/** Opens rooms A to E and as many more as asked for, all synced. */
const open = (config: SlotsyncConfig = rooms(), more = 0) =>
  openWorld(config, { synced: ['A', 'B', 'C', 'D', 'E', ...codes(more)] });

/** Books rooms for an hour that begins in `inSeconds`. */
const book = (
  world: RoomWorld,
  extId: string,
  codes: string[],
  inSeconds = DAY,
  status: SandboxStatus[] = [],
) =>
  world.sandbox.addReservation({
    extId,
    begin: NOW + inSeconds,
    end: NOW + inSeconds + HOUR,
    status,
    objects: codes.map((code) => ({ typeId: 'room', objectId: `room_${code}` })),
  });
const bookingFinds = (world: RoomWorld) =>
  world.sandbox.arrivals().filter(({ path }) => path.endsWith('/reservations/find'));

describe('an object with bookings yet to come', () => {
  it('is not retired by a process whose clock is ahead of the bookings', async () => {
    const world = await open();
    book(world, 'res_1', ['A'], DAY);
    await world.remove('A');
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * DAY * 1000 });
    onTestFinished(() => void vi.useRealTimers());
    await world.sync();
    expect(world.isActive('room_A')).toBe(true);
  });

  it('is not retired and names its bookings, while other objects of its request are retired', async () => {
    const world = await open();
    for (const at of [4, 2, 1, 3, 5]) book(world, `res_${at}`, ['A'], at * DAY);
    book(world, 'res_6', ['A', 'B'], 6 * DAY);
    await world.remove('A', 'B', 'C');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { deferred: 2, synced: 1 } } });
    expect(['A', 'B', 'C'].map((code) => world.isActive(`room_${code}`))).toEqual([true, true, false]);
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
    await world.remove('A');
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
    expect(world.isActive('room_A')).toBe(false);
    expect(bookingFinds(world)).toHaveLength(2);
  });

  it('is retired by the run after its bookings are over or cancelled, and synced again when its row is back', async () => {
    const world = await open();
    for (const code of 'ABC') book(world, `res_${code}`, [code]);
    await world.remove('A', 'B', 'C');
    const { runId, queue } = await world.plan();
    const timeZone = async () => 'Asia/Tokyo';
    for (const id of queue) await world.apply(id, undefined, { ...world.deps(), timeZone });
    await world.finish(runId, []);
    const shown = formatMinute(new Date((NOW + DAY) * 1000), 'Asia/Tokyo');
    expect((await world.recordOf('A'))?.error_message).toContain(`booked: res_A at ${shown}`);
    world.sandbox.cancelReservation('res_B');
    await world.addRooms('C');
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.inactiveIds()).toEqual(['room_B']);
    expect(world.writes()).toHaveLength(1);
    expect(await world.recordOf('C')).toMatchObject({
      status: 'synced',
      error_code: null,
      error_message: null,
    });
    world.passDays(2);
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'retired', B: 'retired' });
    expect(world.inactiveIds()).toEqual(['room_A', 'room_B']);
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.sandbox.arrivals()).toEqual([]);
  });

  it('is retired or not by the time and the status of the booking', async () => {
    const bookings: [what: string, inSeconds: number, status: SandboxStatus[], keeps: boolean][] = [
      ['begun', -HOUR / 2, [], true],
      ['over', -2 * HOUR, [], false],
      ['incomplete and preliminary', DAY, ['B_INCOMPLETE', 'C_PRELIMINARY'], true],
      ['planned', DAY, ['B_COMPLETE', 'C_PLANNED'], true],
      ['requested', DAY, ['B_COMPLETE', 'C_REQUESTED'], true],
      ['rejected', DAY, ['B_COMPLETE', 'C_REJECTED'], false],
      ['years ahead', 3 * 365 * DAY, [], true],
    ];
    const all = codes(bookings.length);
    const world = await open(rooms(), bookings.length);
    for (const [at, [, inSeconds, status]] of bookings.entries())
      book(world, `res_${at}`, [all[at] ?? ''], inSeconds, status);
    await world.remove(...all);
    await world.sync();
    expect(bookings.map(([what], at) => [what, world.isActive(`room_${all[at]}`)])).toEqual(
      bookings.map(([what, , , keeps]) => [what, keeps]),
    );
  });
});

describe('the bookings of objects to be retired', () => {
  it('are read in a few requests, whatever is booked meanwhile', async () => {
    const world = await open(rooms({}, { pageSize: 2 }), 1);
    for (const [at, code] of ['A', 'A', 'B', 'C', 'D'].entries()) book(world, `res_${at}`, [code]);
    await world.remove('A', 'B', 'C', 'D', 'E');
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

  it('are not asked for when nothing is retired, or for an object that is inactive already', async () => {
    const world = await open();
    await world.sql`UPDATE rooms SET name = 'x'`;
    await world.sync();
    const object = world.sandbox.object('room_A');
    if (!object) throw new Error('no object');
    world.sandbox.putObject({ ...object, active: false });
    await world.remove('A');
    await world.sync();
    expect(bookingFinds(world)).toEqual([]);
  });

  it('keep all objects active if they cannot be read', async () => {
    const world = await open();
    await world.remove('A', 'B');
    world.sandbox.failNext({ path: '/reservations/find', fault: 'status', status: 500, times: 4 });
    const { run } = await world.sync();
    expect(run.status).toBe('failed');
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([true, true]);
    await world.sync();
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([false, false]);
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
    await world.remove('A', 'B');
    const { run } = await world.sync();
    expect(run.status).toBe('succeeded');
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'deferred', B: 'retired' });
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([true, false]);
  });

  it('count as requests in a preview, and are not asked for with unlessReserved: false', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await world.remove('A');
    expect(await world.preview()).toMatchObject({ requests: 3 });
    world.configure(rooms({ unlessReserved: false }));
    expect(await world.preview()).toMatchObject({ requests: 2 });
    await world.sync();
    expect(world.isActive('room_A')).toBe(false);
    expect(bookingFinds(world)).toEqual([]);
  });
});

describe('deactivations that wait for the end of bookings', () => {
  it('are not held again night after night once they were let through', async () => {
    const world = await open(rooms({ limits: { retire: { count: 2, percent: 10 } } }), 5);
    book(world, 'res_1', ['A', 'B']);
    await world.remove('A', 'B');
    await world.sync();
    await world.sql`UPDATE slotsync.batches SET created_at = created_at - interval '1 day'`;
    await world.remove('C');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 3 } } });
    expect(['A', 'B', 'C'].map((code) => world.isActive(`room_${code}`))).toEqual([true, true, false]);
  });

  it('are held with all other deactivations when the source is empty', async () => {
    const world = await open();
    book(world, 'res_1', ['A']);
    await world.remove('A');
    await world.sync();
    world.sandbox.cancelReservation('res_1');
    await world.sql`TRUNCATE rooms`;
    expect((await world.sync()).run.status).toBe('held');
    expect(world.isActive('room_A')).toBe(true);
  });
});
