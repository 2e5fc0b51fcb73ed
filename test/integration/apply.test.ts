// From a mirror to accepted objects, with everything that can come between. Each test has a world of its own and looks
// at it as an operator does: objects at the service, rows of the state, requests that arrived.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors.js';
import { claimRecords, noteExternalIds } from '../../src/state/records/claims.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { failBatch } from '../../src/state/runs/finish-batch.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { createObject } from '../../src/streams/destination-object.js';
import { COURSES, ROOMS as NAMED_ROOMS, type Declaration } from '../support/campus.js';
import { until } from '../support/wait.js';
import { type World, type WorldOptions } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const ROOMS: Declaration = { ...NAMED_ROOMS, fields: { 'room.name': 'name', 'room.seats': 'seats' } };

const rooms = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { rooms: { ...ROOMS, ...changes } },
  service: { requestTimeoutMs: 500 },
});
const roomsAndCourses = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: { courses: { ...COURSES, ...changes }, rooms: ROOMS },
});

const openWorld = keepWorlds();

async function open(config: SlotsyncConfig, options: WorldOptions = {}): Promise<World> {
  const world = await openWorld(config, options);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, seats integer, number text)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  return world;
}

/** Rooms of these codes, named after them. */
const addRooms = (world: World, ...codes: string[]) =>
  world.sql`INSERT INTO rooms (code, name) SELECT c, 'Room ' || c FROM unnest(${codes}::text[]) AS c`;
const codes = (count: number) => Array.from({ length: count }, (_, at) => `r${String(at).padStart(3, '0')}`);
const rename = (world: World, code: string, name: string) =>
  world.sql`UPDATE rooms SET name = ${name} WHERE code = ${code}`;
const nameThere = (world: World, code: string) => world.fieldsOf(`room_${code}`)?.['room.name'];
const isActive = (world: World, extId: string) => world.sandbox.object(extId)?.active;

/** Every room of the mirror stands at the service as its row says, and the state knows it. */
async function expectInSync(world: World): Promise<void> {
  const rows = await world.sql<{ code: string; name: string }[]>`SELECT code, name FROM rooms`;
  for (const { code, name } of rows) expect(nameThere(world, code)).toBe(name);
  const statuses = await world.statusesOf('rooms');
  expect(statuses).toEqual(Object.fromEntries(rows.map(({ code }) => [code, 'synced'])));
}

async function expectQuiet(world: World): Promise<void> {
  world.sandbox.clearArrivals();
  const { run, errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(world.writes()).toEqual([]);
  expect(run.finishedAt).not.toBeNull();
}

// Guarantee 2
describe('a record is synced only if the service accepted exactly that object', () => {
  it('and the others of its request are not spoiled by one that is refused', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
    world.sandbox.refuseObject('room_B', { status: 409, message: 'room_B is locked' });
    const { run } = await world.sync();

    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, dead: 1 } } });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A', 'room_C']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_A', error_code: null, object_hash: expect.any(String) },
      B: { status: 'dead', error_code: 'refused_409', error_message: 'room_B is locked', object_hash: null },
      C: { status: 'synced' },
    });
    expect(world.writes()).toHaveLength(1);
  });

  it('a refused update leaves what was accepted before, there and in the state', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    const before = (await world.recordsOf('rooms'))['A'];
    await rename(world, 'A', 'Aula');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    expect(nameThere(world, 'A')).toBe('Room A');
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', object_hash: before?.object_hash },
    });
    // Back to what was accepted: nothing to send, and nothing wrong any more.
    await rename(world, 'A', 'Room A');
    await expectQuiet(world);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
  });

  it.each(['reset', 'loseAnswer', 'brokenJson', 'hang', 'status'] as const)(
    'after %s it is sent again until there is an answer',
    async (fault) => {
      const world = await open(rooms());
      await addRooms(world, 'A', 'B');
      world.sandbox.failNext({ path: '/objects', fault });
      const { run, errors } = await world.sync();
      expect(errors).toHaveLength(1);
      expect(run.status).toBe('succeeded');
      expect(world.writes()).toHaveLength(2);
      await expectInSync(world);
      await expectQuiet(world);
    },
  );

  it.each(['loseAnswer', 'brokenJson'] as const)(
    '%s for ever is never counted as accepted',
    async (fault) => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      world.sandbox.failNext({ path: '/objects', fault, times: 4 });
      const { run } = await world.sync();
      // It is there, but nobody said so.
      expect(world.sandbox.object('room_A')).toBeDefined();
      expect(run).toMatchObject({ status: 'failed', counts: { rooms: { synced: 0, failed: 1 } } });
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: {
          status: 'failed',
          object_hash: null,
          in_doubt: true,
          error_code: expect.stringMatching(/^answer_/),
        },
      });
      await world.sync();
      await expectInSync(world);
      await expectQuiet(world);
    },
  );

  it.each([429, 503])('an object answered %i for itself is sent again alone', async (status) => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_B', { status, message: 'later' });
    const { queue, runId } = await world.plan();
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({
      code: 'answer_incomplete',
      disposition: 'retry',
    });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'pending' });
    world.sandbox.allowObject('room_B');
    await world.finish(runId, queue);
    expect(world.writes().map(({ objects }) => objects)).toEqual([2, 1]);
    await expectInSync(world);
  });

  it('an object the answer does not mention is sent again', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    const results = [{ extId: 'room_A', id: 1, status: 200 }];
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 200, body: { results } });
    const { errors } = await world.sync();
    expect(errors).toMatchObject([{ code: 'answer_incomplete', disposition: 'retry' }]);
    expect(nameThere(world, 'B')).toBe('Room B');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
  });

  describe('when the worker ends between the request and the record of its answer', () => {
    /** Interrupts a batch at the moment its objects are stored there and before the answer is back. */
    async function interrupt(world: World, batchId: number, stored: () => boolean): Promise<void> {
      world.sandbox.setLatency(300);
      const stopping = new AbortController();
      const applying = world.apply(batchId, stopping.signal);
      await until(stored, { describe: 'the service to store the object' });
      stopping.abort(new Error('stopped'));
      await expect(applying).rejects.toThrow('stopped');
      world.sandbox.setLatency(0);
    }

    /** Does what a batch does up to its request, and then nothing more, as a process that was killed. */
    async function killAfterRequest(world: World, code: string, name: string): Promise<void> {
      const claim = { token: 'killed', stream: 'rooms', keys: [code], runId: 1 };
      expect(await claimRecords(world.state.db, claim)).toHaveLength(1);
      const extId = `room_${code}`;
      await noteExternalIds(world.state.db, claim, new Map([[code, extId]]));
      const object = createObject(extId, 'room', true, [['room.name', [name]]]);
      await world.destination.putObjects([object], { lane: 'sync' });
    }
    const expireClaims = (world: World) =>
      world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;

    it('the record is in doubt and sent again', async () => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      const { queue, runId } = await world.plan();
      await interrupt(world, queue[0] ?? 0, () => world.sandbox.object('room_A') !== undefined);
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'pending', in_doubt: true, claimed_by: null },
      });
      await world.finish(runId, queue);
      expect(world.writes()).toHaveLength(2);
      expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', in_doubt: false } });
    });

    it('and the row goes back to what was accepted before, that is sent', async () => {
      const world = await open(rooms());
      await addRooms(world, 'A');
      await world.sync();
      await rename(world, 'A', 'Aula');
      const { queue, runId } = await world.plan();
      await interrupt(world, queue[0] ?? 0, () => nameThere(world, 'A') === 'Aula');
      await rename(world, 'A', 'Room A');
      await world.finish(runId, queue);
      await expectInSync(world);
    });

    it.each(['Room A', 'Aula', 'Attic'])(
      'kill -9, and the row then says %s: that stands there in the end',
      async (name) => {
        const world = await open(rooms());
        await addRooms(world, 'A', 'B');
        await world.sync();
        await killAfterRequest(world, 'A', 'Aula');
        await rename(world, 'A', name);
        await expireClaims(world);
        await world.sync();
        await expectInSync(world);
        await expectQuiet(world);
      },
    );

    it('kill -9 at its creation: the object is known, and retired when its row is gone', async () => {
      const world = await open(rooms({ retire: 'deactivate' }));
      await addRooms(world, 'A', 'B');
      await killAfterRequest(world, 'A', 'Room A');
      await world.sql`DELETE FROM rooms WHERE code = 'A'`;
      await expireClaims(world);
      await world.sync();
      expect(isActive(world, 'room_A')).toBe(false);
      await expectQuiet(world);
    });
  });
});

// Guarantee 5
describe('a second run', () => {
  it('over an unchanged mirror sends no write, whatever became of the records', async () => {
    const world = await open(roomsAndCourses());
    await addRooms(world, ...codes(250), 'refused');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'r001'), ('c2', 'Two', 'nowhere'), ('c3', 'Three', NULL)`;
    world.sandbox.refuseObject('room_refused', { status: 400, message: 'no' });
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({
      rooms: { synced: 250, dead: 1 },
      courses: { synced: 2, deferred: 1 },
    });
    await expectQuiet(world);
    await expectQuiet(world);
  });

  it('sends only what changed', async () => {
    const world = await open(rooms({ batchSize: 3 }));
    await addRooms(world, ...codes(10));
    await world.sync();
    world.sandbox.clearArrivals();
    await rename(world, 'r003', 'Changed');
    await rename(world, 'r008', 'Changed too');
    await world.sync();
    expect(world.writes().map(({ objects }) => objects)).toEqual([2]);
    await expectInSync(world);
  });

  it('sends nothing for a change that the mapping does not look at', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await world.sql`UPDATE rooms SET number = '7'`;
    await expectQuiet(world);
    await expectQuiet(world);
  });

  it('sends no record again that was refused after an answer had been lost', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_B', { status: 400, message: 'no' });
    world.sandbox.failNext({ path: '/objects', fault: 'reset' });
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'dead' });
    await expectQuiet(world);
  });
});

// Guarantee 7
describe('parents before children', () => {
  it('are sent first in a run of both, whatever the order of the configuration', async () => {
    const world = await open(roomsAndCourses({ batchSize: 10 }), {
      sandbox: { references: 'call', schema: referring },
    });
    await addRooms(world, ...codes(25));
    await world.sql`INSERT INTO courses SELECT 'c' || code, name, code FROM rooms`;
    const { runId, queue } = await world.plan();
    const first = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    expect(first.map((batch) => batch?.stream)).toEqual(['rooms']);
    const { run, errors } = await world.finish(runId, queue);
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'succeeded', counts: { courses: { synced: 25 } } });
    expect(world.fieldsOf('course_cr007')).toEqual({
      'course.name': 'Room r007',
      'course.room': 'room_r007',
    });
  });

  it('a child waits for its parent, unsent, and goes in the run that brings it', async () => {
    const world = await open(roomsAndCourses(), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A'), ('c2', 'Two', NULL)`;
    const { run } = await world.sync();
    expect(run.counts['courses']).toMatchObject({ synced: 1, deferred: 1, dead: 0 });
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: {
        status: 'deferred',
        error_code: 'reference_missing',
        waits_for: '["rooms","A"]',
        object_hash: null,
      },
    });
    expect(world.sandbox.object('course_c1')).toBeUndefined();

    await addRooms(world, 'A');
    await world.sync();
    expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'One', 'course.room': 'room_A' });
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: { status: 'synced', waits_for: null, error_code: null },
    });
  });

  it('a parent that is refused holds its child back, and only that one', async () => {
    const world = await open(roomsAndCourses(), { sandbox: { schema: referring } });
    await addRooms(world, 'A', 'B');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A'), ('c2', 'Two', 'B')`;
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'deferred', c2: 'synced' });
    world.sandbox.allowObject('room_A');
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced', c2: 'synced' });
  });

  it('a child is given up after waitDays, not before, and goes when its parent arrives all the same', async () => {
    const world = await open(roomsAndCourses({ waitDays: 3 }), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    world.passDays(2.9);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'deferred' });
    world.passDays(0.2);
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      c1: { status: 'dead', error_code: 'reference_never_came' },
    });
    await expectQuiet(world);

    await addRooms(world, 'A');
    await world.sync();
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced' });
    expect(world.fieldsOf('course_c1')).toMatchObject({ 'course.room': 'room_A' });
  });

  it('a child that was given up goes also when its parent was found standing there', async () => {
    const world = await open(roomsAndCourses({ waitDays: 3 }), { sandbox: { schema: referring } });
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A')`;
    await world.sync();
    world.passDays(4);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'dead' });
    const fields = [{ fieldId: 'room.name', values: ['Room A'] }];
    world.sandbox.putObject({ extId: 'room_A', typeId: 'room', fields });
    await addRooms(world, 'A');
    await world.sync();
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced' });
  });

  it('are found through columns of fixed width', async () => {
    const world = await open(roomsAndCourses(), { sandbox: { schema: referring } });
    await world.sql`ALTER TABLE rooms ALTER code TYPE char(6)`;
    await world.sql`ALTER TABLE courses ALTER room TYPE char(6)`;
    await addRooms(world, 'A1');
    await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A1')`;
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ c1: 'synced' });
  });

  const referring = {
    types: [{ extId: 'room' }, { extId: 'course' }],
    fields: [
      { extId: 'room.name', type: 'room' },
      { extId: 'room.seats', type: 'room' },
      { extId: 'course.name', type: 'course' },
      { extId: 'course.room', type: 'course', reference: 'room' },
    ],
  };
});

describe('what is written', () => {
  const SCHEMA = {
    types: [{ extId: 'room' }, { extId: 'hall' }],
    fields: ['room.name', 'room.seats', 'comment'].map((extId) => ({ extId })),
  };
  const standing = (fields: Record<string, string>, typeId = 'room') => ({
    extId: 'room_A',
    typeId,
    fields: Object.entries(fields).map(([fieldId, value]) => ({ fieldId, values: [value] })),
  });
  const finds = (world: World) =>
    world.sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));

  it('keeps the fields the mapping does not own', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Old', comment: 'a person wrote this' }));
    await world.sql`INSERT INTO rooms VALUES ('A', 'New', 48)`;
    await world.sync();
    const kept = { 'room.name': 'New', 'room.seats': '48', comment: 'a person wrote this' };
    expect(world.fieldsOf('room_A')).toEqual(kept);
    world.sandbox.putObject(standing({ ...kept, comment: 'and this later' }));
    await rename(world, 'A', 'Newer');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ ...kept, 'room.name': 'Newer', comment: 'and this later' });
  });

  it('with owns: object replaces without reading', async () => {
    const world = await open(rooms({ owns: 'object' }), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Old', comment: 'gone' }));
    await addRooms(world, 'A');
    await world.sync();
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Room A' });
    expect(finds(world)).toEqual([]);
  });

  it.each(['fields', 'object'] as const)(
    'empties an owned field when its column becomes null (owns: %s)',
    async (owns) => {
      const world = await open(rooms({ owns }));
      await world.sql`INSERT INTO rooms VALUES ('A', 'Aula', 48)`;
      await world.sync();
      expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Aula', 'room.seats': '48' });
      await world.sql`UPDATE rooms SET seats = NULL`;
      await world.sync();
      expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Aula' });
    },
  );

  it('is nothing where equal objects stand already', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'Room A', comment: 'kept' }));
    await addRooms(world, 'A');
    const { run } = await world.sync();
    expect(run.counts).toMatchObject({ rooms: { synced: 0, unchanged: 1 } });
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', object_hash: expect.any(String) },
    });
    await expectQuiet(world);
  });

  it('activates an equal object that stands there inactive', async () => {
    const world = await open(rooms());
    world.sandbox.putObject({ ...standing({ 'room.name': 'Room A' }), active: false });
    await addRooms(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('is nothing where the external id belongs to another type', async () => {
    const world = await open(rooms(), { sandbox: { schema: SCHEMA } });
    world.sandbox.putObject(standing({ 'room.name': 'a hall' }, 'hall'));
    await addRooms(world, 'A', 'B');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_code: 'external_id_taken', error_message: expect.stringContaining('hall') },
      B: { status: 'synced' },
    });
    expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'hall' });
  });

  it('sends a null inside an array as no value', async () => {
    const from = { query: 'SELECT code, ARRAY[name, NULL] AS name, seats FROM rooms' };
    const world = await open(rooms({ from }));
    await addRooms(world, 'A');
    await world.sync();
    expect(world.sandbox.object('room_A')?.fields).toEqual([{ fieldId: 'room.name', values: ['Room A'] }]);
  });
});

describe('a request refused as a whole', () => {
  it('is halved until those who spoil it stand alone: exactly the others are accepted', async () => {
    const world = await open(rooms());
    const all = codes(24);
    const refusals = fc.record({
      bad: fc.uniqueArray(fc.constantFrom(...all), { maxLength: 5 }),
      alone: fc.uniqueArray(fc.constantFrom(...all), { maxLength: 2 }),
      status: fc.constantFrom(400, 404, 409, 422),
    });
    let generation = 0;
    await fc.assert(
      fc.asyncProperty(refusals, async ({ bad, alone, status }) => {
        await world.sql`TRUNCATE rooms, slotsync.records, slotsync.runs, slotsync.batches`;
        generation++;
        const own = (code: string) => `${code}_${generation}`;
        await addRooms(world, ...all.map(own));
        for (const code of alone)
          world.sandbox.refuseObject(`room_${own(code)}`, { status: 400, message: 'alone' });
        for (const code of bad)
          world.sandbox.refuseObject(`room_${own(code)}`, { status, message: 'spoils', wholeCall: true });
        world.sandbox.clearArrivals();
        const { errors } = await world.sync();

        expect(errors).toEqual([]);
        const refused = new Set([...bad, ...alone].map(own));
        expect(await world.statusesOf('rooms')).toEqual(
          Object.fromEntries(all.map((code) => [own(code), refused.has(own(code)) ? 'dead' : 'synced'])),
        );
        for (const code of all.map(own))
          expect(world.sandbox.object(`room_${code}`) !== undefined).toBe(!refused.has(code));
        const mostRequests = 1 + 2 * bad.length * Math.ceil(Math.log2(all.length));
        expect(world.writes().length).toBeLessThanOrEqual(mostRequests);
      }),
      { numRuns: 12 },
    );
  });

  it('for its size is halved until it fits', async () => {
    const world = await open(rooms(), { sandbox: { maxObjects: 30 } });
    await addRooms(world, ...codes(100));
    const { run } = await world.sync();
    expect(run.status).toBe('succeeded');
    expect(world.writes().map(({ objects }) => objects)).toEqual([100, 50, 25, 25, 50, 25, 25]);
    await expectInSync(world);
  });

  it('and then interrupted keeps what was accepted', async () => {
    const world = await open(rooms(), { sandbox: { maxObjects: 2 } });
    await addRooms(world, 'A', 'B', 'C', 'D');
    const { runId, queue } = await world.plan();
    // The first half is accepted; the second finds the service gone.
    world.sandbox.setLatency(60);
    const applying = expect(world.apply(queue[0] ?? 0)).rejects.toBeInstanceOf(SlotsyncError);
    await until(() => world.sandbox.object('room_B'), { describe: 'the first half to be stored' });
    world.sandbox.failNext({ path: '/objects', fault: 'reset' });
    await applying;
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', in_doubt: false },
      B: { status: 'synced', in_doubt: false },
      C: { status: 'pending', in_doubt: true },
      D: { status: 'pending', in_doubt: true },
    });
    await world.finish(runId, queue);
    await expectInSync(world);
  });
});

describe('one external id', () => {
  const byNumber = rooms({ externalId: 'room_{number}' });

  it('of two rows is sent for neither; both are named, and the corrected ones go', async () => {
    const world = await open(byNumber);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '1'), ('C', 'c', '2')`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1, failed: 2 } } });
    expect([world.metered('rooms', 'synced'), world.metered('rooms', 'failed')]).toEqual([1, 2]);
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_2']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringMatching(/room_1.*B/),
      },
      B: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringMatching(/room_1.*A/),
      },
    });
    await world.sql`UPDATE rooms SET number = '3' WHERE code = 'B'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_2', 'room_1', 'room_3']);
  });

  it('of two streams belongs to the first; the other record is told whose it is', async () => {
    const shared = {
      streams: { ...roomsAndCourses().streams, courses: { ...COURSES, externalId: 'room_{code}' } },
    };
    const world = await open(shared);
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('A', 'One', 'A'), ('B', 'Two', 'A')`;
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      A: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringContaining("rooms 'A'"),
      },
      B: { status: 'synced' },
    });
    expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'room' });
  });

  it.each([
    ['its key', 'room_{code}'],
    ['another column', 'room_{number}'],
  ])(
    'of two streams that create it at the same moment, from %s, is never sent for both',
    async (_, externalId) => {
      const world = await open({
        streams: { rooms: { ...ROOMS, externalId }, halls: { ...ROOMS, externalId } },
      });
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
      const { queue, runId } = await world.plan();
      expect(queue).toHaveLength(2);
      world.sandbox.setLatency(100);
      await Promise.all(queue.map((id) => world.apply(id)));
      expect(world.writes().length).toBeLessThanOrEqual(1);
      await world.finish(runId, []);
      const records = [
        ...Object.values(await world.recordsOf('rooms')),
        ...Object.values(await world.recordsOf('halls')),
      ];
      const others = records.filter(({ status }) => status !== 'synced');
      expect(others.length).toBeGreaterThanOrEqual(1);
      for (const other of others)
        expect(other).toMatchObject({ status: 'failed', error_code: 'external_id_shared' });
    },
  );

  it('that changes before anything was accepted is noted anew', async () => {
    const world = await open(rooms({ externalId: 'hall_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 503, times: 4 });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'failed', external_id: 'hall_1' } });
    await world.sql`UPDATE slotsync.records SET in_doubt = false`;
    world.configure(byNumber);
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', external_id: 'room_1' } });
  });

  it('that changes is a person’s turn; retried, the new object is created and the former left', async () => {
    const world = await open(byNumber);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    await world.sync();
    await world.sql`UPDATE rooms SET number = '2'`;
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'dead',
        error_code: 'external_id_changed',
        error_message: expect.stringMatching(/room_1.*room_2/),
      },
    });
    expect(world.sandbox.objects()).toHaveLength(1);
    await expectQuiet(world);
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', external_id: 'room_2' } });
    expect(world.sandbox.objects().map(({ extId, active }) => [extId, active])).toEqual([
      ['room_1', true],
      ['room_2', true],
    ]);
  });
});

describe('a record that cannot be sent', () => {
  const broken = rooms({
    fields: {
      'room.name': (row) => {
        if (row.name === 'bad') throw new Error('this name cannot be mapped');
        return row.name;
      },
    },
  });

  it('is dead with the message of the mapping, and the others go', async () => {
    const world = await open(broken);
    await addRooms(world, 'A', 'B');
    await rename(world, 'A', 'bad');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'dead',
        error_code: 'mapping_failed',
        error_message: "rooms.fields['room.name']: this name cannot be mapped",
      },
      B: { status: 'synced' },
    });
  });

  it('goes when its row changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    await rename(world, 'A', 'good');
    await world.sync();
    await expectInSync(world);
  });

  it('goes when the mapping changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    world.configure(rooms({ fields: { 'room.name': 'name' } }));
    await world.sync();
    await expectInSync(world);
  });

  it('goes when it is retried, and not of itself', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    world.sandbox.allowObject('room_A');
    await expectQuiet(world);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'dead' });
    expect(await retryRecords(world.state.db, { stream: 'rooms', keys: ['A', 'unknown'] })).toEqual([
      { stream: 'rooms', localKey: 'A' },
    ]);
    await world.sync();
    await expectInSync(world);
  });

  it('that names a column that is not there says so', async () => {
    const world = await open(rooms({ fields: { 'room.name': (row) => row.title } }));
    await addRooms(world, 'A');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_message: expect.stringContaining('there is no column title') },
    });
  });
});

describe('a row that is gone', () => {
  const retiring = rooms({ retire: 'deactivate' });

  it('deactivates its object, and only that', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { rooms: { retire: 1, unchanged: 1 } } });
    expect(world.sandbox.object('room_A')).toMatchObject({
      active: false,
      fields: [{ fieldId: 'room.name', values: ['Room A'] }],
    });
    expect(isActive(world, 'room_B')).toBe(true);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced' });
    await expectQuiet(world);
  });

  it('and comes back reactivates it', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    await addRooms(world, 'A');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(true);
    await expectInSync(world);
    await expectQuiet(world);
  });

  it('and that the service will not retire is not sent again, until it is back or a person says so', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B', 'C');
    await world.sync();
    for (const id of ['room_A', 'room_B']) world.sandbox.refuseObject(id, { status: 409, message: 'no' });
    await world.sql`DELETE FROM rooms WHERE code IN ('A', 'B')`;
    await world.sync();
    expect((await world.recordsOf('rooms'))['A']).toMatchObject({
      status: 'dead',
      error_code: 'retirement_refused_409',
    });
    await expectQuiet(world);

    for (const id of ['room_A', 'room_B']) world.sandbox.allowObject(id);
    await expectQuiet(world);
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await addRooms(world, 'B');
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced', C: 'synced' });
  });

  it('leaves its object alone where the stream keeps', async () => {
    const world = await open(rooms({ retire: 'keep' }));
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await expectQuiet(world);
    expect(isActive(world, 'room_A')).toBe(true);
  });

  it('is only forgotten where it never reached the service', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await expectQuiet(world);
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced' });
  });

  it('between plan and request settles the record as it is', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await rename(world, 'A', 'Aula');
    const { runId, queue } = await world.plan();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.finish(runId, queue);
    expect(isActive(world, 'room_A')).toBe(true);
    await world.sync();
    expect(isActive(world, 'room_A')).toBe(false);
  });

  const limited = (config: Declaration['limits']) =>
    rooms({ retire: 'deactivate', ...(config ? { limits: config } : {}) });

  it('beyond the limits holds all retirements of the stream; creates and updates go on', async () => {
    const world = await open(limited(undefined));
    await addRooms(world, ...codes(40));
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code < 'r011'`;
    await addRooms(world, 'new');
    await rename(world, 'r030', 'Renamed');
    const { run } = await world.sync();
    expect(run.status).toBe('held');
    expect(run.holds['rooms']?.retire).toMatchObject({
      count: 11,
      approvable: true,
      reason: expect.stringMatching(/11 of 40 records .*slotsync approve 2 /),
    });
    expect(world.sandbox.objects().every(({ active }) => active)).toBe(true);
    expect(nameThere(world, 'new')).toBe('Room new');
    expect(nameThere(world, 'r030')).toBe('Renamed');
    const [held] =
      await world.sql`SELECT count(*)::int AS batches FROM slotsync.batches WHERE state = 'held'`;
    expect(held?.['batches']).toBeGreaterThan(0);
  });

  it.each([
    ['few in number', 40, 10, undefined],
    ['a small share', 200, 11, undefined],
    ['as many as the stream allows', 4, 3, { retire: { count: 3, percent: 0 } }],
  ])('goes when they are %s', async (_, count, gone, limits) => {
    const world = await open(limited(limits));
    await addRooms(world, ...codes(count));
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code < ${`r${String(gone).padStart(3, '0')}`}`;
    const { run } = await world.sync();
    expect(run.status).toBe('succeeded');
    expect(world.sandbox.objects().filter(({ active }) => !active)).toHaveLength(gone);
  });

  it('with all others holds: an empty source retires nothing, however small', async () => {
    const world = await open(retiring);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`TRUNCATE rooms`;
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'held',
      holds: { rooms: { retire: { approvable: false, reason: expect.stringContaining('empty') } } },
    });
    expect(world.writes()).toHaveLength(1);
    await addRooms(world, 'A', 'B');
    await world.sync();
    await expectInSync(world);
  });

  it('with all others, while a lost answer is repeated, retires nothing either', async () => {
    const world = await open(retiring);
    await addRooms(world, ...codes(30));
    await world.sync();
    await world.sql`UPDATE rooms SET name = name || '!'`;
    const { runId, queue } = await world.plan();
    world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    await world.sql`TRUNCATE rooms`;
    await world.finish(runId, queue);
    expect(world.sandbox.objects().filter(({ active }) => !active)).toEqual([]);
  });

  // Guarantee 6
  describe('and stands under another key with the same external id', () => {
    const byNumber = rooms({ externalId: 'room_{number}', retire: 'deactivate' });

    async function openMoved(): Promise<World> {
      const world = await open(byNumber);
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('Z', 'z', '9')`;
      await world.sync();
      await world.sql`UPDATE rooms SET code = 'B' WHERE code = 'A'`;
      return world;
    }

    it('is never deactivated: the new record takes the object over', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      await world.sync();
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
      expect(world.fieldsOf('room_1')).toEqual({ 'room.name': 'b' });
      expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', Z: 'synced' });
      await expectQuiet(world);
    });

    it('is not deactivated either when the new record is refused', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      world.sandbox.refuseObject('room_1', { status: 400, message: 'no' });
      const { runId, queue } = await world.plan();
      const [first = 0, ...rest] = queue;
      const { queue: next } = await world.apply(first);
      world.sandbox.allowObject('room_1');
      await world.finish(runId, [...rest, ...next]);
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
    });

    it('is not deactivated either when the answer to the new record was lost', async () => {
      const world = await openMoved();
      await rename(world, 'B', 'b');
      world.sandbox.failNext({ path: '/objects', fault: 'loseAnswer', times: 4 });
      await world.sync();
      expect(world.sandbox.object('room_1')).toMatchObject({ active: true });
    });
  });
});

describe('two batches with one key', () => {
  it('do not write at once: the second waits for its turn', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
    const { runId, queue } = await world.planBatches('rooms', [
      ['A', 'B'],
      ['B', 'C'],
    ]);
    const [one = 0, two = 0] = queue;
    world.sandbox.setLatency(200);
    const first = world.apply(one);
    await until(() => world.writes().length > 0, { describe: 'the first request' });
    await expect(world.apply(two)).rejects.toMatchObject({ code: 'claimed', disposition: 'defer' });
    await first;
    // C, which nobody else was writing, has gone already; B goes in its turn.
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect((await readBatch(world.state.db, two))?.keys).toEqual(['B']);
    await world.finish(runId, [two]);
    await expectInSync(world);
  });

  it('where the first lost its claim: its answer is no acceptance, and the newer version stands in the end', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'first');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    world.sandbox.setLatency(300);
    const first = world.apply(one);
    await until(() => world.writes().length === 2, { describe: 'the first request' });
    // As if it had taken longer than a claim stands.
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;
    await rename(world, 'A', 'second');
    const second = world.apply(two);
    await expect(first).rejects.toMatchObject({ disposition: 'retry' });
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true } });
    // What becomes of the second does not matter: it cannot know whether the first wrote after it.
    await second.catch(() => undefined);
    world.sandbox.setLatency(0);
    const batches = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    const left = batches.flatMap((batch) => (batch?.state === 'queued' ? [batch.id] : []));
    await world.finish(runId, left);
    await world.sync();
    await expectInSync(world);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: false, claimed_by: null } });
  });

  it('where the claim has stood for long and is lost before the request: nothing is sent', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    const { queue } = await world.plan();
    world.sandbox.setLatency(200);
    const applying = world.apply(queue[0] ?? 0);
    await until(() => world.sandbox.arrivals().some(({ path }) => path.endsWith('/objects/find')), {
      describe: 'the reading before the write',
    });
    await world.sql`UPDATE slotsync.records SET claimed_by = 'another'`;
    world.passDays(1);
    await expect(applying).rejects.toMatchObject({ code: 'claim_lost', disposition: 'retry' });
    expect(world.writes()).toEqual([]);
  });
});

describe('a run', () => {
  it('with a type or field the service does not know ends before the first write, with the nearest names', async () => {
    const config = rooms({ type: 'rom', fields: { 'room.nam': 'name', 'room.seats': 'seats' } });
    const schema = { types: [{ extId: 'room' }], fields: [{ extId: 'room.name' }, { extId: 'room.seats' }] };
    const world = await open(config, { sandbox: { schema } });
    await addRooms(world, 'A');
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'failed', errorCode: 'configuration' });
    expect(run.errorMessage).toMatch(/type 'rom' \(streams\.rooms\); did you mean 'room'\?/);
    expect(run.errorMessage).toMatch(/field 'room\.nam' \(streams\.rooms\); did you mean 'room\.name'\?/);
    expect(world.writes()).toEqual([]);
    expect(await world.recordsOf('rooms')).toEqual({});

    world.configure(rooms());
    await world.sync();
    await expectInSync(world);
  });

  it('with one broken source fails for it alone', async () => {
    const world = await open(roomsAndCourses({ from: 'lectures', references: {} }));
    await addRooms(world, 'A');
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'partial',
      errorCode: 'mirror_source',
      counts: { rooms: { synced: 1 } },
    });
    expect(run.errorMessage).toMatch(/^courses: .*lectures/);
    await expectInSync(world);
  });

  it('whose key is not unique sends nothing of that stream', async () => {
    const world = await open(roomsAndCourses({ key: 'name', externalId: 'course_{name}', references: {} }));
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('1', 'same'), ('2', 'same'), ('3', 'own')`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', errorCode: 'key_not_unique' });
    expect(run.errorMessage).toContain("'same'");
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_A']);
    expect(await world.recordsOf('courses')).toEqual({});
  });

  it('with a key that was withdrawn ends with the reason, and its records go with the next', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'Aula');
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 403, times: 2 });
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'failed', errorCode: 'unauthorized' });
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'failed', error_code: 'unauthorized' },
    });
    await world.sync();
    await expectInSync(world);
  });

  it('of several batches goes on past one that is given up', async () => {
    const world = await open(rooms({ batchSize: 2 }));
    await addRooms(world, 'A', 'B', 'C', 'D');
    const { runId, queue } = await world.plan();
    const [one = 0, ...rest] = queue;
    const batch = await readBatch(world.state.db, one);
    if (!batch) throw new Error('no batch');
    await failBatch(world.state, batch, { code: 'service_failed', message: 'answered 500' });
    const { run } = await world.finish(runId, rest);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 2, failed: 2 } } });
    await world.sync();
    await expectInSync(world);
  });

  it('over failures of every kind ends with every object as its row says', async () => {
    const schedule = fc.record({
      status500: fc.double({ min: 0, max: 0.15, noNaN: true }),
      reset: fc.double({ min: 0, max: 0.15, noNaN: true }),
      loseAnswer: fc.double({ min: 0, max: 0.15, noNaN: true }),
      brokenJson: fc.double({ min: 0, max: 0.15, noNaN: true }),
    });
    const world = await open(
      rooms({ batchSize: 4, retire: 'deactivate', limits: { retire: { count: 100 } } }),
    );
    await fc.assert(
      fc.asyncProperty(
        schedule,
        fc.array(fc.array(fc.nat({ max: 14 }), { maxLength: 8 }), { maxLength: 4 }),
        async (faults, edits) => {
          await world.sql`DELETE FROM rooms`;
          await addRooms(world, ...codes(15));
          world.sandbox.setFaults(faults);
          for (const [step, touched] of edits.entries()) {
            await world.sync();
            for (const at of touched) {
              const code = codes(15)[at] ?? '';
              if (at % 5 === 4) await world.sql`DELETE FROM rooms WHERE code = ${code}`;
              else await rename(world, code, `step ${step}`);
            }
          }
          world.sandbox.setFaults({});
          await world.sync();
          await world.sync();
          const rows = await world.sql<
            { code: string; name: string }[]
          >`SELECT code, name FROM rooms ORDER BY code`;
          const there = world.sandbox
            .objects()
            .filter(({ active }) => active)
            .map(({ extId, fields }) => ({ code: extId.slice('room_'.length), name: fields[0]?.values[0] }));
          expect(there.toSorted((a, b) => (a.code < b.code ? -1 : 1))).toEqual(
            rows.map((row) => ({ ...row })),
          );
          await expectQuiet(world);
        },
      ),
      { numRuns: 8 },
    );
  });
});
