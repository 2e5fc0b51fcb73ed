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
import { readWholeSuccess } from '../../src/state/streams.js';
import { codes, keepRooms, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const HOUR = 60 * 60 * 1000;
const inHours = (hours: number) => new Date(Date.now() + hours * HOUR);

/** Ends the freeze now. */
const thaw = ({ sql }: RoomWorld) =>
  sql`UPDATE slotsync.freezes SET begins_at = now() - interval '2 hours', ends_at = now()`;
const gatesOf = async ({ state }: RoomWorld) =>
  (await readGates(state.db)).map(({ runId, stream, operation, reason, count }) =>
    [runId, stream, operation, reason, count].join(' '),
  );
const frozenGate = (runId: number, count: number) => `${runId} rooms * frozen ${count}`;
const workThawed = async (world: RoomWorld) => (await world.workDue()).map(({ run }) => run);

describe('a freeze', () => {
  it('holds what a run would send, while other streams go on and children wait for their parents', async () => {
    const world = await open(roomsAndCourses());
    await world.addRooms('A', 'B');
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', 'A'), ('D', 'Free', NULL)`;
    await world.freeze();
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', plan: { rooms: { create: 2 } } });
    expect(world.ids()).toEqual(['course_D']);
    expect(await gatesOf(world)).toEqual([frozenGate(run.id, 2)]);
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred', D: 'synced' });
    // Nothing failed, and nobody has to act.
    expect(exitCodeOfRun(run)).toBe(0);
    expect(await readWholeSuccess(world.state.db, ['rooms', 'courses'])).not.toBeNull();
    expect(await world.due()).toEqual({ rooms: 'frozen' });
    expect(await workThawed(world)).toEqual([]);
    // Each whole run finds the held keys anew.
    await world.addRooms('E');
    const second = (await world.sync()).run.id;
    expect(await gatesOf(world)).toEqual([frozenGate(second, 3)]);
    await world.remove('E');
    await world.sync();
    expect(await gatesOf(world)).toEqual([frozenGate(second + 1, 2)]);

    await thaw(world);
    expect(await workThawed(world)).toMatchObject([
      { kind: 'sync', streams: ['rooms'], status: 'succeeded' },
    ]);
    await world.drainInbox();
    expect(world.ids().toSorted()).toEqual(['course_C', 'course_D', 'room_A', 'room_B']);
  });

  it('keeps back queued batches, and further requests of a batch in flight', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    await world.addRooms(...codes(6));
    const { runId, queue } = await world.plan();
    const [first = 0, ...rest] = queue;
    const { ended } = await world.applyHeld(first, { method: 'PUT', hold: 'answer' });
    await world.freeze();
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

  it('leaves the changes of its stream in the inbox, each once, while other streams are taken', async () => {
    const world = await open(roomsAndCourses());
    await world.addRooms('A');
    await world.sql`INSERT INTO courses VALUES ('D', 'Free', NULL)`;
    await world.freeze();
    await addChanges(world.state.db, 'rooms', ['A']);
    await addChanges(world.state.db, 'rooms', ['A']);
    await addChanges(world.state.db, 'courses', ['D']);
    expect(await world.drainInbox()).toHaveLength(1);
    expect(world.ids()).toEqual(['course_D']);
    expect(await takeChanges(world.state.db, ['rooms'])).toBe('nothing');
    await unfreezeStreams(world.state.db, ['rooms']);
    expect(await world.drainInbox()).toHaveLength(1);
    expect(world.sandbox.object('room_A')).toBeDefined();
    // A run of changes that a freeze has overtaken is followed by a run over the whole stream.
    await world.addRooms('B', 'E');
    const { runId, queue } = await world.planChanges('rooms', 'B');
    await world.freeze();
    expect((await world.finish(runId, queue)).run).toMatchObject({ kind: 'incremental', status: 'held' });
    await thaw(world);
    expect(await workThawed(world)).toMatchObject([{ kind: 'sync', status: 'succeeded' }]);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', E: 'synced' });
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
