// Guarantees 3, 6, 11
// Gates that close while a run sends. A missing right at the service stops one kind of request of one stream. The rest of the
// run goes on, and the held keys are sent when the right is given.
import { describe, expect, it } from 'vitest';
import { exitCodeOfRun } from '../../src/commands/command.js';
import { codeOf } from '../../src/errors/errors.js';
import { readGates } from '../../src/state/gates/gates.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { listStreams } from '../../src/state/streams.js';
import { reasonHeld } from '../support/held-reason.js';
import { COURSES } from '../support/campus.js';
import { codes, keepRooms, ROOMS, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const NO_RIGHT = { status: 403, message: 'this key may not write rooms' };

/** Lets the service answer 403 to every write of these rooms. */
const forbid = ({ sandbox }: RoomWorld, ...some: string[]) => {
  for (const code of some) sandbox.refuseObject(`room_${code}`, { ...NO_RIGHT, wholeCall: true });
};
const permit = ({ sandbox }: RoomWorld, ...some: string[]) => {
  for (const code of some) sandbox.allowObject(`room_${code}`);
};
/** `rooms create forbidden 6: message`, of each gate. */
const gatesOf = async ({ state }: RoomWorld) =>
  (await readGates(state.db)).map(
    ({ stream, operation, reason, count, facts }) =>
      `${stream} ${operation} ${reason} ${count}: ${facts.message}`,
  );
const forbidden = (operation: string, count: number) =>
  `rooms ${operation} forbidden ${count}: PUT /v1/objects answered 403: ${NO_RIGHT.message}`;

describe('a gate that closes while a whole sync is planned', () => {
  it('does not hold the key that the sync sends, and holds the other', async () => {
    const limits = { update: { count: 1, percent: 0 } };
    const world = await open(rooms({ limits }), { synced: ['A', 'B'] });
    await world.rename('A', 'new');
    const { mirror } = world;
    world.useMirror({
      ...mirror,
      async *readHashes(...asked) {
        yield* mirror.readHashes(...asked);
        if (asked[1]?.keys) return;
        await world.rename('B', 'new');
        await world.planChanges('rooms', 'A', 'B');
        expect(await gatesOf(world)).toEqual([expect.stringMatching(/^rooms update limit 2:/)]);
      },
    });
    const { runId, queue } = await world.plan();
    expect(await world.sql`SELECT local_key FROM slotsync.held`).toEqual([{ local_key: 'B' }]);
    expect(await gatesOf(world)).toEqual([expect.stringMatching(/^rooms update limit 1:/)]);
    await world.finish(runId, queue);
    expect(world.namesOf(['A', 'B'])).toEqual(['new', 'Room B']);
  });
});

describe('a forbidden write of one type', () => {
  it('ends the run and holds the stream, while other streams go on, until the right is given', async () => {
    const world = await open(roomsAndCourses());
    const all = codes(6);
    await world.addRooms(...all);
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL)`;
    forbid(world, ...all);
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'held', counts: { courses: { synced: 1 } } });
    expect(exitCodeOfRun(run)).toBe(3);
    expect(reasonHeld(run, 'rooms', 'create')).toBe(
      '6 records wait because the service forbids the request: PUT /v1/objects answered 403: this key may not write rooms. ' +
        'Let the service permit the request, then: slotsync sync rooms',
    );
    expect(await gatesOf(world)).toEqual([forbidden('create', 6)]);
    expect(await listStreams(world.state.db)).toMatchObject([
      { stream: 'courses', syncedAt: expect.any(Date) as Date, problem: null },
      { stream: 'rooms', syncedAt: null },
    ]);
    // With the token and with a fresh one; nothing was carried out, so nothing is in doubt.
    expect(world.writes().map(({ status, objects }) => [status, objects])).toEqual([
      [403, 6],
      [403, 6],
      [200, 1],
    ]);
    for (const { in_doubt, claimed_by } of Object.values(await world.recordsOf('rooms')))
      expect([in_doubt, claimed_by]).toEqual([false, null]);

    permit(world, ...all);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(await gatesOf(world)).toEqual([]);
    expect(await world.due()).toEqual({});
    expect(Object.values(await world.statusesOf('rooms'))).toEqual(all.map(() => 'synced'));
  });

  it('holds one operation, while other operations of the stream go on', async () => {
    const world = await open(rooms(), { synced: ['A', 'B'] });
    await world.rename('A', 'new');
    await world.addRooms('C');
    forbid(world, 'A');
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', counts: { rooms: { synced: 1 } } });
    expect(await gatesOf(world)).toEqual([forbidden('update', 1)]);
    expect(world.nameOf('C')).toBe('Room C');
    // The sync after the right is given tries it again, even if an operator has rejected it.
    await world.reject(run.id);
    permit(world, 'A');
    await world.sync();
    expect(world.nameOf('A')).toBe('new');
    expect(await gatesOf(world)).toEqual([]);
  });

  it('stops batches that were not begun, lets a batch in flight end, and costs few requests', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    const all = codes(10);
    await world.addRooms(...all);
    const { runId, queue } = await world.plan();
    const [first = 0, second = 0] = queue;
    const { ended } = await world.applyHeld(first, { method: 'PUT', hold: 'answer' });
    forbid(world, ...all.slice(2));
    await world.apply(second);
    expect(await gatesOf(world)).toEqual([forbidden('create', 8)]);
    expect(await readBatch(world.state.db, queue[2] ?? 0)).toBeUndefined();
    world.sandbox.openGate();
    await ended;
    const { run } = await world.finish(runId, []);
    expect(run).toMatchObject({ status: 'held', counts: { rooms: { synced: 2 } } });
    expect(world.writes()).toHaveLength(3);
  });

  it('lets changes of its stream wait without a request, while other streams go on', async () => {
    const world = await open(roomsAndCourses());
    const all = codes(8);
    await world.addRooms(...all);
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL)`;
    await world.sync();
    forbid(world, ...all);
    await world.rename('r000', 'new');
    await world.sync();
    world.sandbox.clearArrivals();
    for (const code of all) {
      await world.rename(code, 'newer');
      await world.push('rooms', code);
    }
    expect(world.writes()).toEqual([]);
    expect(await takeChanges(world.state.db, ['rooms', 'courses'])).toBe('nothing');
    expect(await gatesOf(world)).toEqual([forbidden('update', 8)]);
    await world.sql`UPDATE courses SET name = 'Changed'`;
    await world.push('courses', 'C');
    expect(world.fieldsOf('course_C')).toMatchObject({ 'course.name': 'Changed' });

    // A minute later there is nothing to look at again.
    await world.passLateWrites();
    await world.drainInbox();
    expect(world.writes()).toHaveLength(1);
    expect(await gatesOf(world)).toEqual([forbidden('update', 8)]);
    permit(world, ...all);
    await world.sync();
    expect(all.map((code) => world.nameOf(code))).toEqual(all.map(() => 'newer'));
    expect(await gatesOf(world)).toEqual([]);
  });

  it('closes the gate when a change meets it first, and the run of the change ends', async () => {
    const world = await open(rooms(), { synced: ['A', 'B'] });
    forbid(world, 'A');
    await world.rename('A', 'new');
    await world.rename('B', 'new');
    const { run, errors } = await world.send('rooms', 'A');
    expect([run.status, errors]).toEqual(['held', []]);
    expect(await gatesOf(world)).toEqual([forbidden('update', 1)]);
    await world.push('rooms', 'B');
    expect(world.nameOf('B')).toBe('Room B');
    expect(await gatesOf(world)).toEqual([forbidden('update', 2)]);
  });
});

it('a forbidden question for bookings holds only the deactivations, until the right is given', async () => {
  const world = await open({
    streams: { courses: COURSES, rooms: { ...ROOMS, retire: 'deactivate', unlessReserved: true } },
  });
  await world.addRooms('A', 'B', 'C');
  await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL)`;
  await world.sync();
  await world.remove('A');
  await world.rename('B', 'new');
  await world.sql`UPDATE courses SET name = 'new'`;
  world.sandbox.failNext({
    path: '/reservations/find',
    fault: 'status',
    status: 403,
    body: { status: 403, message: 'this key may not read reservations' },
    times: 'always',
  });
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'held', counts: { rooms: { synced: 1 }, courses: { synced: 1 } } });
  expect(await gatesOf(world)).toEqual([
    'rooms retire forbidden 1: POST /v1/reservations/find answered 403: this key may not read reservations',
  ]);
  expect(world.isActive('room_A')).toBe(true);
  expect(world.nameOf('B')).toBe('new');
  world.sandbox.clearFailures();
  expect((await world.sync()).run.status).toBe('succeeded');
  expect(world.isActive('room_A')).toBe(false);
  expect(await gatesOf(world)).toEqual([]);
});

it('a token without any permission closes no gate of a stream, because the key is not accepted', async () => {
  const world = await open(rooms());
  await world.addRooms('A');
  const { runId, queue } = await world.plan();
  for (const path of ['/objects', '/types/find', '/fields/find', '/objects/find'])
    world.sandbox.failNext({ path, fault: 'status', status: 403, times: 'always' });
  const { run, errors } = await world.finish(runId, queue);
  expect(errors.map(codeOf)).toEqual(['unauthorized']);
  expect(run).toMatchObject({ status: 'failed', errorCode: 'unauthorized' });
  expect(await gatesOf(world)).toEqual([]);
  expect(await world.statusesOf('rooms')).toEqual({ A: 'failed' });
  expect((await listStreams(world.state.db))[0]?.problem).toMatchObject({ code: 'unauthorized' });
});
