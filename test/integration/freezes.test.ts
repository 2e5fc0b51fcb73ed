// Guarantees 3, 6, 11
// A freeze: no run writes the stream until its end, no change is lost, and the held keys are planned again afterwards.
import { describe, expect, it } from 'vitest';
import { exitCodeOfRun } from '../../src/commands/command.js';
import {
  freezeStreams,
  listFreezes,
  listFrozen,
  registerFreezes,
  unfreezeStreams,
} from '../../src/state/freezes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { readGates } from '../../src/state/gates/gates.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { listStreams, readWholeSuccess } from '../../src/state/streams.js';
import { startDue } from '../../src/sync/run/start-due-syncs.js';
import { addRooms, codes, keepRoomWorlds, rename, rooms, roomsAndCourses } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const HOUR = 60 * 60 * 1000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR);

const freeze = ({ state }: World, ...streams: string[]) =>
  freezeStreams(state.db, { streams, endsAt: inHours(2), reason: 'exam weeks', by: 'ada' });
/** Ends the freeze now. */
const thaw = ({ sql }: World) =>
  sql`UPDATE slotsync.freezes SET begins_at = now() - interval '2 hours', ends_at = now()`;
const gatesOf = async ({ state }: World) =>
  (await readGates(state.db)).map(({ runId, stream, operation, reason, count }) => ({
    runId,
    stream,
    operation,
    reason,
    count,
  }));
const frozenGate = (runId: number, count: number) => ({
  runId,
  stream: 'rooms',
  operation: '*',
  reason: 'frozen',
  count,
});
const dueOf = async ({ state }: World) =>
  (await listStreams(state.db)).flatMap(({ stream, dueReason }) => (dueReason ? { stream, dueReason } : []));
/** Works the runs that a worker starts after a freeze, from plan to end. */
async function workThawed(world: World) {
  const runs = await startDue(world.deps());
  const ended = [];
  for (const { id } of runs) {
    const { queue } = await world.planRun(id);
    ended.push((await world.finish(id, queue)).run);
  }
  return ended;
}

describe('a freeze', () => {
  it('holds what a run would send, while other streams go on and children wait for their parents', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, 'A', 'B');
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', 'A'), ('D', 'Free', NULL)`;
    await freeze(world, 'rooms');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', plan: { rooms: { create: 2 } } });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['course_D']);
    expect(await gatesOf(world)).toEqual([frozenGate(run.id, 2)]);
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred', D: 'synced' });
    // Nothing failed, and nobody has to act.
    expect(exitCodeOfRun(run)).toBe(0);
    expect(await readWholeSuccess(world.state.db, ['rooms', 'courses'])).not.toBeNull();
    expect(await dueOf(world)).toEqual([{ stream: 'rooms', dueReason: 'frozen' }]);
    expect(await workThawed(world)).toEqual([]);

    await thaw(world);
    expect(await workThawed(world)).toMatchObject([
      { kind: 'sync', streams: ['rooms'], status: 'succeeded' },
    ]);
    await world.drainInbox();
    expect(
      world.sandbox
        .objects()
        .map(({ extId }) => extId)
        .toSorted(),
    ).toEqual(['course_C', 'course_D', 'room_A', 'room_B']);
  });

  it('keeps back queued batches, and further requests of a batch in flight', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    await addRooms(world, ...codes(6));
    const { runId, queue } = await world.plan();
    const [first = 0, ...rest] = queue;
    const { ended } = await world.applyHeld(first, { method: 'PUT', hold: 'answer' });
    await freeze(world, 'rooms');
    for (const id of rest) await world.apply(id);
    expect(await readRun(world.state.db, runId)).toMatchObject({ status: 'running' });
    world.sandbox.openGate();
    await ended;
    expect(await readRun(world.state.db, runId)).toMatchObject({
      status: 'held',
      counts: { rooms: { synced: 2 } },
    });
    expect(await gatesOf(world)).toEqual([frozenGate(runId, 4)]);
    expect(world.writes()).toHaveLength(1);
    await thaw(world);
    expect(await workThawed(world)).toMatchObject([
      { status: 'succeeded', counts: { rooms: { synced: 4 } } },
    ]);
    expect(await gatesOf(world)).toEqual([]);
  });

  it('has its held keys found anew by each whole run', async () => {
    const world = await open(rooms());
    await freeze(world, 'rooms');
    await addRooms(world, 'A');
    const first = (await world.sync()).run.id;
    expect(await gatesOf(world)).toEqual([frozenGate(first, 1)]);
    await addRooms(world, 'B');
    const second = (await world.sync()).run.id;
    expect(await gatesOf(world)).toEqual([frozenGate(second, 2)]);
    await world.sql`DELETE FROM rooms`;
    await world.sync();
    expect(await gatesOf(world)).toEqual([]);
  });

  it('leaves the changes of its stream in the inbox, each once, while other streams are taken', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('D', 'Free', NULL)`;
    await freeze(world, 'rooms');
    await addChanges(world.state.db, 'rooms', ['A']);
    await addChanges(world.state.db, 'rooms', ['A']);
    await addChanges(world.state.db, 'courses', ['D']);
    expect(await world.drainInbox()).toHaveLength(1);
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['course_D']);
    expect(await takeChanges(world.state.db, ['rooms'])).toBe('nothing');
    await unfreezeStreams(world.state.db, ['rooms']);
    expect(await world.drainInbox()).toHaveLength(1);
    expect(world.sandbox.object('room_A')).toBeDefined();
  });
});

describe('the end of a freeze', () => {
  it('sends the held records as the mirror and the limits are then', async () => {
    const world = await open(rooms({ limits: { update: { count: 5, percent: 10 } } }));
    const all = codes(20);
    await addRooms(world, ...all);
    await world.sync();
    await freeze(world, 'rooms');
    await rename(world, 'r000', 'first');
    await rename(world, 'r001', 'of the freeze');
    expect((await world.sync()).run.status).toBe('held');
    await rename(world, 'r001', 'latest');
    await thaw(world);
    const [run] = await workThawed(world);
    expect(run).toMatchObject({ startedBy: 'change', status: 'succeeded', counts: { rooms: { synced: 2 } } });
    expect(world.fieldsOf('room_r001')).toMatchObject({ 'room.name': 'latest' });
    expect(await workThawed(world)).toEqual([]);

    await freeze(world, 'rooms');
    await rename(world, 'r002', 'x');
    await world.sync();
    await world.sql`UPDATE rooms SET name = name || '?'`;
    await thaw(world);
    const [beyond] = await workThawed(world);
    expect(beyond).toMatchObject({
      status: 'held',
      holds: { rooms: { update: { count: 20, reason: 'limit' } } },
    });
  });

  it('plans the keys that an incremental run held with their whole stream', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    const { runId, queue } = await world.planChanges('rooms', 'A');
    await freeze(world, 'rooms');
    const { run } = await world.finish(runId, queue);
    expect(run).toMatchObject({ kind: 'incremental', status: 'held' });
    await thaw(world);
    expect(await workThawed(world)).toMatchObject([{ kind: 'sync', status: 'succeeded' }]);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });
});

describe('freezes of the configuration', () => {
  const declare = (stream: string, from: number, to: number) => ({
    stream,
    beginsAt: inHours(from),
    endsAt: inHours(to),
    reason: 'exam weeks',
  });

  it('replace the former freezes of the configuration, and leave freezes by commands alone', async () => {
    const { state } = await open(rooms());
    await freezeStreams(state.db, { streams: ['rooms'], endsAt: inHours(1), reason: 'by hand', by: 'ada' });
    const registered = [declare('rooms', -1, 2), declare('courses', 5, 6)];
    for (let round = 0; round < 2; round++) await registerFreezes(state.db, registered);
    expect(await listFreezes(state.db)).toMatchObject([
      { streams: ['rooms'], reason: 'by hand', frozenBy: 'ada', isDeclared: false, isInForce: true },
      { streams: ['rooms'], frozenBy: null, isDeclared: true, isInForce: true },
      { streams: ['courses'], isDeclared: true, isInForce: false },
    ]);
    // The one that ends last counts.
    const frozen = () => listFrozen(state.db, ['courses', 'rooms']);
    expect(await frozen()).toMatchObject([{ stream: 'rooms', reason: 'exam weeks' }]);
    expect(await unfreezeStreams(state.db, ['rooms'])).toEqual(['rooms']);
    expect(await frozen()).toMatchObject([{ stream: 'rooms', isDeclared: true }]);
    await registerFreezes(state.db, []);
    expect(await listFreezes(state.db)).toEqual([]);
  });
});
