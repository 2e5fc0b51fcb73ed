// The effect of a refusal: it depends on whether the object or the service is the cause.
import { describe, expect, it } from 'vitest';
import { addDueChecks } from '../../src/state/inbox/take-changes.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { addRooms, codes, expectInSync, keepRoomWorlds, rename, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const NO = { status: 400, message: 'no' };

const refusedRoom = async (world: World) => (await world.recordsOf('rooms'))['A'];

/** Returns the seconds until the record is checked again. */
async function secondsToSecondLook(world: World): Promise<number | null> {
  const [row] = await world.sql<{ seconds: number | null }[]>`
    SELECT extract(epoch FROM check_after - now())::float8 AS seconds FROM slotsync.records WHERE local_key = 'A'`;
  return row?.seconds ?? null;
}

/** Lets two minutes pass for every pending check. */
const pass = (world: World) =>
  world.sql`UPDATE slotsync.records SET check_after = check_after - interval '2 minutes'`;

// Guarantee 10
describe('an object that is refused alone', () => {
  it('is sent again after two minutes, and given up when it is refused again', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', NO);
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 1, dead: 0 } } });
    expect(await refusedRoom(world)).toMatchObject({
      status: 'failed',
      error_code: 'refused_400',
      error_message: expect.stringMatching(/^no; .*sent once more after 2 minutes/),
    });
    const seconds = await secondsToSecondLook(world);
    expect(seconds).toBeGreaterThan(60);
    expect(seconds).toBeLessThanOrEqual(120);

    await pass(world);
    const { run: second } = await world.sync();
    expect(second).toMatchObject({ status: 'partial', counts: { rooms: { failed: 0, dead: 1 } } });
    expect(await refusedRoom(world)).toMatchObject({
      status: 'dead',
      error_code: 'refused_400',
      error_message: 'no',
    });
  });

  it('is not given up by an earlier run, which does not postpone its second check', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', NO);
    await world.sync();
    await world.sql`UPDATE slotsync.records SET check_after = check_after - interval '1 minute'`;
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'failed' });
    expect(await secondsToSecondLook(world)).toBeLessThanOrEqual(60);
    await pass(world);
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'dead' });
  });

  it('is checked again after a retry, without being in doubt', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', NO);
    await world.sync();
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    expect(await secondsToSecondLook(world)).toBeNull();
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'failed', in_doubt: false });
    expect(await secondsToSecondLook(world)).toBeGreaterThan(60);
  });

  it.each([
    [
      'another reason',
      async ({ sandbox }: World) => sandbox.refuseObject('room_A', { status: 422, message: 'no' }),
    ],
    ['another row', async (world: World) => void (await rename(world, 'A', 'Aula'))],
  ])('is checked again for %s', async (_, change) => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', NO);
    await world.sync();
    await pass(world);
    await change(world);
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'failed' });
    expect(await secondsToSecondLook(world)).toBeGreaterThan(60);
    await pass(world);
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'dead' });
  });

  it('is put into the inbox when its second check is due, without being in doubt', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', NO);
    await world.sync();
    expect(await addDueChecks(world.state.db, ['rooms'])).toBe(false);
    await pass(world);
    expect(await addDueChecks(world.state.db, ['rooms'])).toBe(true);
    expect(await world.sql`SELECT local_key FROM slotsync.changes`).toEqual([{ local_key: 'A' }]);
    expect(await refusedRoom(world)).toMatchObject({ status: 'failed', in_doubt: false });
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'dead', in_doubt: false });
  });

  it('may get another external id, because the service never had the first one', async () => {
    const world = await open(rooms({ externalId: 'room_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
    world.sandbox.refuseObject('room_1', NO);
    await world.sync();
    await pass(world);
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'dead' });
    await world.sql`UPDATE rooms SET number = '2'`;
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'synced', external_id: 'room_2' });
  });

  it('is checked again if it was to be retired', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await addRooms(world, 'A', 'B');
    await world.sync();
    world.sandbox.refuseObject('room_A', { status: 409, message: 'no' });
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({
      status: 'failed',
      error_code: 'retirement_refused_409',
    });
    await pass(world);
    await world.sync();
    expect(await refusedRoom(world)).toMatchObject({ status: 'dead', error_code: 'retirement_refused_409' });
  });
});

describe('a service that refuses everything for a while', () => {
  it.each([400, 404])('has no record given up by %i and JSON', async (status) => {
    const world = await open(rooms());
    await addRooms(world, ...codes(20));
    world.sandbox.failNext({ path: '/objects', method: 'PUT', fault: 'status', status, times: 'always' });
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 20, dead: 0 } } });
    await world.sync();
    world.sandbox.clearFailures();
    await pass(world);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    await expectInSync(world);
  });
});
