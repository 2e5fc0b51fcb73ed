// Guarantee 10
// Objects that cannot be read at the service: an object of ours stops only its record, any other object stops nothing.
import { expect, it } from 'vitest';
import type { Destination } from '../../src/destination/destination.js';
import { codeOf } from '../../src/errors/errors.js';
import type { FailRule } from '../../src/sandbox/faults.js';
import { matchStreams } from '../../src/sync/match/match-streams.js';
import { surveyService } from '../../src/sync/run/survey-service.js';
import { verify } from '../../src/sync/verify/verify.js';
import { codes, keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

/** Replaces an object by an object with a value that is no text. */
const garble = (world: RoomWorld, extId: string) =>
  world.sandbox.putObject({
    extId,
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: [null as unknown as string] }],
  });

async function verifyRooms(world: RoomWorld, destination: Destination = world.destination) {
  await world.passHour();
  const { streams, drifting } = await verify({ ...world.verifying(), destination });
  return { drifting, compared: streams[0]?.compared, waiting: streams[0]?.waiting };
}

it('an unreadable object without a record is left out by verify, match, plan, init and sync', async () => {
  const world = await open(rooms({ match: ['room.name'] }), { synced: ['A', 'B'] });
  garble(world, 'foreign');
  expect(await verifyRooms(world)).toEqual({ drifting: 0, compared: 2, waiting: 0 });
  const deps = world.deps();
  const [type] = await matchStreams(deps, { names: ['rooms'], by: ['room.name'], samples: 3 });
  expect(type).toMatchObject({ objects: 2, streams: [{ counts: { equal: 2, only_here: 0 } }] });
  const survey = await surveyService(deps.destination, { isWhole: true });
  expect(survey.types).toMatchObject([{ extId: 'room', objects: 2 }]);

  await world.addRooms('C');
  expect((await world.preview()).counts).toMatchObject({ create: 1, unchanged: 2 });
  await world.sync();
  await world.expectInSync();
});

it('verify and match skip a foreign object that cannot be shown, and wait for one with a record', async () => {
  const world = await open(rooms(), { synced: codes(40) });
  world.sandbox.addObject({ typeId: 'room' });
  const { id } = world.sandbox.addObject({ typeId: 'room', extId: 'foreign' });
  world.sandbox.addObject({ typeId: 'room' });
  world.sandbox.failToShow(id);
  world.sandbox.failToShow('room_r007');
  // As the command reads.
  const { patient } = world.destination;
  expect(await verifyRooms(world, patient)).toEqual({ drifting: 0, compared: 39, waiting: 1 });
  const [type] = await matchStreams(world.deps(), { names: ['rooms'], by: ['room.name'], samples: 3 });
  expect(type).toMatchObject({ objects: 41 });
});

it('an object with an integer that would be rounded is not written, and its record says so', async () => {
  const world = await open(rooms(), { synced: ['A', 'B'] });
  world.sandbox.changeObject('room_A', { properties: { owner: { id: 2 ** 60 } } });
  await world.rename('A', 'new');
  await world.rename('B', 'new');
  await world.sync();
  expect([world.nameOf('A'), world.nameOf('B')]).toEqual(['Room A', 'new']);
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: {
      status: 'failed',
      error_message: expect.stringContaining('owner: an integer beyond 2^53 cannot be sent back'),
    },
    B: { status: 'synced' },
  });
});

it('verify ends with the error of a service that fails on every page of a type', async () => {
  const world = await open(rooms(), { synced: ['A'] });
  await world.passHour();
  world.sandbox.failNext({ path: '/objects/find', fault: 'status', times: 'always' });
  await expect(world.verify()).rejects.toThrow('/v1/objects/find answered 500');
});

it('match fails with an unknown form when every object of the type is unreadable', async () => {
  const world = await open(rooms());
  garble(world, 'one');
  garble(world, 'two');
  const matching = matchStreams(world.deps(), { names: ['rooms'], by: undefined, samples: 3 });
  await expect(matching).rejects.toMatchObject({ code: 'answer_invalid', detail: "'one'" });
});

it('an unreadable object of a record fails alone with its reason, and verify goes on', async () => {
  const world = await open(rooms(), { synced: ['A', 'B'] });
  garble(world, 'room_B');
  expect(await verifyRooms(world)).toEqual({ drifting: 0, compared: 1, waiting: 1 });
  await world.rename('A', 'new');
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: {
      status: 'failed',
      error_code: 'answer_invalid',
      error_message:
        "POST /v1/objects/find: the answer cannot be understood: fields.0.values.0: Invalid input: expected string, received null: 'room_B'",
    },
  });
  expect(world.nameOf('A')).toBe('new');
  expect(world.nameOf('B')).toBe('');

  world.sandbox.putObject({ extId: 'room_B', typeId: 'room', fields: [] });
  await world.sync();
  await world.expectInSync();
});

const cannotShow = (world: RoomWorld, code: string, fault: Partial<FailRule> = {}) =>
  world.sandbox.failNext({
    path: '/objects/find',
    extId: `room_${code}`,
    fault: 'status',
    times: 'always',
    ...fault,
  });

it('an object that the service cannot show fails alone, and all other objects are sent', async () => {
  const world = await open(rooms(), { attempts: 9, synced: codes(20) });
  const faults: Record<string, Partial<FailRule>> = {
    '500': {},
    '400': { status: 400 },
    "a gateway's page": { fault: 'html' },
    'half an answer': { fault: 'brokenJson' },
    'no answer': { fault: 'reset' },
  };
  for (const [name, fault] of Object.entries(faults)) {
    await world.renameAll(name);
    for (const code of ['r007', 'r012']) cannotShow(world, code, fault);
    const { errors } = await world.sync();
    expect([name, errors]).toEqual([name, []]);
    const records = await world.recordsOf('rooms');
    for (const code of codes(20))
      expect([name, records[code]]).toMatchObject([
        name,
        ['r007', 'r012'].includes(code)
          ? { status: 'failed', error_code: 'service_fails_on_object' }
          : { status: 'synced', error_code: null },
      ]);
    expect(records['r007']?.['error_message']).toMatch(
      /the service failed each time this object was requested, but answered for others: 'room_r007'/,
    );

    // They are known: each is asked for alone.
    await world.rename('r001', 'new');
    world.sandbox.clearArrivals();
    await world.sync();
    const finds = world.sandbox.arrivals().filter(({ path }) => path.endsWith('/objects/find'));
    expect(finds.length).toBeLessThan(6);
    expect(world.nameOf('r001')).toBe('new');

    world.sandbox.clearFailures();
    await world.sync();
    await world.expectInSync();
  }
});

it('an object that the service cannot show does not stop the creates beside it', async () => {
  const world = await open(rooms(), { attempts: 9 });
  await world.addRooms(...codes(8));
  cannotShow(world, 'r003');
  const { run } = await world.sync();
  expect(run.status).toBe('partial');
  expect(await world.statusesOf('rooms')).toMatchObject({ r002: 'synced', r003: 'failed', r004: 'synced' });
});

it('finds of a service that is down end after a few requests', async () => {
  const world = await open(rooms(), { attempts: 1, synced: codes(100) });
  await world.sql`UPDATE rooms SET name = 'Hall ' || code`;
  const { runId, queue } = await world.plan();
  world.sandbox.clearArrivals();
  world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 503, times: 'always' });
  const { errors } = await world.finish(runId, queue);
  expect(errors.map(codeOf)).toContain('service_failed');
  expect(world.sandbox.arrivals().length).toBeLessThanOrEqual(8);
  world.sandbox.clearFailures();
  await world.sync();
  await world.expectInSync();
});
