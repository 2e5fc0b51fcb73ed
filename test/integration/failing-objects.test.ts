// Guarantees 2, 3, 10
// An object at which the service fails or hangs: all other objects of its batch are accepted in the same run, and the next run
// sends the failing object alone from the start.
import { describe, expect, it } from 'vitest';
import { FAILS_ON_OBJECT } from '../../src/sync/apply/narrow-failures.js';
import { codes, keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
/** The number of attempts of a real batch. */
const ATTEMPTS = { attempts: 9 };
const fail = (world: RoomWorld, code: string) =>
  world.sandbox.refuseObject(`room_${code}`, { status: 500, message: 'out of memory', wholeCall: true });
const heal = (world: RoomWorld, code: string) => world.sandbox.allowObject(`room_${code}`);
const hang = (world: RoomWorld, code: string) =>
  world.sandbox.failNext({ method: 'PUT', extId: `room_${code}`, fault: 'hang', times: 'always' });

async function expectFailing(world: RoomWorld, ...failing: string[]): Promise<void> {
  const records = await world.recordsOf('rooms');
  for (const [code, record] of Object.entries(records))
    expect([code, record.status, record.error_code]).toEqual(
      failing.includes(code) ? [code, 'failed', FAILS_ON_OBJECT] : [code, 'synced', null],
    );
}

describe('a failing object', () => {
  it.each([
    ['owns: object', rooms({ owns: 'object' })],
    ['a fixed batchSize', rooms({ batchSize: 10 })],
    ['owns: fields', rooms()],
  ])('fails alone with %s, is sent alone by the next run, and heals', async (_, config) => {
    const world = await open(config, ATTEMPTS);
    const all = codes(100);
    await world.addRooms(...all);
    fail(world, 'r013');
    fail(world, 'r077');
    world.sandbox.refuseObject('room_r050', { status: 422, message: 'no such building', wholeCall: true });
    const { run } = await world.sync();
    expect(run.status).toBe('partial');
    const refused: Record<string, string> = { r013: 'failed', r050: 'dead', r077: 'failed' };
    expect(await world.statusesOf('rooms')).toEqual(
      Object.fromEntries(all.map((code) => [code, refused[code] ?? 'synced'])),
    );
    expect(await world.recordOf('r013')).toMatchObject({
      error_code: FAILS_ON_OBJECT,
      error_message:
        'PUT /v1/objects answered 500: out of memory; the service failed each time this object was sent, and answered other objects',
      in_doubt: true,
      claimed_by: null,
    });
    heal(world, 'r050');
    await world.rename('r050', 'Other');

    // The write of the next run may be carried out late as well.
    await world.passLateWrites();
    world.sandbox.clearArrivals();
    const { errors } = await world.sync();
    expect(errors).toEqual([]);
    // Batches of retries and of changes go in any order.
    const writes = world.writes().map(({ objects, status }) => [objects, status]);
    expect(writes.toSorted(([, one = 0], [, other = 0]) => one - other)).toEqual([
      [1, 200],
      [1, 500],
      [1, 500],
    ]);
    await expectFailing(world, 'r013', 'r077');
    const checks =
      await world.sql`SELECT local_key FROM slotsync.records WHERE check_after > now() ORDER BY 1`;
    expect(checks.map((record) => record['local_key'])).toEqual(['r013', 'r077']);

    heal(world, 'r013');
    heal(world, 'r077');
    await world.sync();
    await world.expectInSync();
  });

  it('fails alone when it hangs, and heals', async () => {
    const world = await open(
      { ...rooms({ owns: 'object' }), service: { requestTimeoutMs: 300 } },
      { ...ATTEMPTS, sandbox: { maxObjects: 1000 }, synced: codes(200) },
    );
    await world.sql`UPDATE rooms SET name = 'Hall ' || code`;
    hang(world, 'r100');
    await world.sync();
    await expectFailing(world, 'r100');
    world.sandbox.clearFailures();
    await world.sync();
    await world.expectInSync();
  });

  it('fails alone in the same run in a batch of changes', async () => {
    const world = await open(rooms(), ATTEMPTS);
    const all = codes(100);
    await world.addRooms(...all);
    fail(world, 'r099');
    await world.send('rooms', ...all);
    await expectFailing(world, 'r099');
    // From then on it is sent alone, even with others of the same type and lane.
    await world.rename('r001', 'Other');
    const next = await world.planChanges('rooms', 'r001', 'r099');
    world.sandbox.clearArrivals();
    await world.finish(next.runId, next.queue);
    expect(world.writes().map(({ objects, status }) => [objects, status])).toEqual([
      [1, 200],
      [1, 500],
    ]);
    await expectFailing(world, 'r099');
  });

  it('is found at the service, and not sent again, if its writes are carried out', async () => {
    const world = await open(rooms({ owns: 'object' }), ATTEMPTS);
    await world.addRooms(...codes(8));
    const ofOne = { method: 'PUT', extId: 'room_r003', times: 'always' } as const;
    world.sandbox.failNext({ ...ofOne, fault: 'status', isProcessed: true });
    await world.sync();
    await expectFailing(world, 'r003');
    await world.passLateWrites();
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
    await world.expectInSync();
  });
});

it('a failing object answered with 500 is in doubt, because the write may have been carried out', async () => {
  const world = await open(rooms({ owns: 'object' }), { synced: ['A'] });
  await world.rename('A', 'Hall');
  const { runId, queue } = await world.plan();
  world.sandbox.failNext({ path: '/objects', fault: 'status', isProcessed: true });
  await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'service_failed' });
  expect(world.nameOf('A')).toBe('Hall');
  expect(await world.recordOf('A')).toMatchObject({ in_doubt: true });
  await world.rename('A', 'Room A');
  await world.finish(runId, queue);
  await world.expectInSync();
});
