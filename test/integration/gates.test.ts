// Guarantees 3, 6, 11
// The gates of a stream: which keys a gate keeps back, until when, and what goes on beside it. Checked as an operator sees it:
// objects at the service, gates, and the keys that they hold.
import { describe, expect, it } from 'vitest';
import { readHoldingGate } from '../../src/situation/chains.js';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { readGates, waitsForOperator } from '../../src/state/gates/gates.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import type { Declaration } from '../support/campus.js';
import type { WorldOptions } from '../support/world.js';
import { codes, FEW, keepRooms, keepSyncedRooms, LIMITED, rooms, type RoomWorld } from '../support/steps.js';

const openEmpty = keepRooms();

const openSynced = keepSyncedRooms(`changed timestamptz DEFAULT timestamptz '2026-01-15 08:00:00+00'`);
const open = (changes: Partial<Declaration> = {}, options?: WorldOptions) =>
  openSynced(rooms({ retire: 'deactivate', ...changes }), options);

const three = codes(3);

describe('a polled row that a gate keeps back', () => {
  const poll = (world: RoomWorld) =>
    createPoll(
      { mirror: world.mirror, state: world.state, polling: { overlapSeconds: 0, lagSeconds: 0 } },
      world.stream('rooms'),
    )();
  const touch = (world: RoomWorld, some: readonly string[], second: number, name: string) => world.sql`
    UPDATE rooms SET name = ${name}, changed = timestamptz '2026-01-15 08:00:00+00' + ${second}::int * interval '1 second'
    WHERE code = ANY (${[...some]})`;

  it('is sent as it is at the approval, and is read again when it changes', async () => {
    const world = await open({ ...LIMITED, cursor: 'changed' });
    await touch(world, three, 1, 'held');
    await world.sync();
    expect(await world.held()).toEqual(three);
    await poll(world);
    await poll(world);
    expect(await world.drainInbox()).toEqual([]);
    await touch(world, ['r000'], 2, 'while held');
    await poll(world);
    const [gate] = await readGates(world.state.db);
    await world.approve(gate?.runId ?? 0);
    expect(world.namesOf(three)).toEqual(['while held', 'held', 'held']);
    await touch(world, ['r001'], 3, 'later');
    expect(await poll(world)).toMatchObject({ put: 1 });
    await world.drainInbox();
    expect(world.nameOf('r001')).toBe('later');
    // A gate that opens because fewer records differ.
    await world.nextDay();
    await touch(world, codes(3, 3), 4, 'held');
    await world.sync();
    await poll(world);
    await world.drainInbox();
    await world.sql`
      UPDATE rooms SET name = 'Room ' || code, changed = timestamptz '2026-01-15 08:00:00+00'
      WHERE code IN ('r004', 'r005')`;
    await world.sync();
    expect([await world.gates(), world.nameOf('r003')]).toEqual([[], 'held']);
    await touch(world, ['r003'], 5, 'later');
    expect(await poll(world)).toMatchObject({ put: 1 });
    await world.drainInbox();
    expect(world.nameOf('r003')).toBe('later');
  });
});

describe('a key that a gate keeps or kept back', () => {
  const forget = ({ state }: RoomWorld, localKey: string) =>
    forgetKey(state.db, { stream: 'rooms', localKey });

  it('is forgotten with its hold, and the gate counts the other keys', async () => {
    const world = await open(LIMITED);
    await world.addRooms('x1', 'x2', 'x3');
    await world.sync();
    expect(await world.gates()).toEqual(['rooms create limit 3']);
    await world.remove('x1');
    // A number that the gate counts is no key.
    for (const number of ['2', '3']) expect(await forget(world, number)).toBeUndefined();
    expect(await forget(world, 'x1')).toMatchObject({ deleted: { held: 1 } });
    expect(await world.gates()).toEqual(['rooms create limit 2']);
    for (const key of ['x2', 'x3']) expect(await forget(world, key)).toMatchObject({ deleted: { held: 1 } });
    expect(await world.gates()).toEqual([]);
  });

  it.each([
    ['approved', (world: RoomWorld) => world.approve(2)],
    [
      'rejected',
      async (world: RoomWorld) => {
        await world.reject(2);
        await world.renameAll('Room', three.slice(1));
        await world.sync();
      },
    ],
  ])('is forgotten after it was %s', async (_, answer) => {
    const world = await open(LIMITED);
    await world.renameAll('new', three);
    await world.sync();
    await answer(world);
    await world.remove('r000');
    expect(await forget(world, 'r000')).toMatchObject({ deleted: { records: 1 } });
    expect(await forget(world, 'r000')).toBeUndefined();
  });
});

describe('a deactivation beside writes that are not sent', () => {
  const OF_X1 = { method: 'PUT', extId: 'room_x1' } as const;
  it('waits while creates are held, even if an operator has rejected them', async () => {
    const world = await open(LIMITED);
    await world.addRooms('x1', 'x2', 'x3');
    await world.remove('r000');
    const { run } = await world.sync();
    expect(world.isActive('room_r000')).toBe(true);
    await world.reject(run.id);
    await world.sync();
    await world.push('rooms', 'r000');
    await world.workDue();
    expect(world.isActive('room_r000')).toBe(true);
    expect(await world.gates()).toEqual(['rooms create limit 3 rejected']);
    await world.remove('x3');
    await world.sync();
    expect(world.isActive('room_r000')).toBe(false);
  });

  it.each<[string, string, (world: RoomWorld) => unknown]>([
    ['fails', 'failed', ({ sandbox }) => sandbox.failNext({ ...OF_X1, fault: 'status', times: 'always' })],
    ['is given up', 'dead', ({ sandbox }) => sandbox.refuseObject('room_x1', { status: 400, message: 'no' })],
  ])('waits when a create of the same run %s', async (_, status, fail) => {
    const world = await open({}, { attempts: 2 });
    // An object that is accepted beside it: a refusal of everything is no reason to give a record up.
    await world.addRooms('x1', 'x2');
    await world.remove('r000');
    fail(world);
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'deferred', x1: status, x2: 'synced' });
    expect(world.isActive('room_r000')).toBe(true);
    world.sandbox.clearFailures();
    world.sandbox.allowObject('room_x1');
    await world.rename('x1', 'corrected');
    await world.sync();
    await world.sync();
    expect(world.isActive('room_r000')).toBe(false);
  });

  it('keeps its unused approval until nothing is in its way', async () => {
    const world = await open({ limits: { retire: FEW, create: FEW } });
    await world.remove(...three);
    await world.addRooms('x1', 'x2', 'x3');
    const { run } = await world.sync();
    const { run: next } = await world.approve(run.id, { operation: 'retire' });
    // People and programs see it in the run.
    const shown = Object.keys(next.holds['rooms']?.['retire'] ?? {});
    expect(shown.toSorted()).toEqual(['count', 'facts', 'operation', 'reason']);
    expect(await world.gates()).toEqual(['rooms create limit 3', 'rooms retire limit 3 approved']);
    expect(world.isActive('room_r000')).toBe(true);
    await world.approve(next.id, { operation: 'create' });
    expect(world.nameOf('x1')).toBe('Room x1');
    await world.sync();
    expect(three.map((code) => world.isActive(`room_${code}`))).toEqual([false, false, false]);
    expect(await world.gates()).toEqual([]);
  });

  it('is sent without another approval after a failing create of the same run has postponed it', async () => {
    const world = await open({ limits: { retire: FEW } }, { attempts: 1 });
    await world.remove(...three);
    const { run } = await world.sync();
    await world.addRooms('x1');
    world.sandbox.failNext({ ...OF_X1, fault: 'status', times: 'always' });
    await world.approve(run.id);
    expect(three.map((code) => world.isActive(`room_${code}`))).toEqual([true, true, true]);
    world.sandbox.clearFailures();
    await world.passLateWrites();
    await world.sync();
    await world.sync();
    expect(three.map((code) => world.isActive(`room_${code}`))).toEqual([false, false, false]);
    expect(await world.gates()).toEqual([]);
  });
});

describe('a stream under another name', () => {
  const renamed = { streams: { spaces: { ...rooms({ retire: 'deactivate' }).streams['rooms'] } } };
  const asSpaces = (world: RoomWorld) => world.configure(renamed as ReturnType<typeof rooms>);

  it('takes over only as many objects as the limit allows, and its gate names a command', async () => {
    const world = await open();
    await world.renameAll('new');
    asSpaces(world);
    const { run } = await world.sync();
    expect(run).toMatchObject({
      holds: { spaces: { overwrite: { count: 20, facts: { formerStreams: { rooms: 20 } } } } },
    });
    expect(await world.gates()).toEqual(['spaces overwrite owned_by_former_stream 20']);
    expect(world.writes()).toEqual([]);
  });

  it('writes nothing during a freeze of its former name', async () => {
    const world = await openEmpty(rooms(), { synced: three });
    await world.nextDay();
    await world.freeze();
    asSpaces(world);
    await world.renameAll('new');
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(world.namesOf(three)).toEqual(three.map((code) => `Room ${code}`));
    await world.passFreezes();
    await world.sync();
    expect(world.namesOf(three)).toEqual(['new', 'new', 'new']);
  });
});

it('updates that failed and whose rows changed again count as updates, and are held beyond the limit', async () => {
  const world = await open({}, { attempts: 1 });
  await world.renameAll('first', codes(10));
  world.sandbox.failNext({ method: 'PUT', fault: 'status', times: 'always' });
  await world.sync();
  world.sandbox.clearFailures();
  world.configure(rooms(LIMITED));
  await world.renameAll('second', codes(10));
  await world.passLateWrites();
  await world.sync();
  expect(await world.gates()).toEqual(['rooms update limit 10']);
  expect(world.nameOf('r000')).toBe('Room r000');
});

describe('a key that an incremental run holds', () => {
  it('waits for a person after its run was deleted, and is shown by explain until it is approved', async () => {
    const world = await open(LIMITED);
    const holder = () => readHoldingGate(world.state.db, { stream: 'rooms', localKey: 'r000' });
    await world.renameAll('new', three);
    await world.push('rooms', ...three);
    expect(await world.gates()).toEqual(['rooms update limit 3']);
    await world.forgetFinishedRuns();
    const [gate] = await readGates(world.state.db);
    expect(gate && waitsForOperator(gate)).toBe(true);
    expect(gate?.firstKeys).toEqual(three);
    expect(await holder()).toMatchObject({ runId: gate?.runId });
    await world.approve(gate?.runId ?? 0);
    expect(world.namesOf(three)).toEqual(['new', 'new', 'new']);
    expect(await holder()).toBeUndefined();
  });
});

describe('the wish to send records again', () => {
  it('outlives the syncs after its forced backfill was held', async () => {
    const world = await open(LIMITED);
    const { run } = await world.backfill({ force: true });
    expect(run.status).toBe('held');
    expect(await world.gates()).toEqual(['rooms update limit 20']);
    expect((await world.sync()).run.status).toBe('held');
    const { run: nightly } = await world.sync();
    expect(await world.gates()).toEqual(['rooms update limit 20']);
    expect(world.writes()).toEqual([]);
    await world.approve(nightly.id);
    expect(world.writes().map(({ objects }) => objects)).toEqual([20]);
    expect(await world.gates()).toEqual([]);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.writes()).toHaveLength(1);
    // The wish of a run that an operator cancels ends with the run.
    const cancelled = await world.startRunOf({ kind: 'backfill', lane: 'backfill', range: { force: true } });
    await world.planRun(cancelled);
    await world.cancel(cancelled);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.writes()).toHaveLength(1);
  });

  it('outlives a failed attempt', async () => {
    const world = await open();
    world.refuse('room_r000');
    await world.backfill({ force: true, keys: ['r000'] });
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
    world.refuse('room_r000');
    await world.renameAll('new', three);
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'dead', r001: 'synced' });
    world.sandbox.allowObject('room_r000');
    world.configure(rooms(LIMITED));
    await world.nextDay();
    await world.renameAll('new', ['r003', 'r004']);
    await world.retry('r000');
    await world.sync();
    expect(await world.held()).toEqual(['r000', 'r003', 'r004']);
    const { run } = await world.sync();
    await world.approve(run.id);
    expect(world.namesOf(['r000', 'r003', 'r004'])).toEqual(['new', 'new', 'new']);
  });
});

describe('a rejection', () => {
  it('leaves the gate of a freeze alone if it is of one operation', async () => {
    const world = await open({ limits: { update: FEW } });
    await world.renameAll('new', three);
    await world.addRooms('x1');
    const { runId, queue } = await world.plan();
    await world.freeze();
    await world.finish(runId, queue);
    expect(await world.gates()).toEqual(['rooms * frozen 1', 'rooms update limit 3']);
    await world.reject(runId, { operation: 'update' });
    expect(await world.gates()).toEqual(['rooms * frozen 1', 'rooms update limit 3 rejected']);
    await world.passFreezes();
    await world.workDue();
    expect(world.nameOf('x1')).toBe('Room x1');
    expect(world.namesOf(three)).toEqual(three.map((code) => `Room ${code}`));
    expect(await world.gates()).toEqual(['rooms update limit 3 rejected']);
    expect(await world.syncedAt()).not.toBeNull();
    expect(await world.due()).toEqual({});
  });

  it('keeps nothing back after a freeze if it is of all that a run holds', async () => {
    const world = await open();
    await world.freeze();
    await world.rename('r000', 'new');
    const { run } = await world.sync();
    await world.reject(run.id);
    expect(await world.gates()).toEqual(['rooms * frozen 1 rejected']);
    await world.passFreezes();
    await world.workDue();
    expect(world.nameOf('r000')).toBe('new');
  });
});
