// Guarantee 11
// Verify: the objects at the service beside what was accepted last. People change objects by the controls of the sandbox, and
// the findings are checked in the tables of the state.
import { concerns } from '../../src/documents/concerns/concerns.js';
import { listVerified, readSituation } from '../../src/situation/situation.js';
import { readClock } from '../../src/state/database.js';
import type { RunRange } from '../../src/state/schema.js';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { linkRecords } from '../../src/state/records/links.js';
import { startReading, whileReadingAlone } from '../../src/state/runs/reconcile-and-verify-runs.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import type { Declaration } from '../support/campus.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { verifyWhenDue, type PeriodicVerifyDeps } from '../../src/sync/verify/verify-periodically.js';
import { NIGHTLY } from '../../src/time/schedule.js';
import { registerSchedule, VERIFY } from '../../src/state/schedules.js';
import { adopt, verify, type VerifyRequest } from '../../src/sync/verify/verify.js';
import {
  addRooms,
  codes,
  keepRoomWorlds,
  rename,
  ROOMS,
  rooms,
  roomsAndCourses,
  bookObject,
} from '../support/room-worlds.js';
import { deleteFinishedRuns, startRunOf } from '../support/gated-rooms.js';
import { statusOf } from '../support/status.js';
import { until } from '../support/wait.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import type { World, WorldOptions } from '../support/world.js';
import { reasonHeld } from '../support/held-reason.js';

const open = keepRoomWorlds();

/** Dates all writes an hour back, so that no object needs a second reading. */
const settle = (world: World) =>
  world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;

/** Opens a world in which these rooms were synced an hour ago. */
async function openSynced(config: SlotsyncConfig, synced: readonly string[], options: WorldOptions = {}) {
  const world = await open(config, { ...options, synced });
  await settle(world);
  return world;
}

async function sync(world: World): Promise<void> {
  await world.sync();
  await settle(world);
  world.sandbox.clearArrivals();
}

/** Verifies, and returns the counts of the first stream. */
async function verifyRooms(world: World, request: VerifyRequest = {}) {
  const { streams, ...result } = await verify(world.verifying(), request);
  const [rooms] = streams;
  if (!rooms) throw new Error('no stream was verified');
  return { ...result, ...rooms, streams };
}

const driftOf = ({ sql }: World) =>
  sql`SELECT stream, local_key, external_id, kind, fields FROM slotsync.drift ORDER BY stream, local_key`;
const eventsOf = ({ sql }: World) =>
  sql`SELECT local_key, from_kind, to_kind, run_id::int FROM slotsync.drift_events ORDER BY id`;
const verifiedOf = ({ sql }: World) =>
  sql`SELECT stream, objects::int, run_id::int FROM slotsync.verifications ORDER BY stream`;
const toField = (extId: string) => ({ extId });
const finds = ({ sandbox }: World) => sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));
const nameOf = (world: World, code: string) => world.fieldsOf(`room_${code}`)?.['room.name'];
const change = (world: World, code: string, name: string) =>
  world.sandbox.changeObject(`room_${code}`, { fields: [{ fieldId: 'room.name', values: [name] }] });

/** Opens a world of which a verify has found that these rooms were changed by hand. */
async function openDrifted(config: SlotsyncConfig, synced: readonly string[], changed = synced) {
  const world = await openSynced(config, synced);
  for (const code of changed) change(world, code, 'Aula');
  await verifyRooms(world);
  return world;
}

describe('an object of a record in verify', () => {
  it('is verified without a finding if it is as it should be', async () => {
    const world = await openSynced(rooms(), codes(3));
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 3, waiting: 0, requests: 1 });
    expect(await driftOf(world)).toEqual([]);
    expect(await verifiedOf(world)).toEqual([{ stream: 'rooms', objects: 3, run_id: 2 }]);
    expect(await readRun(world.state.db, 2)).toMatchObject({ kind: 'verify', status: 'succeeded' });
  });

  it('is reported if changed, missing, inactive or retyped, with the values of mapped fields', async () => {
    const config = roomsAndCourses();
    const note = { extId: 'room.note' };
    const fields = [...['room.name', 'room.seats', 'course.name', 'course.room'].map(toField), note];
    const schema = { types: [{ extId: 'room' }, { extId: 'course' }], fields };
    const world = await openSynced(config, ['A', 'B', 'C', 'D', 'E', 'F'], { sandbox: { schema } });
    const { sandbox } = world;
    sandbox.removeObject('room_A');
    sandbox.changeObject('room_B', { active: false });
    sandbox.removeObject('room_C');
    sandbox.addObject({ extId: 'room_C', typeId: 'course' });
    change(world, 'D', 'Aula');
    sandbox.changeObject('room_E', { fields: [{ fieldId: 'room.note', values: ['projector'] }] });
    sandbox.changeObject('room_F', { properties: { members: [{ objectId: 'person_1' }] } });
    const counts = { missing: 1, inactive: 1, wrong_type: 1, changed: 1 };
    expect(await verifyRooms(world)).toMatchObject({ drifting: 4, compared: 6, ...counts });
    expect(await driftOf(world)).toMatchObject([
      { stream: 'rooms', local_key: 'A', external_id: 'room_A', kind: 'missing', fields: null },
      { local_key: 'B', kind: 'inactive', fields: { active: { here: ['true'], there: ['false'] } } },
      { local_key: 'C', kind: 'wrong_type' },
      { local_key: 'D', kind: 'changed', fields: { 'room.name': { here: ['Room D'], there: ['Aula'] } } },
    ]);
  });
});

describe('a record that a sync has to do with', () => {
  it('waits in verify if its row changed, or if it is given up, in doubt or claimed', async () => {
    const world = await openSynced(rooms(), ['A', 'B', 'C', 'D', 'F', 'G']);
    await rename(world, 'A', 'Hall');
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    await addRooms(world, 'E');
    world.sandbox.addObject({ extId: 'room_E', typeId: 'room' });
    for (const code of ['A', 'D', 'F', 'G']) change(world, code, 'Aula');
    world.sandbox.removeObject('room_B');
    await world.sql`UPDATE slotsync.records SET status = 'dead' WHERE local_key = 'D'`;
    await world.sql`UPDATE slotsync.records SET in_doubt = true WHERE local_key = 'F'`;
    await world.sql`UPDATE slotsync.records SET claimed_by = 'x', claimed_until = now() + interval '1 hour'
      WHERE local_key = 'G'`;
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 1, waiting: 6 });
    expect(await driftOf(world)).toEqual([]);
  });

  it('is read again if written while its page was read, and waits if that reading is as old', async () => {
    const world = await openSynced(rooms(), ['A', 'B']);
    change(world, 'A', 'Aula');
    // Written after every answer, however long the verify takes to begin.
    await world.sql`UPDATE slotsync.records SET updated_at = now() + interval '1 hour' WHERE local_key = 'A'`;
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 1, waiting: 1 });
    expect(finds(world)).toHaveLength(2);
  });

  it('is read again if written after the request for its page', async () => {
    const world = await openSynced({ ...rooms(), service: { pageSize: 1 } }, ['A', 'B', 'C']);
    change(world, 'A', 'Aula');
    world.sandbox.closeGate({ path: '/objects/find', hold: 'answer' });
    let clock = 0;
    const verifying = verify({ ...world.verifying(), clock: () => clock });
    await until(() => world.sandbox.gate().held === 1, { describe: 'the answer about the first page' });
    // A minute passes; ten seconds before its end the object was written.
    clock = 60_000;
    change(world, 'A', 'Room A');
    await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '10 seconds' WHERE local_key = 'A'`;
    world.sandbox.openGate();
    expect(await verifying).toMatchObject({ drifting: 0, streams: [{ compared: 3, waiting: 0 }] });
    expect(await driftOf(world)).toEqual([]);
  });

  it('is read again a moment later if written just before verify, and its drift is reported', async () => {
    const world = await openSynced(rooms(), ['A', 'B']);
    change(world, 'A', 'Aula');
    await world.sql`UPDATE slotsync.records SET updated_at = clock_timestamp()`;
    expect(await verifyRooms(world)).toMatchObject({ drifting: 1, compared: 2, waiting: 0 });
  });

  it('is no drift if the sync mends its object while verify is at work', async () => {
    const world = await openSynced(rooms(), ['A']);
    world.sandbox.removeObject('room_A');
    // The answer to the question by external id is held, while the record is written.
    world.sandbox.closeGate({ path: '/objects/find', hold: 'answer', after: 1 });
    const verifying = verifyRooms(world);
    await expect.poll(() => world.sandbox.gate().held).toBe(1);
    await world.sql`UPDATE slotsync.records SET updated_at = clock_timestamp()`;
    world.sandbox.openGate();
    expect(await verifying).toMatchObject({ drifting: 0, waiting: 1 });
    expect(await driftOf(world)).toEqual([]);
  });
});

it('verify puts a record in doubt whose unchanged row becomes another object, for the next sync', async () => {
  let name = 'Old';
  const world = await openSynced(rooms({ fields: { 'room.name': () => name } }), ['A', 'B']);
  expect(await verifyRooms(world)).toMatchObject({ compared: 2, inDoubt: 0 });
  name = 'New';
  await sync(world);
  expect(world.writes()).toEqual([]);
  expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 0, waiting: 0, inDoubt: 2 });
  // Until then it waits.
  expect(await verifyRooms(world)).toMatchObject({ waiting: 2, inDoubt: 0 });
  await sync(world);
  expect(['A', 'B'].map((code) => nameOf(world, code))).toEqual(['New', 'New']);
  expect(await verifyRooms(world)).toMatchObject({ compared: 2, waiting: 0, inDoubt: 0 });
});

it('verify does not pass over an object that drifted and whose record was given up since', async () => {
  const world = await openSynced(rooms(), codes(3));
  const [code = ''] = codes(1);
  change(world, code, 'by hand');
  expect(await verifyRooms(world)).toMatchObject({ drifting: 1, notComparedAgain: 0 });
  await world.sql`UPDATE slotsync.records SET status = 'dead', error_code = 'refused_400' WHERE local_key = ${code}`;
  expect(await verifyRooms(world)).toMatchObject({ drifting: 0, waiting: 1, notComparedAgain: 1 });
  expect(await verifyRooms(world, { sample: 1 })).toMatchObject({ notComparedAgain: 0 });
});

describe('objects without a record in verify', () => {
  it('are always counted, listed only where they are asked for, and never drift', async () => {
    const world = await openSynced(rooms(), ['A']);
    const { id } = world.sandbox.addObject({ typeId: 'room' });
    world.sandbox.addObject({ extId: 'room_Z', typeId: 'room' });
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, extra: 2 });
    expect(await driftOf(world)).toEqual([]);
    expect(await verifyRooms(world, { extras: true })).toMatchObject({ drifting: 0, extra: 2 });
    expect(concerns(await readSituation(world.state.db, { streams: ['rooms'] }))).toEqual([]);
    expect(await statusOf(world.state)).toContain('2 objects belong to no record, and are left as they are');
    expect(await driftOf(world)).toMatchObject([
      { local_key: `#${id}`, external_id: null, kind: 'extra' },
      { external_id: 'room_Z', kind: 'extra' },
    ]);
    // The first is removed, and the other becomes a record.
    world.sandbox.removeObject(id);
    await addRooms(world, 'Z');
    await sync(world);
    expect(await driftOf(world)).toMatchObject([{ local_key: `#${id}` }]);
    await verifyRooms(world, { extras: true });
    expect(await driftOf(world)).toEqual([]);
  });

  it('stay listed after a pass that does not ask for them, as long as they are there', async () => {
    const world = await openSynced(rooms(), ['A']);
    const [kept, removed, gone] = [1, 2, 3].map(() => world.sandbox.addObject({ typeId: 'room' }).id);
    await verifyRooms(world, { extras: true });
    world.sandbox.removeObject(removed ?? 0);
    const later = world.sandbox.addObject({ typeId: 'room' });
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, extra: 3 });
    expect(await driftOf(world)).toMatchObject([{ local_key: `#${kept}` }, { local_key: `#${gone}` }]);
    expect(later.id).toBeGreaterThan(gone ?? 0);
  });

  it('are no objects of another stream of the same type', async () => {
    const both = { rooms: ROOMS, labs: { ...ROOMS, from: 'labs', externalId: 'lab_{code}' } };
    const world = await open({ streams: both });
    await world.sql`CREATE TABLE labs (code text PRIMARY KEY, name text, seats integer)`;
    await addRooms(world, 'A');
    await world.sql`INSERT INTO labs VALUES ('L', 'Lab L')`;
    await sync(world);
    world.sandbox.addObject({ typeId: 'room' });
    const { streams, requests } = await verifyRooms(world);
    expect(streams).toMatchObject([
      { stream: 'rooms', compared: 1, extra: 1 },
      { stream: 'labs', compared: 1 },
    ]);
    expect(requests).toBe(1);
    const [labs] = [...world.verifying().streams.values()].filter(({ name }) => name === 'labs');
    const ofLabs = await verifyRooms(world, { streams: labs ? [labs] : [] });
    expect(ofLabs).toMatchObject({ stream: 'labs', compared: 1 });
  });
});

describe('the findings of verify', () => {
  it('make an event for each change, and one when the drift is mended', async () => {
    const world = await openDrifted(rooms(), ['A']);
    await verifyRooms(world);
    world.sandbox.removeObject('room_A');
    await verifyRooms(world);
    const fields = [{ fieldId: 'room.name', values: ['Room A'] }];
    world.sandbox.putObject({ extId: 'room_A', typeId: 'room', fields });
    await verifyRooms(world);
    expect(await driftOf(world)).toEqual([]);
    expect(await eventsOf(world)).toEqual([
      { local_key: 'A', from_kind: null, to_kind: 'changed', run_id: 2 },
      { local_key: 'A', from_kind: 'changed', to_kind: 'missing', run_id: 4 },
      { local_key: 'A', from_kind: 'missing', to_kind: null, run_id: 5 },
    ]);
  });

  it('end with a write that is accepted later, and not with a sync that sends nothing', async () => {
    const world = await openDrifted(rooms(), ['A', 'B'], ['A']);
    await sync(world);
    expect(await driftOf(world)).toHaveLength(1);
    await rename(world, 'A', 'Hall');
    await sync(world);
    expect(await driftOf(world)).toEqual([]);
    expect((await eventsOf(world)).at(-1)).toMatchObject({ from_kind: 'changed', to_kind: null, run_id: 4 });
  });

  it('end when the row is gone from a stream that retires nothing', async () => {
    const world = await openSynced(rooms(), ['A', 'B']);
    change(world, 'A', 'By hand');
    world.sandbox.removeObject('room_B');
    expect(await verifyRooms(world)).toMatchObject({ drifting: 2 });
    await world.sql`DELETE FROM rooms`;
    await sync(world);
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, waiting: 2, compared: 0 });
    expect(await driftOf(world)).toEqual([]);
  });

  it('end when the stream leaves the configuration', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, 'A', 'B');
    await world.sql`INSERT INTO courses VALUES ('C', 'Course', 'A')`;
    await sync(world);
    change(world, 'A', 'By hand');
    world.sandbox.removeObject('course_C');
    await verify(world.verifying());
    expect(await driftOf(world)).toHaveLength(2);
    world.configure(rooms());
    await verify(world.verifying());
    expect(await driftOf(world)).toMatchObject([{ stream: 'rooms', local_key: 'A' }]);
  });

  it('count an object whose external id the state cannot hold as an object without a record', async () => {
    const world = await openSynced(rooms(), ['A']);
    for (const extId of ['room_\0', 'room_\uD800', `room_${'x'.repeat(2000)}`])
      world.sandbox.addObject({ extId, typeId: 'room', fields: [] });
    expect(await verifyRooms(world, { extras: true })).toMatchObject({ compared: 1, extra: 3 });
    expect((await adopt(world.verifying())).streams).toMatchObject([{ unowned: 3 }]);
  });
});

describe('a pass of verify', () => {
  it('asks by external id only over a sample, and does not verify the stream', async () => {
    const world = await openSynced(rooms(), codes(20));
    for (const code of codes(20)) change(world, code, 'Aula');
    expect(await verifyRooms(world, { sample: 5 })).toMatchObject({ drifting: 5, compared: 5, requests: 1 });
    expect(await verifiedOf(world)).toEqual([]);
    expect(await driftOf(world)).toHaveLength(5);
  });

  it('compares each page, and asks once for the objects that no page had', async () => {
    const config = rooms();
    const world = await openSynced({ ...config, service: { pageSize: 4 } }, codes(10));
    world.sandbox.removeObject('room_r003');
    change(world, 'r009', 'Aula');
    expect(await verifyRooms(world)).toMatchObject({ compared: 10, missing: 1, changed: 1, requests: 4 });
  });

  it('fails and calls nothing missing when the service answers fewer pages than it promised', async () => {
    const world = await openSynced({ ...rooms(), service: { pageSize: 4 } }, codes(10));
    world.sandbox.setMissingPages(1);
    await expect(verifyRooms(world)).rejects.toMatchObject({ code: 'answer_invalid' });
    expect(await driftOf(world)).toEqual([]);
    expect(await verifiedOf(world)).toEqual([]);
    expect(await readRun(world.state.db, 2)).toMatchObject({ status: 'failed', errorCode: 'answer_invalid' });
  });

  it('runs alone, and closes a pass that was interrupted', async () => {
    const world = await openSynced(rooms(), ['A']);
    const second = await whileReadingAlone(world.state, 'verify', async () =>
      verifyRooms(world).catch((error: unknown) => error),
    );
    expect(second?.result).toMatchObject({ code: 'verify_running' });
    const request = { kind: 'verify', lane: 'verify', startedBy: 'command', streams: ['rooms'] } as const;
    const interrupted = await startReading(world.state.db, request);
    // A run that only reads keeps no sync from starting.
    expect(await startRun(world.state.db, { ...request, kind: 'sync' })).toMatchObject({ started: true });
    await verifyRooms(world);
    const ended = { status: 'failed', errorCode: 'interrupted' };
    expect(await readRun(world.state.db, interrupted)).toMatchObject(ended);
  });

  it('ends at its next page when it is cancelled', async () => {
    const world = await openSynced(rooms(), ['A']);
    world.sandbox.closeGate({ path: '/objects/find' });
    const verifying = verifyRooms(world).catch((error: unknown) => error);
    await expect.poll(() => world.sandbox.gate().held).toBe(1);
    await cancelRun(world.state.db, 2);
    world.sandbox.openGate();
    expect(await verifying).toMatchObject({ code: 'run_cancelled' });
    expect(await readRun(world.state.db, 2)).toMatchObject({ status: 'cancelled' });
  });

  it('finds nothing over an empty stream of an empty type', async () => {
    const world = await open(rooms());
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 0, waiting: 0 });
    expect(await verifyRooms(world, { sample: 10 })).toMatchObject({ drifting: 0, compared: 0, requests: 0 });
  });
});

/** Plans the second half of `verify --repair`: a run over the drift. */
async function planRepair(world: World, range?: RunRange) {
  const streams = [...world.verifying().streams.keys()];
  const runId = await startRunOf(world, { kind: 'repair', lane: 'verify', streams, range });
  return { runId, ...(await world.planRun(runId)) };
}
async function repair(world: World, range?: RunRange) {
  const { runId, queue } = await planRepair(world, range);
  return world.finish(runId, queue);
}

describe('a repair', () => {
  it('sends changed, missing and inactive objects again, and none that is equal by then', async () => {
    const world = await openSynced(rooms(), codes(30));
    change(world, 'r000', 'Aula');
    world.sandbox.removeObject('room_r001');
    world.sandbox.changeObject('room_r002', { active: false });
    change(world, 'r003', 'Aula');
    await verifyRooms(world);
    change(world, 'r003', 'Room r003');
    world.sandbox.clearArrivals();
    const { run } = await repair(world);
    expect(run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { repair: 4 } },
      counts: { rooms: { synced: 3, unchanged: 1 } },
    });
    expect(world.writes().map(({ objects }) => objects)).toEqual([3]);
    await settle(world);
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, compared: 30 });
  });

  const storing = (storedAs: 'trimmed' | 'cut' | 'sorted' | 'dropped') => ({
    types: [{ extId: 'room' }],
    fields: [{ extId: 'room.name', storedAs }, { extId: 'room.seats' }],
  });
  const named: Partial<Declaration> = {
    fields: { 'room.name': ({ name }) => String(name).split(','), 'room.seats': 'seats' },
  };

  it.each([
    ['trimmed', ' Hall ', ['Hall']],
    ['cut', 'A hall with a long name', ['A hall wit']],
    ['sorted', 'b,a', ['a', 'b']],
    ['dropped', 'Hall', []],
  ] as const)(
    'sends values that the service stores otherwise (%s) once, and then none until one changes',
    async (storedAs, name, there) => {
      const world = await open(rooms(named), { sandbox: { schema: storing(storedAs) } });
      await world.sql`INSERT INTO rooms (code, name) VALUES ('A', ${name})`;
      await sync(world);
      expect(await verifyRooms(world)).toMatchObject({ drifting: 1, storedOtherwise: 0 });
      await repair(world);
      expect(world.writes()).toHaveLength(1);

      for (let night = 1; night <= 2; night++) {
        await settle(world);
        expect(await verifyRooms(world)).toMatchObject({ drifting: 0, storedOtherwise: 1, compared: 1 });
        const fields = { 'room.name': { here: name.split(','), there } };
        expect(await driftOf(world)).toMatchObject([{ kind: 'stored_otherwise', fields }]);
        expect(await repair(world)).toMatchObject({ run: { plan: { rooms: { repair: 0 } } } });
      }
      expect(world.writes()).toHaveLength(1);
      const { db } = world.state;
      const situation = await readSituation(db, { streams: ['rooms'] });
      expect(listVerified(situation)).toMatchObject([{ drift: 0, repairable: 0, storedOtherwise: 1 }]);
      expect(concerns(situation).filter(({ kind }) => kind === 'drift')).toEqual([]);
      expect(await statusOf(world.state)).toContain('1 object differs at the service');
      expect(await statusOf(world.state)).not.toContain('Every record is in sync');

      // Sent for another reason, the value is stored as before.
      await world.sql`UPDATE rooms SET seats = 5`;
      await sync(world);
      expect(await driftOf(world)).toEqual([]);
      expect(await verifyRooms(world)).toMatchObject({ drifting: 0, storedOtherwise: 1 });

      await rename(world, 'A', ` ${name}, Z`);
      await sync(world);
      expect(await verifyRooms(world)).toMatchObject({ drifting: 1, changed: 1, storedOtherwise: 0 });
      await rename(world, 'A', 'A');
      world.sandbox.defineSchema({ types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }] });
      await sync(world);
      expect(await verifyRooms(world)).toMatchObject({ drifting: 0, storedOtherwise: 0 });
    },
  );

  it('sends another value of an object whose values are stored otherwise', async () => {
    const world = await open(rooms(named), { sandbox: { schema: storing('cut') } });
    await world.sql`INSERT INTO rooms (code, name, seats) VALUES ('A', 'A hall with a long name', 5)`;
    await sync(world);
    await verifyRooms(world);
    await repair(world);
    await settle(world);
    await verifyRooms(world);
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.seats', values: ['7'] }] });
    expect(await verifyRooms(world)).toMatchObject({ drifting: 1, storedOtherwise: 0 });
    await repair(world);
    await settle(world);
    expect(world.fieldsOf('room_A')?.['room.seats']).toBe('5');
    expect(await verifyRooms(world)).toMatchObject({ drifting: 0, storedOtherwise: 1 });
  });

  it.each(['was as it should be after the repair', 'was not sent by the repair'])(
    'treats an object as drift that changed again in the same way, and %s',
    async (what) => {
      const world = await openDrifted(rooms(), ['A']);
      if (what.startsWith('was not')) change(world, 'A', 'Room A');
      await repair(world);
      await settle(world);
      if (what.startsWith('was as')) expect(await verifyRooms(world)).toMatchObject({ drifting: 0 });
      change(world, 'A', 'Aula');
      expect(await verifyRooms(world)).toMatchObject({ drifting: 1, changed: 1, storedOtherwise: 0 });
    },
  );

  it('retires a retired object again that is active, unless its row is back or it is booked', async () => {
    const world = await openSynced(rooms({ retire: 'deactivate' }), codes(40));
    await world.sql`DELETE FROM rooms WHERE code IN ('r000', 'r001')`;
    await sync(world);
    for (const code of ['r000', 'r001']) world.sandbox.changeObject(`room_${code}`, { active: true });
    await verifyRooms(world);
    bookObject(world, 'room_r001');
    const { run } = await repair(world);
    expect(run).toMatchObject({ counts: { rooms: { synced: 1, deferred: 1 } } });
    expect(world.sandbox.object('room_r000')).toMatchObject({ active: false });
    expect(world.sandbox.object('room_r001')).toMatchObject({ active: true });
    expect(await world.statusesOf('rooms')).toMatchObject({ r000: 'retired', r001: 'deferred' });
  });

  it('retires an object again after all other drift was sent', async () => {
    const world = await openSynced(rooms({ retire: 'deactivate' }), codes(20));
    await world.sql`DELETE FROM rooms WHERE code = 'r000'`;
    await sync(world);
    world.sandbox.changeObject('room_r000', { active: true });
    change(world, 'r001', 'Aula');
    await verifyRooms(world);
    const { runId, queue } = await planRepair(world);
    expect(queue).toHaveLength(1);
    const next = await world.apply(queue[0] ?? 0);
    expect([nameOf(world, 'r001'), world.sandbox.object('room_r000')?.active]).toEqual(['Room r001', true]);
    await world.finish(runId, next.queue);
    expect(world.sandbox.object('room_r000')?.active).toBe(false);
  });

  it('creates missing parents before their missing children', async () => {
    const world = await open(roomsAndCourses({}));
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await sync(world);
    world.sandbox.removeObject('room_A');
    world.sandbox.removeObject('course_c1');
    await verify(world.verifying());
    world.sandbox.clearArrivals();
    const { run } = await repair(world);
    const counts = { rooms: { synced: 1 }, courses: { synced: 1 } };
    expect(run).toMatchObject({ status: 'succeeded', counts });
  });

  it('leaves an object of another type, and an object without a record, alone', async () => {
    const world = await openSynced(roomsAndCourses(), ['A']);
    world.sandbox.removeObject('room_A');
    world.sandbox.addObject({ extId: 'room_A', typeId: 'course' });
    world.sandbox.addObject({ typeId: 'room' });
    await verify(world.verifying(), { extras: true });
    const { run } = await repair(world);
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { repair: 0 } } });
    expect(world.writes()).toEqual([]);
  });

  const held = (limits: Declaration['limits'] = { repair: { count: 2, percent: 10 } }) =>
    openSynced(rooms({ limits }), codes(20));

  it('is held beyond its limit, with the reason and the command', async () => {
    const world = await held();
    for (const code of codes(20)) world.sandbox.removeObject(`room_${code}`);
    await verifyRooms(world);
    const { run } = await repair(world);
    const holds = { rooms: { repair: { count: 20, reason: 'limit' } } };
    expect(run).toMatchObject({ status: 'held', holds });
    expect(reasonHeld(run, 'rooms', 'repair')).toBe(
      'the service holds none of the 20 objects: it may have been restored empty or from a backup; ' +
        '20 of 20 records would be repaired, more than 2 and more than 10 %; ' +
        'if that is so: slotsync approve 3 --stream rooms --operation repair',
    );
    expect(world.writes()).toEqual([]);
  });

  type Spoil = (world: World, code: string) => unknown;
  it.each<[string, Spoil, RegExp]>([
    [
      'all in one field',
      (world, code) => change(world, code, 'Aula'),
      /all 5 objects that drift differ in room\.name/,
    ],
    [
      'all inactive',
      ({ sandbox }, code) => sandbox.changeObject(`room_${code}`, { active: false }),
      /all 5 objects that drift were made inactive/,
    ],
    [
      'most of them missing',
      ({ sandbox }, code) => sandbox.removeObject(`room_${code}`),
      /lacks 5 of the 20 objects/,
    ],
  ])('is held with a reason that names the pattern of the drift: %s', async (_, spoil, says) => {
    const world = await held();
    for (const code of codes(5)) spoil(world, code);
    await verifyRooms(world);
    const { run } = await repair(world);
    expect(reasonHeld(run, 'rooms', 'repair')).toMatch(says);
  });

  it('leaves a row that has changed since to a sync, which may hold it', async () => {
    const world = await openDrifted(rooms({ limits: { update: { count: 0, percent: 0 } } }), ['A', 'B']);
    await rename(world, 'A', 'A load that went wrong');
    expect((await world.sync()).run.status).toBe('held');
    await repair(world);
    expect([nameOf(world, 'A'), nameOf(world, 'B')]).toEqual(['Aula', 'Room B']);
    expect(await driftOf(world)).toMatchObject([{ local_key: 'A' }]);
  });

  it('leaves rows that change or go after its plan to the next sync, which sends them', async () => {
    const world = await openDrifted(rooms({ retire: 'deactivate' }), ['A', 'B', 'C'], ['A', 'B']);
    const { runId, queue } = await planRepair(world);
    await rename(world, 'A', 'Hall');
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    await world.finish(runId, queue);
    expect(nameOf(world, 'A')).toBe('Aula');
    const { run: next } = await world.sync();
    expect(next).toMatchObject({ status: 'succeeded', plan: { rooms: { update: 1, retire: 1 } } });
    expect(nameOf(world, 'A')).toBe('Hall');
    expect(world.sandbox.object('room_B')?.active).toBe(false);
  });

  it('covers only what a verify of a sample has seen', async () => {
    const world = await held({ repair: { count: 100, percent: 100 } });
    for (const code of codes(20)) change(world, code, 'Aula');
    await verifyRooms(world);
    const verifiedSince = (await readClock(world.state.db)).toISOString();
    const { runId } = await verifyRooms(world, { sample: 3 });
    await deleteFinishedRuns(world);
    const { run } = await repair(world, { verified: runId, verifiedSince });
    expect(run).toMatchObject({ plan: { rooms: { repair: 3 } } });
  });
});

describe('adopt after the loss of the state', () => {
  const lose = (world: World) => world.sql`
    TRUNCATE slotsync.records, slotsync.runs, slotsync.batches, slotsync.streams, slotsync.gates, slotsync.held, slotsync.sent, slotsync.drift, slotsync.verifications RESTART IDENTITY`;

  it('makes records again without a write, and a sync sends only what differs', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, ...codes(30));
    await world.sql`INSERT INTO courses SELECT 'c' || i, 'Course ' || i, 'r000' FROM generate_series(1, 5) AS i`;
    await sync(world);
    const before = await world.recordsOf('courses');
    await lose(world);
    const { streams } = await adopt(world.verifying());
    expect(streams).toMatchObject([
      { stream: 'rooms', equal: 30, differing: 0, ambiguous: 0, unowned: 0 },
      { stream: 'courses', equal: 5, differing: 0 },
    ]);
    const again = { external_id: 'course_c1', object_hash: before['c1']?.object_hash };
    expect((await world.recordsOf('courses'))['c1']).toMatchObject(again);
    await sync(world);
    expect(world.writes()).toEqual([]);

    await lose(world);
    await world.sql`UPDATE rooms SET name = name || '!' WHERE code IN ('r001', 'r002')`;
    await world.sql`UPDATE courses SET room = 'r001' WHERE code = 'c1'`;
    expect((await adopt(world.verifying())).streams).toMatchObject([{ differing: 2 }, { differing: 1 }]);
    world.sandbox.clearArrivals();
    const { run } = await world.sync();
    expect(run).toMatchObject({ plan: { rooms: { update: 2 }, courses: { update: 1 } } });
    expect(world.writes().map(({ objects }) => objects)).toEqual([2, 1]);
  });

  it('changes nothing of the records that are there', async () => {
    const world = await openSynced(rooms(), ['A', 'B']);
    await world.sql`DELETE FROM slotsync.records WHERE local_key = 'B'`;
    change(world, 'A', 'Aula');
    const before = await world.recordsOf('rooms');
    expect((await adopt(world.verifying())).streams).toMatchObject([{ equal: 1, differing: 0 }]);
    expect((await world.recordsOf('rooms'))['A']).toEqual(before['A']);
  });

  it('leaves an object without an external id to the sync that assigns one', async () => {
    const assigning = { ...rooms(), service: { assignExternalIds: true } };
    const world = await open(assigning, { sandbox: { assignsExternalIds: true } });
    await addRooms(world, 'A');
    const { id } = world.sandbox.addObject({ extId: null, typeId: 'room', fields: [] });
    const link = { stream: 'rooms', localKey: 'A', externalId: 'room_A', destinationId: String(id) };
    await linkRecords(world.state, [{ ...link, assignsId: true, linkedBy: 'match', fields: null }]);
    expect((await adopt(world.verifying())).streams).toMatchObject([{ equal: 0, differing: 0 }]);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.sandbox.object('room_A')).toMatchObject({ id });
  });

  it('leaves an object that no row or two rows have without a record', async () => {
    const world = await open(rooms({ externalId: 'room_{name}' }));
    await world.sql`INSERT INTO rooms VALUES ('A', 'One'), ('B', 'Two'), ('C', 'Two')`;
    for (const name of ['One', 'Two', 'Three']) {
      const fields = [{ fieldId: 'room.name', values: [name] }];
      world.sandbox.addObject({ extId: `room_${name}`, typeId: 'room', fields });
    }
    expect((await adopt(world.verifying())).streams).toMatchObject([{ equal: 1, ambiguous: 1, unowned: 1 }]);
    expect(Object.keys(await world.recordsOf('rooms'))).toEqual(['A']);
  });
});

describe('verify by a worker', () => {
  const schedule = { nightly: '0 2 * * *', timezone: 'UTC' };
  const DUE = new Date('2026-03-02T02:00:00Z');
  const periodic = (world: World, changes: Partial<PeriodicVerifyDeps> = {}): PeriodicVerifyDeps => ({
    ...world.verifying(),
    startedBy: 'schedule',
    isReconciled: false,
    repairs: false,
    startRepair: async () => undefined,
    ...changes,
  });
  /** As if the worker had been started before the schedule's occurrence. */
  const register = async ({ sql, state }: World, pattern: string) => {
    await registerSchedule(state.db, NIGHTLY, { pattern: schedule.nightly, timezone: 'UTC' });
    await registerSchedule(state.db, VERIFY, { pattern, timezone: 'UTC' });
    await sql`UPDATE slotsync.schedules SET registered_at = '2026-03-01 12:00Z'`;
  };
  const startNight = ({ sql }: World) =>
    sql`UPDATE slotsync.schedules SET last_due = ${DUE} WHERE name = 'nightly'`;

  it('runs after the sync of each night once, when the run and its reconcile have ended', async () => {
    const world = await open({ ...rooms(), schedule, verify: { after: 'sync' } });
    await addRooms(world, 'A');
    await register(world, 'sync');
    const deps = periodic(world, { isReconciled: true });
    expect(await verifyWhenDue(deps, DUE)).toBeUndefined();
    await startNight(world);
    const runId = await world.startRun();
    expect(await verifyWhenDue(deps, DUE)).toBeUndefined();
    const { queue } = await world.planRun(runId);
    await world.finish(runId, queue);
    await settle(world);
    expect(await verifyWhenDue(deps, DUE)).toBeUndefined();
    await world.sql`UPDATE slotsync.schedules SET last_reconciled = last_due WHERE name = 'nightly'`;
    expect(await verifyWhenDue(deps, DUE)).toMatchObject({ drifting: 0 });
    expect(await verifyWhenDue(deps, DUE)).toBeUndefined();
  });

  it('runs by a pattern of its own, and stays due after a failure', async () => {
    const world = await openSynced({ ...rooms(), verify: { after: '0 5 * * 0' } }, ['A']);
    await register(world, '0 5 * * *');
    const [before, after] = [new Date('2026-03-02T04:59:00Z'), new Date('2026-03-02T05:00:00Z')];
    await world.sql`UPDATE slotsync.schedules SET registered_at = '2026-03-02 00:00Z'`;
    expect(await verifyWhenDue(periodic(world), before)).toBeUndefined();
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 500, times: 12 });
    await expect(verifyWhenDue(periodic(world), after)).rejects.toMatchObject({ code: 'service_failed' });
    expect(await verifyWhenDue(periodic(world), after)).toMatchObject({ drifting: 0 });
    expect(await verifyWhenDue(periodic(world), after)).toBeUndefined();
  });

  it('is not due by a clock that is ahead, with a pattern of its own', async () => {
    const world = await open({ ...rooms(), verify: { after: '0 5 * * *' } });
    await registerSchedule(world.state.db, VERIFY, { pattern: '0 5 * * *', timezone: 'UTC' });
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 24 * 60 * 60 * 1000 });
    onTestFinished(() => void vi.useRealTimers());
    expect(await verifyWhenDue(periodic(world))).toBeUndefined();
  });

  it('is followed by a repair of the drift within limits', async () => {
    const repairing = { after: 'sync', repair: 'within-limits' } as const;
    const world = await openSynced({ ...rooms(), schedule, verify: repairing }, codes(20));
    await register(world, 'sync');
    await startNight(world);
    change(world, 'r000', 'Aula');
    const started: number[] = [];
    const deps = periodic(world, { repairs: true, startRepair: async ({ id }) => void started.push(id) });
    expect(await verifyWhenDue(deps, DUE)).toMatchObject({ drifting: 1 });
    const [runId = 0] = started;
    const begun = { kind: 'repair', startedBy: 'schedule', range: null };
    expect(await readRun(world.state.db, runId)).toMatchObject(begun);
    const { queue } = await world.planRun(runId);
    await world.finish(runId, queue);
    expect(world.fieldsOf('room_r000')).toMatchObject({ 'room.name': 'Room r000' });
  });
});
