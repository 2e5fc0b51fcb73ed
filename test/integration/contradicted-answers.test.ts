// Guarantees 2, 6
// Services that treat similar external ids as equal: no answer is accepted that contradicts the request, and the record says
// what the service did.
import { expect, it } from 'vitest';
import type { DialectDefinition, Json } from '../../src/dialect/dialect.js';
import { retireFormer } from '../../src/state/records/retry-records.js';
import { keepRooms, rooms, until, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const PROPOSAL = "; if both ids mean one object, set service.externalIds: { case: 'insensitive' }";
const retiring = rooms({ retire: 'deactivate' });

/** Returns for each key why its record is not in sync, else its status. */
async function reasonsOf(world: RoomWorld) {
  const records = Object.values(await world.recordsOf('rooms'));
  return Object.fromEntries(
    records.map(({ local_key, status, error_message }) => [local_key, error_message ?? status]),
  );
}

it('ids compared without case: no two records are synced on one object', async () => {
  const world = await open(rooms(), { sandbox: { externalIds: 'ignore-case' } });
  await world.addRooms('A1', 'a1', 'b');
  const { run } = await world.sync();
  expect(run.status).toBe('partial');
  expect(await reasonsOf(world)).toEqual({
    A1: "the service gave the same number, 1001, to 'room_A1' and 'room_a1'",
    a1: "the service gave the same number, 1001, to 'room_a1' and 'room_A1'",
    b: 'synced',
  });
  expect(world.writes()).toHaveLength(1);

  // The one that the service has under its own name is looked at; the other one is not written over it.
  for (let runs = 0; runs < 3; runs++) await world.sync();
  expect(await reasonsOf(world)).toEqual({
    A1: `the answer names an object that was not requested: the service knows 'room_A1' as 'room_a1'${PROPOSAL}`,
    a1: 'synced',
    b: 'synced',
  });
  expect(world.nameOf('a1')).toBe('Room a1');
  expect(world.writes()).toHaveLength(1);
});

it.each([
  ['ignore-case', 'A1', 'a1', PROPOSAL],
  [
    'cut',
    'long-na',
    'long-name',
    '; if both ids mean one object, set service.externalIds: { maxLength: 12 }',
  ],
] as const)(
  'an object that the service finds by the ids of two rows belongs only to the row with its exact id (%s)',
  async (externalIds, one, other, setting) => {
    const world = await open(rooms(), { sandbox: { externalIds } });
    const fields = [{ fieldId: 'room.name', values: [`Room ${one}`] }];
    world.sandbox.addObject({ extId: `room_${one}`, typeId: 'room', fields });
    await world.addRooms(one, other, `${one}-more`);
    const expected = {
      [one]: 'synced',
      [other]: `the answer names an object that was not requested: the service knows 'room_${other}' as 'room_${one}'${setting}`,
    };
    for (let runs = 0; runs < 3; runs++) {
      await world.sync();
      expect(await reasonsOf(world)).toMatchObject(expected);
      await world.passLateWrites();
      await world.drainInbox();
    }
    expect(world.nameOf(one)).toBe(`Room ${one}`);
    const more = externalIds === 'cut' ? expect.stringContaining('knows') : 'synced';
    expect(await reasonsOf(world)).toMatchObject({ [`${one}-more`]: more });
    expect(await world.drainInbox()).toEqual([]);
    await world.expectNothingToSend();
  },
);

it.each([['always'], ['changed']] as const)(
  'an object that a write under a similar id changed is repaired (write: %s)',
  async (write) => {
    const exactly: DialectDefinition = (base) => ({
      find: {
        read(body, question) {
          const { filter } = question;
          const answer = base.find.read(body, question);
          if (filter.by !== 'extIds') return answer;
          const isAsked = (found: unknown) => filter.extIds.includes(String((found as Json)['extId']));
          const results = answer.results.filter(isAsked);
          return { ...answer, results, totalResults: results.length };
        },
      },
    });
    const world = await open(rooms({ fields: { 'room.name': { from: 'name', write } } }), {
      sandbox: { externalIds: 'ignore-case' },
      dialect: exactly,
    });
    const fields = [{ fieldId: 'room.name', values: ['Room A1'] }];
    world.sandbox.addObject({ extId: 'room_A1', typeId: 'room', fields });
    for (const code of ['A1', 'a1']) {
      await world.addRooms(code);
      await world.sync();
    }
    // A value that the other write has left there is no person’s.
    expect(await world.recordsOf('rooms')).toMatchObject({ A1: { accepted_fields: null } });
    await world.rounds(3);
    expect(await reasonsOf(world)).toEqual({
      A1: 'synced',
      a1: "the service gave 'room_a1' the number 1001, which belongs to 'room_A1'",
    });
    expect(world.nameOf('A1')).toBe('Room A1');
    await world.expectNothingToSend();
  },
);

it('a number of another record after a restore is not accepted, and both objects are checked', async () => {
  const world = await open(rooms(), { synced: ['A'] });
  world.sandbox.removeObject('room_A');
  const fields = [{ fieldId: 'room.name', values: ['by hand'] }];
  world.sandbox.addObject({ id: 1001, extId: 'room_B', typeId: 'room', fields });
  await world.addRooms('B');
  const { run } = await world.sync();
  expect(run.status).toBe('partial');
  expect(await reasonsOf(world)).toEqual({
    A: 'synced',
    B: "the service gave 'room_B' the number 1001, which belongs to 'room_A'",
  });
  await world.drainInbox();
  await world.sync();
  await world.expectInSync();
  await world.expectNothingToSend();
});

it('an object whose number was reassigned by a restore is deactivated when its row is gone', async () => {
  const world = await open(retiring, { synced: ['A', 'B', 'C'] });
  const objects = world.sandbox.objects();
  for (const { extId } of objects) world.sandbox.removeObject(extId);
  for (const [at, { extId, typeId, fields }] of objects.entries())
    world.sandbox.addObject({ id: 1001 + ((at + 1) % objects.length), extId, typeId, fields });
  await world.rename('B', 'anew');
  await world.rename('C', 'anew');
  await world.remove('A');
  await world.rounds(3);
  expect(world.sandbox.object('room_A')).toMatchObject({ active: false });
  expect(await reasonsOf(world)).toEqual({ A: 'retired', B: 'synced', C: 'synced' });
  expect([world.nameOf('B'), world.nameOf('C')]).toEqual(['anew', 'anew']);
  await world.expectNothingToSend();
});

it('an object whose id is stored in lower case is written once, and its record says so', async () => {
  const world = await open(rooms(), { sandbox: { externalIds: 'lower-case' } });
  await world.addRooms('A1', 'B2', 'c');
  await world.sync();
  expect(world.writes()).toHaveLength(1);
  const seen = {
    A1: `the service knows 'room_A1' as 'room_a1'${PROPOSAL}`,
    B2: `the service knows 'room_B2' as 'room_b2'${PROPOSAL}`,
    c: 'synced',
  };
  expect(await reasonsOf(world)).toEqual(seen);
  expect(await world.recordOf('A1')).toMatchObject({
    status: 'failed',
    error_code: 'answer_contradicts',
    in_doubt: true,
    object_hash: null,
  });
  for (let runs = 0; runs < 2; runs++) await world.sync();
  await world.drainInbox();
  expect(world.writes()).toHaveLength(1);
  expect(await reasonsOf(world)).toEqual(seen);

  // A changed row is sent once more.
  await world.rename('A1', 'anew');
  for (let runs = 0; runs < 2; runs++) await world.sync();
  expect(world.writes()).toHaveLength(2);
});

it('the limit of refusals ends a stream of which the service changes every id', async () => {
  const world = await open(rooms({ limits: { refused: { count: 3, percent: 1 } }, batchSize: 2 }), {
    sandbox: { externalIds: 'lower-case' },
  });
  await world.addRooms(...Array.from({ length: 20 }, (_, at) => `R${at}`));
  const { run } = await world.sync();
  expect(run.holds).toMatchObject({
    rooms: { refused: { facts: { refused: { code: 'answer_contradicts' } } } },
  });
  expect(world.writes()).toHaveLength(2);
});

it('a row is not written over the object of another row when the service trims ids', async () => {
  const world = await open(rooms(), { sandbox: { externalIds: 'trim' }, synced: ['A'] });
  await world.addRooms('A ', 'b');
  for (let runs = 0; runs < 2; runs++) await world.sync();
  expect(world.nameOf('A')).toBe('Room A');
  expect(await reasonsOf(world)).toMatchObject({ A: 'synced', b: 'synced' });
  expect(await world.recordOf('A ')).toMatchObject({ status: 'failed' });
});

it('a row whose key changes only its case keeps its object active', async () => {
  const world = await open(retiring, { sandbox: { externalIds: 'ignore-case' }, synced: ['A1', 'b'] });
  await world.sql`UPDATE rooms SET code = 'a1' WHERE code = 'A1'`;
  await world.rounds(4);
  expect(world.sandbox.objects()).toMatchObject([{ active: true }, { active: true }]);
});

it.each([
  ['key', rooms({ retire: 'deactivate' }), 'code'],
  ['external id', rooms({ retire: 'deactivate', externalId: 'room_{number}' }), 'number'],
] as const)(
  'a row and its object that change the case of the %s leave no former record',
  async (_, config, column) => {
    const world = await open(config, { sandbox: { externalIds: 'ignore-case' } });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A1', 'Room A1', 'A1')`;
    await world.sync();
    const object = world.sandbox.object('room_A1');
    if (!object) throw new Error('the object was not made');
    world.sandbox.putObject({ ...object, extId: 'room_a1' });
    await world.sql`UPDATE rooms SET ${world.sql(column)} = 'a1'`;
    await world.sync();
    await retireFormer(world.state.db, { keys: [], streams: ['rooms'] });
    for (let runs = 0; runs < 3; runs++) await world.sync();
    expect(Object.values(await world.statusesOf('rooms'))).toEqual(['synced']);
    expect(world.sandbox.objects()).toMatchObject([{ id: object.id, active: true }]);
  },
);

it('two batches that settle the same number at once have both objects checked', async () => {
  const world = await open(rooms(), { sandbox: { externalIds: 'ignore-case' } });
  await world.addRooms('A1', 'a1');
  const { runId, queue } = await world.planBatches('rooms', [['A1'], ['a1']]);
  const [first = 0, second = 0] = queue;
  world.sandbox.closeGate({ method: 'PUT' });
  const ends = [first, second].map((batch) => world.apply(batch));
  await until(() => world.sandbox.gate().held === 2, { describe: 'both writes to be held' });
  // Both batches have their answers before either of them is settled.
  await world.sql.begin(async (tx) => {
    await tx`SELECT FROM slotsync.records FOR UPDATE`;
    world.sandbox.openGate();
    const waiting = () => world.sql`SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
      AND datname = current_database()`;
    await until(async () => (await waiting()).length === 2, {
      describe: 'both batches to wait for the lock',
    });
  });
  await Promise.all(ends);
  await world.advance(runId);
  const doubts = Object.values(await world.recordsOf('rooms')).map((record) => record.in_doubt);
  expect(doubts).toEqual([true, true]);
  await world.drainInbox();
  expect(Object.values(await world.statusesOf('rooms')).toSorted()).toEqual(['failed', 'synced']);
});
