// Guarantees 3, 6, 11
// The gates of a stream: which keys a gate keeps back, until when, and what goes on beside it. Checked as an operator sees it:
// objects at the service, gates, and the keys that they hold.
import { describe, expect, it } from 'vitest';
import { readHoldingGate } from '../../src/situation/chains.js';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { readGates, waitsForOperator } from '../../src/state/gates/gates.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import {
  backfill,
  deleteFinishedRuns,
  dueOf,
  FEW,
  freeze,
  gatesOf,
  heldOf,
  keepSyncedRooms,
  LIMITED,
  namesOf,
  nextDay,
  passFreezes,
  reject,
  renameAll,
  startRunOf,
  syncedAt,
  workDue,
} from '../support/gated-rooms.js';
import {
  addRooms,
  codes,
  isActive,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
} from '../support/room-worlds.js';
import type { Declaration } from '../support/campus.js';
import type { World, WorldOptions } from '../support/world.js';

const openEmpty = keepRoomWorlds();

const openSynced = keepSyncedRooms(`changed timestamptz DEFAULT timestamptz '2026-01-15 08:00:00+00'`);
const open = (changes: Partial<Declaration> = {}, options?: WorldOptions) =>
  openSynced(rooms({ retire: 'deactivate', ...changes }), options);

const remove = (world: World, ...gone: string[]) => world.sql`DELETE FROM rooms WHERE code = ANY (${gone})`;
const changeOf = async (world: World, ...keys: string[]) => {
  await addChanges(world.state.db, 'rooms', keys);
  return world.drainInbox();
};
const three = codes(3);

describe('a polled row that a gate keeps back', () => {
  const poll = (world: World) =>
    createPoll(
      { mirror: world.mirror, state: world.state, polling: { overlapSeconds: 0, lagSeconds: 0 } },
      world.stream('rooms'),
    )();
  const touch = (world: World, some: readonly string[], second: number, name: string) => world.sql`
    UPDATE rooms SET name = ${name}, changed = timestamptz '2026-01-15 08:00:00+00' + ${second}::int * interval '1 second'
    WHERE code = ANY (${[...some]})`;
  async function openHeld(): Promise<World> {
    const world = await open({ ...LIMITED, cursor: 'changed' });
    await touch(world, three, 1, 'held');
    await world.sync();
    expect(await heldOf(world)).toEqual(three);
    await poll(world);
    await poll(world);
    expect(await world.drainInbox()).toEqual([]);
    return world;
  }

  it('is read again when its gate has opened and it changes', async () => {
    const world = await openHeld();
    // Two of the three are as they were: the third one is within the limit.
    await world.sql`
      UPDATE rooms SET name = 'Room ' || code, changed = timestamptz '2026-01-15 08:00:00+00'
      WHERE code = ANY (${three.slice(1)})`;
    await world.sync();
    expect(await gatesOf(world)).toEqual([]);
    expect(nameAtService(world, 'r000')).toBe('held');
    await touch(world, ['r000'], 3, 'later');
    expect(await poll(world)).toMatchObject({ put: 1 });
    await world.drainInbox();
    expect(nameAtService(world, 'r000')).toBe('later');
  });

  it('is sent as it is at the approval, and is read again when it changes', async () => {
    const world = await openHeld();
    await touch(world, ['r000'], 2, 'while held');
    await poll(world);
    const [gate] = await readGates(world.state.db);
    await world.approve(gate?.runId ?? 0);
    expect(namesOf(world, three)).toEqual(['while held', 'held', 'held']);
    await touch(world, ['r001'], 3, 'later');
    expect(await poll(world)).toMatchObject({ put: 1 });
    await world.drainInbox();
    expect(nameAtService(world, 'r001')).toBe('later');
  });
});

describe('a key that a gate keeps or kept back', () => {
  const forget = ({ state }: World, localKey: string) => forgetKey(state.db, { stream: 'rooms', localKey });

  it('is forgotten with its hold, and the gate counts the other keys', async () => {
    const world = await open(LIMITED);
    await addRooms(world, 'x1', 'x2', 'x3');
    await world.sync();
    expect(await gatesOf(world)).toEqual(['rooms create limit 3']);
    await remove(world, 'x1');
    // A number that the gate counts is no key.
    for (const number of ['2', '3']) expect(await forget(world, number)).toBeUndefined();
    expect(await forget(world, 'x1')).toMatchObject({ deleted: { held: 1 } });
    expect(await gatesOf(world)).toEqual(['rooms create limit 2']);
    for (const key of ['x2', 'x3']) expect(await forget(world, key)).toMatchObject({ deleted: { held: 1 } });
    expect(await gatesOf(world)).toEqual([]);
  });

  it.each([
    ['approved', (world: World) => world.approve(2)],
    [
      'rejected',
      async (world: World) => {
        await reject(world, 2);
        await renameAll(world, three.slice(1), 'Room');
        await world.sync();
      },
    ],
  ])('is forgotten after it was %s', async (_, answer) => {
    const world = await open(LIMITED);
    await renameAll(world, three, 'new');
    await world.sync();
    await answer(world);
    await remove(world, 'r000');
    expect(await forget(world, 'r000')).toMatchObject({ deleted: { records: 1 } });
    expect(await forget(world, 'r000')).toBeUndefined();
  });
});

describe('a deactivation beside writes that are not sent', () => {
  it('waits while creates are held, even if an operator has rejected them', async () => {
    const world = await open(LIMITED);
    await addRooms(world, 'x1', 'x2', 'x3');
    await remove(world, 'r000');
    const { run } = await world.sync();
    expect(isActive(world, 'room_r000')).toBe(true);
    await reject(world, run.id);
    await world.sync();
    await changeOf(world, 'r000');
    await workDue(world);
    expect(isActive(world, 'room_r000')).toBe(true);
    expect(await gatesOf(world)).toEqual(['rooms create limit 3 rejected']);
    await remove(world, 'x3');
    await world.sync();
    expect(isActive(world, 'room_r000')).toBe(false);
  });

  it.each<[string, string, (world: World) => unknown]>([
    [
      'fails',
      'failed',
      ({ sandbox }) =>
        sandbox.failNext({
          method: 'PUT',
          path: '/objects',
          extId: 'room_x1',
          fault: 'status',
          status: 500,
          times: 'always',
        }),
    ],
    ['is given up', 'dead', ({ sandbox }) => sandbox.refuseObject('room_x1', { status: 400, message: 'no' })],
  ])('waits when a create of the same run %s', async (_, status, fail) => {
    const world = await open({}, { attempts: 2 });
    // An object that is accepted beside it: a refusal of everything is no reason to give a record up.
    await addRooms(world, 'x1', 'x2');
    await remove(world, 'r000');
    fail(world);
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'deferred', x1: status, x2: 'synced' });
    expect(isActive(world, 'room_r000')).toBe(true);
    world.sandbox.clearFailures();
    world.sandbox.allowObject('room_x1');
    await rename(world, 'x1', 'corrected');
    await world.sync();
    await world.sync();
    expect(isActive(world, 'room_r000')).toBe(false);
  });

  it('keeps its unused approval until nothing is in its way', async () => {
    const world = await open({ limits: { retire: FEW, create: FEW } });
    await remove(world, ...three);
    await addRooms(world, 'x1', 'x2', 'x3');
    const { run } = await world.sync();
    const { run: next } = await world.approve(run.id, { operation: 'retire' });
    // People and programs see it in the run.
    expect(Object.keys(next.holds['rooms']?.['retire'] ?? {}).toSorted()).toEqual([
      'count',
      'facts',
      'operation',
      'reason',
    ]);
    expect(await gatesOf(world)).toEqual(['rooms create limit 3', 'rooms retire limit 3 approved']);
    expect(isActive(world, 'room_r000')).toBe(true);
    await world.approve(next.id, { operation: 'create' });
    expect(nameAtService(world, 'x1')).toBe('Room x1');
    await world.sync();
    expect(three.map((code) => isActive(world, `room_${code}`))).toEqual([false, false, false]);
    expect(await gatesOf(world)).toEqual([]);
  });
});

describe('approved deactivations that a failing create of the same run postpones', () => {
  it('are sent by a later sync without another approval', async () => {
    const world = await open({ limits: { retire: FEW } }, { attempts: 1 });
    await remove(world, ...three);
    const { run } = await world.sync();
    await addRooms(world, 'x1');
    world.sandbox.failNext({
      method: 'PUT',
      path: '/objects',
      extId: 'room_x1',
      fault: 'status',
      times: 'always',
    });
    await world.approve(run.id);
    expect(three.map((code) => isActive(world, `room_${code}`))).toEqual([true, true, true]);
    world.sandbox.clearFailures();
    await world.passLateWrites();
    await world.sync();
    await world.sync();
    expect(three.map((code) => isActive(world, `room_${code}`))).toEqual([false, false, false]);
    expect(await gatesOf(world)).toEqual([]);
  });
});

describe('a stream under another name', () => {
  const renamed = { streams: { spaces: { ...rooms({ retire: 'deactivate' }).streams['rooms'] } } };
  const asSpaces = (world: World) => world.configure(renamed as ReturnType<typeof rooms>);

  it('takes over only as many objects as the limit allows, and its gate names a command', async () => {
    const world = await open();
    await world.sql`UPDATE rooms SET name = 'new'`;
    asSpaces(world);
    const { run } = await world.sync();
    expect(run).toMatchObject({
      holds: { spaces: { overwrite: { count: 20, facts: { formerStreams: { rooms: 20 } } } } },
    });
    expect(await gatesOf(world)).toEqual(['spaces overwrite owned_by_former_stream 20']);
    expect(world.writes()).toEqual([]);
  });

  it('writes nothing during a freeze of its former name', async () => {
    const world = await openEmpty(rooms(), { synced: three });
    await nextDay(world);
    await freeze(world);
    asSpaces(world);
    await world.sql`UPDATE rooms SET name = 'new'`;
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(namesOf(world, three)).toEqual(three.map((code) => `Room ${code}`));
    await passFreezes(world);
    await world.sync();
    expect(namesOf(world, three)).toEqual(['new', 'new', 'new']);
  });
});

describe('updates that failed and whose rows changed again', () => {
  it('count as updates, and are held beyond the limit', async () => {
    const world = await open({}, { attempts: 1 });
    await renameAll(world, codes(10), 'first');
    world.sandbox.failNext({
      method: 'PUT',
      path: '/objects',
      fault: 'status',
      status: 500,
      times: 'always',
    });
    await world.sync();
    world.sandbox.clearFailures();
    world.configure(rooms(LIMITED));
    await renameAll(world, codes(10), 'second');
    await world.passLateWrites();
    await world.sync();
    expect(await gatesOf(world)).toEqual(['rooms update limit 10']);
    expect(nameAtService(world, 'r000')).toBe('Room r000');
  });
});

describe('a key that an incremental run holds', () => {
  it('waits for a person after its run was deleted, and can be approved', async () => {
    const world = await open(LIMITED);
    await renameAll(world, three, 'new');
    await changeOf(world, ...three);
    expect(await gatesOf(world)).toEqual(['rooms update limit 3']);
    await deleteFinishedRuns(world);
    const [gate] = await readGates(world.state.db);
    expect(gate && waitsForOperator(gate)).toBe(true);
    expect(gate?.firstKeys).toEqual(three);
    await world.approve(gate?.runId ?? 0);
    expect(namesOf(world, three)).toEqual(['new', 'new', 'new']);
  });

  it('counts once in its gate, whatever runs meet it', async () => {
    const world = await open(LIMITED);
    await renameAll(world, three, 'new');
    await world.sync();
    await changeOf(world, 'r000');
    await changeOf(world, 'r000', 'r001');
    expect(await gatesOf(world)).toEqual(['rooms update limit 3']);
    await renameAll(world, ['r003'], 'new');
    await changeOf(world, 'r003');
    expect(await gatesOf(world)).toEqual(['rooms update limit 4']);
    expect(await heldOf(world)).toEqual(codes(4));
  });
});

describe('the gate that explain shows for a record', () => {
  const holderOf = ({ state }: World, localKey: string) =>
    readHoldingGate(state.db, { stream: 'rooms', localKey });
  it('is shown while it is closed, and not after it was approved', async () => {
    const world = await open(LIMITED);
    await renameAll(world, three, 'new');
    const { run } = await world.sync();
    expect(await holderOf(world, 'r000')).toMatchObject({ runId: run.id });
    await world.approve(run.id);
    expect(await holderOf(world, 'r000')).toBeUndefined();
  });
});

describe('the wish to send records again', () => {
  it('outlives the syncs after its forced backfill was held', async () => {
    const world = await open(LIMITED);
    const { run } = await backfill(world, { force: true });
    expect(run.status).toBe('held');
    expect(await gatesOf(world)).toEqual(['rooms update limit 20']);
    expect((await world.sync()).run.status).toBe('held');
    const { run: nightly } = await world.sync();
    expect(await gatesOf(world)).toEqual(['rooms update limit 20']);
    expect(world.writes()).toEqual([]);
    await world.approve(nightly.id);
    expect(world.writes().map(({ objects }) => objects)).toEqual([20]);
    expect(await gatesOf(world)).toEqual([]);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.writes()).toHaveLength(1);
  });

  it('ends when an operator cancels the run that made it', async () => {
    const world = await open();
    const runId = await startRunOf(world, { kind: 'backfill', lane: 'backfill', range: { force: true } });
    await world.planRun(runId);
    await cancelRun(world.state.db, runId);
    await world.sync();
    expect(world.writes()).toEqual([]);
  });

  it('outlives a failed attempt', async () => {
    const world = await open();
    world.sandbox.refuseObject('room_r000', { status: 400, message: 'no' });
    await backfill(world, { force: true, keys: ['r000'] });
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'failed' });
    world.sandbox.allowObject('room_r000');
    world.sandbox.clearArrivals();
    await world.sql`UPDATE slotsync.records SET check_after = check_after - interval '2 minutes'`;
    await world.sync();
    await world.sync();
    expect(world.writes().map(({ objects }) => objects)).toEqual([1]);
  });

  it('stays with a held retry, which counts as an update', async () => {
    const world = await open();
    world.sandbox.refuseObject('room_r000', { status: 400, message: 'no' });
    await renameAll(world, three, 'new');
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'dead', r001: 'synced' });
    world.sandbox.allowObject('room_r000');
    world.configure(rooms(LIMITED));
    await nextDay(world);
    await renameAll(world, ['r003', 'r004'], 'new');
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['r000'] });
    await world.sync();
    expect(await heldOf(world)).toEqual(['r000', 'r003', 'r004']);
    const { run } = await world.sync();
    await world.approve(run.id);
    expect(namesOf(world, ['r000', 'r003', 'r004'])).toEqual(['new', 'new', 'new']);
  });
});

describe('a rejection', () => {
  it('leaves the gate of a freeze alone if it is of one operation', async () => {
    const world = await open({ limits: { update: FEW } });
    await renameAll(world, three, 'new');
    await addRooms(world, 'x1');
    const { runId, queue } = await world.plan();
    await freeze(world);
    await world.finish(runId, queue);
    expect(await gatesOf(world)).toEqual(['rooms * frozen 1', 'rooms update limit 3']);
    await reject(world, runId, { operation: 'update' });
    expect(await gatesOf(world)).toEqual(['rooms * frozen 1', 'rooms update limit 3 rejected']);
    await passFreezes(world);
    await workDue(world);
    expect(nameAtService(world, 'x1')).toBe('Room x1');
    expect(namesOf(world, three)).toEqual(three.map((code) => `Room ${code}`));
    expect(await gatesOf(world)).toEqual(['rooms update limit 3 rejected']);
    expect(await syncedAt(world)).not.toBeNull();
    expect(await dueOf(world)).toEqual({});
  });

  it('keeps nothing back after a freeze if it is of all that a run holds', async () => {
    const world = await open();
    await freeze(world);
    await rename(world, 'r000', 'new');
    const { run } = await world.sync();
    await reject(world, run.id);
    expect(await gatesOf(world)).toEqual(['rooms * frozen 1 rejected']);
    await passFreezes(world);
    await workDue(world);
    expect(nameAtService(world, 'r000')).toBe('new');
  });

  it('ends when the held keys change, and not before', async () => {
    const world = await open(LIMITED);
    await renameAll(world, three, 'new');
    const { run } = await world.sync();
    await reject(world, run.id);
    await renameAll(world, three, 'newer');
    await world.sync();
    expect(await gatesOf(world)).toEqual(['rooms update limit 3 rejected']);
    await renameAll(world, ['r003'], 'new');
    await world.sync();
    expect(await gatesOf(world)).toEqual(['rooms update limit 4']);
  });
});
