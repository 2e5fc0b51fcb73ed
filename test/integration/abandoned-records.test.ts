// Guarantee 11
// Abandoned records: their rows are gone from a stream that retires nothing, so a sync settles whatever failed before.
import { expect, it } from 'vitest';
import { countUnsettled } from '../../src/state/records/read/count-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { pushKeys } from '../../src/sync/operator/push-keys.js';
import { verify } from '../../src/sync/verify/verify.js';
import {
  addRooms,
  expectNothingToSend,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const CODES = ['dead', 'failed', 'waiting', 'new'];

const refuse = (world: World, code: string) =>
  world.sandbox.refuseObject(`room_${code}`, { status: 400, message: 'no' });
const remove = (world: World, ...codes: string[]) =>
  world.sql`DELETE FROM rooms WHERE code = ANY (${codes}::text[])`;

/** Opens rooms that are not in sync, each for another reason, beside room A. Their rows are gone. All but the new room were accepted. */
async function openAbandoned(): Promise<World> {
  const world = await open(rooms());
  await addRooms(world, 'A', 'dead', 'failed', 'waiting');
  await world.sync();
  await rename(world, 'dead', 'second');
  await addRooms(world, 'new');
  await rename(world, 'A', 'accepted beside them');
  refuse(world, 'dead');
  refuse(world, 'new');
  await world.sync();
  await world.sql`
    UPDATE slotsync.records SET status = 'failed', error_code = 'x', error_message = 'y', attempts = 3
    WHERE local_key = 'failed'`;
  await world.sql`
    UPDATE slotsync.records SET status = 'deferred', error_code = 'reference_missing', waits_for = '["rooms","none"]',
      waits_since = now() WHERE local_key = 'waiting'`;
  expect(await countUnsettled(world.state.db)).toBe(4);
  await remove(world, ...CODES);
  return world;
}

it('a sync settles abandoned records, and deletes those that were never accepted', async () => {
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
  expect(nameAtService(world, 'dead')).toBe('Room dead');
  await expectNothingToSend(world);
  expect(await verify(world.verifying(), {})).toMatchObject({
    drifting: 0,
    streams: [{ compared: 1 }],
  });
});

it('a sync sends abandoned records whose rows are back, changed or not', async () => {
  const world = await openAbandoned();
  await world.sync();
  world.sandbox.allowObject('room_dead');
  await world.destination.putObjects(
    [
      {
        extId: 'room_failed',
        typeId: 'room',
        active: true,
        fields: [{ fieldId: 'room.name', values: ['by hand'] }],
      },
    ],
    { lane: 'sync' },
  );
  await addRooms(world, 'failed');
  await world.sql`INSERT INTO rooms (code, name) VALUES ('dead', 'second')`;
  await world.sync();
  expect(nameAtService(world, 'failed')).toBe('Room failed');
  expect(nameAtService(world, 'dead')).toBe('second');
  expect(await countUnsettled(world.state.db)).toBe(0);
});

it('a run over a part of the stream settles no abandoned record; a change of its key does', async () => {
  const world = await openAbandoned();
  const part = { kind: 'backfill', lane: 'backfill', startedBy: 'command', streams: ['rooms'] } as const;
  const { run } = await startRun(world.state.db, { ...part, range: { keys: ['dead', 'A'] } });
  await world.finish(run.id, (await world.planRun(run.id)).queue);
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
  const world = await open(rooms({ retire: 'deactivate' }));
  await addRooms(world, 'A', 'B');
  await world.sync();
  await remove(world, 'B');
  await rename(world, 'A', 'new');
  refuse(world, 'B');
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
  await addRooms(world, 'A');
  world.sandbox.failNext({ path: '/v1/objects', fault: 'reset' });
  await world.sync();
  await remove(world, 'A');
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { object_hash: null, in_doubt: true } });
  await world.passLateWrites();
  await world.sync();
  expect(await world.recordsOf('rooms')).toEqual({});
});

/** Opens rooms whose objects may pass to another key. All are in doubt, and a lost write of each may still land. */
async function openInDoubt(): Promise<World> {
  const world = await open(rooms({ key: 'number', externalId: 'room_{code}' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1'), ('B', 'Room B', '2')`;
  await world.sync();
  await world.sql`
    UPDATE slotsync.records SET in_doubt = true, status = 'failed', check_after = now() + interval '1 hour'`;
  return world;
}

it('an abandoned record stays in doubt until no late write can land', async () => {
  const world = await openInDoubt();
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

it('the doubt of an abandoned record passes to the new owner of its object', async () => {
  const world = await openInDoubt();
  await world.sql`UPDATE rooms SET number = '4', name = 'newest' WHERE code = 'A'`;
  const { runId, queue } = await world.planChanges('rooms', '4');
  await world.apply(queue[0] ?? 0);
  await cancelRun(world.state.db, runId);
  expect(world.fieldsOf('room_A')?.['room.name']).toBe('newest');
  // The lost write is carried out late.
  world.sandbox.putObject({
    extId: 'room_A',
    typeId: 'room',
    active: true,
    fields: [{ fieldId: 'room.name', values: ['late'] }],
  });
  await world.passLateWrites();
  await world.sync();
  await world.drainInbox();
  await world.sync();
  expect(world.fieldsOf('room_A')?.['room.name']).toBe('newest');
});

it('a child of a deleted abandoned record is sent when the row of its parent is back', async () => {
  const world = await open(roomsAndCourses());
  const { sql } = world;
  await addRooms(world, 'A', 'B');
  await sql`INSERT INTO courses VALUES ('C', 'Course', 'A')`;
  refuse(world, 'A');
  await world.sync();
  await remove(world, 'A');
  await world.sync();
  expect(await world.statusesOf('rooms')).toEqual({ B: 'synced' });
  expect(await world.recordsOf('courses')).toMatchObject({
    C: { status: 'deferred', waits_for: '["rooms","A"]' },
  });
  world.sandbox.allowObject('room_A');
  await addRooms(world, 'A');
  await pushKeys(world.deps(), world.stream('rooms'), ['A']);
  await world.drainInbox();
  expect(await world.statusesOf('courses')).toEqual({ C: 'synced' });
});
