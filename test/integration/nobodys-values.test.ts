// Guarantees 2, 4, 6
// Values at the service that differ from the mirror although no person entered them: from a lagging find, from a write that was
// not accepted, or sent since a backup of the state. No rule of a field keeps them.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ApplyDeps } from '../../src/sync/apply/apply-batch.js';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { backUpDatabase } from '../support/clusters.js';
import { createSharedDatabase, type WorldOptions } from '../support/world.js';
import { keepRooms, rooms, type RoomWorld } from '../support/steps.js';

const openWorld = keepRooms();

const fieldsOf = (rule: FieldRuleConfig) => ({
  'room.name': { from: 'name', ...rule },
  'room.seats': 'seats',
});
const ruled = (rule: FieldRuleConfig = { write: 'changed' }) => rooms({ fields: fieldsOf(rule) });
const open = (config = ruled(), options: WorldOptions = {}) =>
  openWorld(config, { ...options, synced: ['A'] });
const seat = (world: RoomWorld, seats: number) => world.sql`UPDATE rooms SET seats = ${seats}`;
describe('a write that was carried out and not accepted', () => {
  it('leaves no value that counts as a person’s when the row is as before', async () => {
    let isContradicting = false;
    const world = await open(ruled(), {
      dialect: (base) => ({
        write: {
          ...base.write,
          read: (body, sent, status) =>
            base.write
              .read(body, sent, status)
              .map((one) => (isContradicting ? { ...one, extId: 'another' } : one)),
        },
      }),
    });
    await world.rename('A', 'Aula');
    isContradicting = true;
    await world.sync();
    expect(world.nameOf('A')).toBe('Aula');
    isContradicting = false;
    await world.rename('A', 'Room A');
    await world.rounds(3);
    expect(world.nameOf('A')).toBe('Room A');
  });
});

it('a state that was restored counts a value sent since the backup as drift, and not as a person’s', async () => {
  const database = await createSharedDatabase();
  onTestFinished(() => database.drop());
  const world = await openWorld(ruled(), { database, synced: ['A'] });
  const putBack = await backUpDatabase(world.url);
  await world.rename('A', 'sent since');
  await world.sync();
  await putBack();
  await world.sync();
  await world.passHour();
  expect(await world.verify()).toMatchObject({ drifting: 1, kept: 0 });
});

it('a write that lands late leaves no value that counts as a person’s after its record was settled without a row', async () => {
  const world = await open();
  await world.sql`UPDATE slotsync.records SET check_after = now() - interval '1 second'`;
  world.edit('room_A', { 'room.name': 'landed late' });
  await world.sql`DELETE FROM rooms`;
  await world.sync();
  await world.passHour();
  await world.addRooms('A');
  await world.sync();
  expect(world.nameOf('A')).toBe('Room A');
});

it('a service that was restored gets the values of the mirror back by one repair of a stream without the rule', async () => {
  const world = await open();
  world.edit('room_A', { 'room.name': 'from a backup' });
  await world.passHour();
  expect(await world.verify()).toMatchObject({ drifting: 0, kept: 1 });
  world.configure(rooms());
  await world.sync();
  await world.passHour();
  expect(await world.verify()).toMatchObject({ drifting: 1 });
  await world.repair();
  world.configure(ruled());
  await world.sync();
  expect(world.nameOf('A')).toBe('Room A');
  world.edit('room_A', { 'room.name': 'by hand' });
  await seat(world, 40);
  await world.passHour();
  await world.sync();
  expect(world.nameOf('A')).toBe('by hand');
});

describe('a field with `add`', () => {
  const LISTED = rooms({
    fields: { 'room.name': { from: (row) => row['tags'] as string[] | null, add: true, ifNull: 'keep' } },
  });
  it('knows its values as added while a null keeps the field', async () => {
    const world = await openWorld(LISTED);
    await world.sql`ALTER TABLE rooms ADD tags text[]`;
    await world.sql`INSERT INTO rooms (code, tags) VALUES ('A', '{a}')`;
    await world.sync();
    for (const tags of [null, ['b']]) {
      await world.sql`UPDATE rooms SET tags = ${tags}`;
      await world.sync();
      await world.passHour();
    }
    const values = world.sandbox.object('room_A')?.fields.find(({ fieldId }) => fieldId === 'room.name');
    expect(values?.values).toEqual(['b']);
  });
});

type Find = ApplyDeps['destination']['findObjects'];
/** A service whose finds may lag a minute: so many of them answer as they would have before. */
function lagging(world: RoomWorld, before: Awaited<ReturnType<Find>>, finds = 1): ApplyDeps {
  const deps = world.deps();
  let asked = 0;
  const findObjects: Find = async (...given) =>
    asked++ < finds ? before : world.destination.findObjects(...given);
  return { ...deps, destination: { ...deps.destination, findLagSeconds: 60, findObjects } };
}

describe('a find that lags behind a recent acceptance', () => {
  it('does not bring back the former value', async () => {
    const world = await open();
    const before = await world.destination.findObjects(['room_A'], 'room', { lane: 'sync' });
    await world.rename('A', 'Aula');
    await world.sync();
    await seat(world, 40);
    const { runId, queue } = await world.plan();
    await world.sql`UPDATE slotsync.records SET synced_at = now() - interval '59 seconds'`;
    await world.apply(queue[0] ?? 0, undefined, lagging(world, before));
    await world.finish(runId, []);
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'Aula', 'room.seats': '40' });
  });

  it('is written when its row is as before, although a find still shows the former object', async () => {
    const world = await open(rooms());
    const before = await world.destination.findObjects(['room_A'], 'room', { lane: 'sync' });
    await world.rename('A', 'Aula');
    await world.sync();
    await world.rename('A', 'Room A');
    const { runId, queue } = await world.plan();
    await world.apply(queue[0] ?? 0, undefined, lagging(world, before, Infinity));
    await world.finish(runId, []);
    expect(world.nameOf('A')).toBe('Room A');
  });

  it('is retired when its row is gone, although a find does not show its object yet', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await world.addRooms('B');
    await world.sync();
    await world.remove('A');
    const { runId, queue } = await world.plan();
    // Ten of the sixty seconds are left to wait.
    await world.sql`UPDATE slotsync.records SET synced_at = now() - interval '50 seconds'`;
    await world.apply(queue[0] ?? 0, undefined, lagging(world, new Map()));
    await world.finish(runId, []);
    expect(world.sandbox.object('room_A')).toMatchObject({ active: false });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced' });
  });
});

it('an object that lost its external id gets the id back although it keeps a value that a person entered', async () => {
  const world = await open(
    { ...ruled(), service: { assignExternalIds: true } },
    { sandbox: { assignsExternalIds: true } },
  );
  world.edit('room_A', { 'room.name': 'by hand' });
  const object = world.sandbox.object('room_A');
  await world.passHour();
  world.sandbox.changeObject('room_A', { extId: null });
  await seat(world, 40);
  await world.sync();
  expect(world.sandbox.object('room_A')).toMatchObject({ id: object?.id });
  expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'by hand', 'room.seats': '40' });
});

it('a create of a whole object does not replace an object of another type, and its record names the reason', async () => {
  const world = await openWorld(rooms({ owns: 'object' }));
  await world.addRooms('A', 'B');
  const fields = [{ fieldId: 'person.name', values: ['Ada'] }];
  world.sandbox.addObject({ extId: 'room_A', typeId: 'person', active: true, fields });
  await world.sync();
  expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'person', fields });
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'dead', error_code: 'external_id_taken' },
    B: { status: 'synced' },
  });
});
