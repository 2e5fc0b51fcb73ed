// Guarantee 11
// Abandoned records: their rows are gone from a stream that retires nothing, so a sync settles whatever failed before.
import { expect, it } from 'vitest';
import { countUnsettled } from '../../src/state/records/read/count-records.js';
import { pushKeys } from '../../src/sync/operator/push-keys.js';
import { keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const CODES = ['dead', 'failed', 'waiting', 'new'];

/** Opens rooms that are not in sync, each for another reason, beside room A. Their rows are gone. All but the new room were accepted. */
async function openAbandoned(): Promise<RoomWorld> {
  const world = await open(rooms(), { synced: ['A', 'dead', 'failed', 'waiting'] });
  await world.rename('dead', 'second');
  await world.addRooms('new');
  await world.rename('A', 'accepted beside them');
  world.refuse('room_dead');
  world.refuse('room_new');
  await world.sync();
  await world.sql`
    UPDATE slotsync.records SET status = 'failed', error_code = 'x', error_message = 'y', attempts = 3
    WHERE local_key = 'failed'`;
  await world.sql`
    UPDATE slotsync.records SET status = 'deferred', error_code = 'reference_missing', waits_for = '["rooms","none"]',
      waits_since = now() WHERE local_key = 'waiting'`;
  expect(await countUnsettled(world.state.db)).toBe(4);
  await world.remove(...CODES);
  return world;
}

it('a sync settles abandoned records, deletes those that were never accepted, and sends rows that are back', async () => {
  const world = await openAbandoned();
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  expect(await world.statusesOf('rooms')).toEqual({
    A: 'synced',
    dead: 'synced',
    failed: 'synced',
    waiting: 'synced',
  });
  const settled = { error_code: null, error_message: null, attempts: 0, waits_for: null, in_doubt: false };
  const { dead, failed, waiting } = await world.recordsOf('rooms');
  for (const record of [dead, failed, waiting])
    expect(record).toMatchObject({ ...settled, gone_since: expect.any(Date) });
  expect(world.nameOf('dead')).toBe('Room dead');
  await world.expectNothingToSend();
  expect(await world.verify()).toMatchObject({
    drifting: 0,
    streams: [{ compared: 1 }],
  });
  // Rows that are back are sent, changed or not.
  world.sandbox.allowObject('room_dead');
  world.edit('room_failed', { 'room.name': 'by hand' });
  await world.addRooms('failed');
  await world.sql`INSERT INTO rooms (code, name) VALUES ('dead', 'second')`;
  await world.sync();
  expect([world.nameOf('failed'), world.nameOf('dead')]).toEqual(['Room failed', 'second']);
  expect(await countUnsettled(world.state.db)).toBe(0);
});

it('a run over a part of the stream settles no abandoned record; a change of its key does', async () => {
  const world = await openAbandoned();
  await world.backfill({ keys: ['dead', 'A'] });
  expect(await countUnsettled(world.state.db)).toBe(4);
  await pushKeys(world.deps(), world.stream('rooms'), ['dead', 'A']);
  await world.drainInbox();
  expect(await world.statusesOf('rooms')).toMatchObject({ dead: 'synced', failed: 'failed' });
});

it('a sync retires abandoned records once their stream deactivates', async () => {
  const world = await openAbandoned();
  world.configure(rooms({ retire: 'deactivate' }));
  world.sandbox.allowObject('room_dead');
  await world.sync();
  expect(await world.statusesOf('rooms')).toMatchObject({
    dead: 'retired',
    failed: 'retired',
    waiting: 'retired',
  });
});

it('a record whose deactivation was refused is settled once its stream retires nothing', async () => {
  const world = await open(rooms({ retire: 'deactivate' }), { synced: ['A', 'B'] });
  await world.remove('B');
  await world.rename('A', 'new');
  world.refuse('room_B');
  for (let run = 0; run < 3; run++) {
    await world.passLateWrites();
    await world.sync();
  }
  expect(await world.recordsOf('rooms')).toMatchObject({
    B: { status: 'dead', error_code: 'retirement_refused_400' },
  });
  world.configure(rooms());
  await world.sync();
  expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
});

it('an abandoned record whose create lost its answer is deleted when no late write can land', async () => {
  const world = await open(rooms(), { attempts: 1 });
  await world.addRooms('A');
  world.sandbox.failNext({ path: '/v1/objects', fault: 'reset' });
  await world.sync();
  await world.remove('A');
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { object_hash: null, in_doubt: true } });
  await world.passLateWrites();
  await world.sync();
  expect(await world.recordsOf('rooms')).toEqual({});
});

it('an abandoned record stays in doubt until no late write can land', async () => {
  // Objects that may pass to another key are in doubt, and a lost write of each may still land.
  const world = await open(rooms({ key: 'number', externalId: 'room_{code}' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1'), ('B', 'Room B', '2')`;
  await world.sync();
  await world.sql`
    UPDATE slotsync.records SET in_doubt = true, status = 'failed', check_after = now() + interval '1 hour'`;
  const doubts = async () => Object.values(await world.recordsOf('rooms')).map(({ in_doubt }) => in_doubt);
  await world.sql`UPDATE slotsync.records SET status = 'synced' WHERE local_key = '2'`;
  await world.sql`DELETE FROM rooms`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('C', 'Room C', '3')`;
  await world.sync();
  expect(await doubts()).toEqual([true, true, false]);
  await world.passLateWrites();
  await world.sync();
  expect(await doubts()).toEqual([false, false, false]);
  expect(await countUnsettled(world.state.db)).toBe(0);
});
