// Guarantee 4
// Values at the service that differ from the mirror although no person entered them: from a lagging find, from a write that was
// not accepted, or sent since a backup of the state. No rule of a field keeps them.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ApplyDeps } from '../../src/sync/apply/apply-batch.js';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { startRepairRun, verify } from '../../src/sync/verify/verify.js';
import { backUpDatabase } from '../support/clusters.js';
import { addRooms, keepRoomWorlds, nameAtService, rename, rooms } from '../support/room-worlds.js';
import { createSharedDatabase, type World, type WorldOptions } from '../support/world.js';

const openWorld = keepRoomWorlds();

const fieldsOf = (rule: FieldRuleConfig) => ({
  'room.name': { from: 'name', ...rule },
  'room.seats': 'seats',
});
const ruled = (rule: FieldRuleConfig = { write: 'changed' }) => rooms({ fields: fieldsOf(rule) });
const open = (config = ruled(), options: WorldOptions = {}) =>
  openWorld(config, { ...options, synced: ['A'] });
const seat = (world: World, seats: number) => world.sql`UPDATE rooms SET seats = ${seats}`;
const edit = (world: World, name: string) =>
  world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.name', values: [name] }] });
/** Moves the acceptance of all records back by an hour, which is more than a find lags. */
const passLag = (world: World) =>
  world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour', synced_at = now() - interval '1 hour'`;

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
    await rename(world, 'A', 'Aula');
    isContradicting = true;
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Aula');
    isContradicting = false;
    await rename(world, 'A', 'Room A');
    for (let rounds = 0; rounds < 3; rounds++) {
      await world.sync();
      await world.passLateWrites();
      await world.drainInbox();
    }
    expect(nameAtService(world, 'A')).toBe('Room A');
  });
});

describe('a state that was restored', () => {
  it('counts a value sent since the backup as drift, and not as a person’s', async () => {
    const database = await createSharedDatabase();
    onTestFinished(() => database.drop());
    const world = await openWorld(ruled(), { database, synced: ['A'] });
    const putBack = await backUpDatabase(world.url);
    await rename(world, 'A', 'sent since');
    await world.sync();
    await putBack();
    await world.sync();
    await passLag(world);
    expect(await verify(world.verifying())).toMatchObject({ drifting: 1, kept: 0 });
  });
});

describe('a write that lands late', () => {
  it('leaves no value that counts as a person’s after its record was settled without a row', async () => {
    const world = await open();
    await world.sql`UPDATE slotsync.records SET check_after = now() - interval '1 second'`;
    edit(world, 'landed late');
    await world.sql`DELETE FROM rooms`;
    await world.sync();
    await passLag(world);
    await addRooms(world, 'A');
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Room A');
  });
});

describe('a service that was restored', () => {
  it('gets the values of the mirror back by one repair of a stream without the rule', async () => {
    const world = await open();
    edit(world, 'from a backup');
    await passLag(world);
    expect(await verify(world.verifying())).toMatchObject({ drifting: 0, kept: 1 });
    world.configure(rooms());
    await world.sync();
    await passLag(world);
    expect(await verify(world.verifying())).toMatchObject({ drifting: 1 });
    const run = await startRepairRun(world.state.db, { streams: ['rooms'], startedBy: 'command' });
    const { queue } = await world.planRun(run?.id ?? 0);
    await world.finish(run?.id ?? 0, queue);
    world.configure(ruled());
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Room A');
    edit(world, 'by hand');
    await seat(world, 40);
    await passLag(world);
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('by hand');
  });
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
      await passLag(world);
    }
    const values = world.sandbox.object('room_A')?.fields.find(({ fieldId }) => fieldId === 'room.name');
    expect(values?.values).toEqual(['b']);
  });
});

describe('a find that lags behind a recent acceptance', () => {
  /** The find answers as it would have before the last write, and `later` as it is. */
  async function seatsBesideLag(world: World): Promise<void> {
    const before = await world.destination.findObjects(['room_A'], 'room', { lane: 'sync' });
    await rename(world, 'A', 'Aula');
    await world.sync();
    await seat(world, 40);
    const { runId, queue } = await world.plan();
    await world.sql`UPDATE slotsync.records SET synced_at = now() - interval '59 seconds'`;
    let asked = 0;
    const findObjects: ApplyDeps['destination']['findObjects'] = async (...given) =>
      asked++ === 0 ? before : world.destination.findObjects(...given);
    const deps = world.deps();
    const destination = { ...deps.destination, findLagSeconds: 60, findObjects };
    await world.apply(queue[0] ?? 0, undefined, { ...deps, destination });
    await world.finish(runId, []);
  }

  it('does not bring back the former value', async () => {
    const world = await open();
    await seatsBesideLag(world);
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'Aula', 'room.seats': '40' });
  });
});

describe('an object that lost its external id', () => {
  it('gets the id back although it keeps a value that a person entered', async () => {
    const world = await open(
      { ...ruled(), service: { assignExternalIds: true } },
      { sandbox: { assignsExternalIds: true } },
    );
    edit(world, 'by hand');
    const object = world.sandbox.object('room_A');
    await passLag(world);
    world.sandbox.changeObject('room_A', { extId: null });
    await seat(world, 40);
    await world.sync();
    expect(world.sandbox.object('room_A')).toMatchObject({ id: object?.id });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'by hand', 'room.seats': '40' });
  });
});
