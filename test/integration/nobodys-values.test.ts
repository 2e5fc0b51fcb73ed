// Guarantee 4
// Values at the service that no person entered, though they differ from the mirror's: what an older reading shows, what a write left
// that was not accepted, what was sent since a backup of the state. No rule of a field keeps them.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { verify } from '../../src/sync/verify/verify.js';
import { backUpDatabase } from '../support/clusters.js';
import { keepRoomWorlds, nameAtService, rename, rooms } from '../support/room-worlds.js';
import { createSharedDatabase, type World, type WorldOptions } from '../support/world.js';

const openWorld = keepRoomWorlds();

const fieldsOf = (rule: FieldRuleConfig) => ({
  'room.name': { from: 'name', ...rule },
  'room.seats': 'seats',
});
const ruled = (rule: FieldRuleConfig = { write: 'changed' }) => rooms({ fields: fieldsOf(rule) });
const open = (config = ruled(), options: WorldOptions = {}) =>
  openWorld(config, { ...options, synced: ['A'] });
/** Records were accepted longer ago than a find lags, and looked at since. */
const passLag = (world: World) =>
  world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour', synced_at = now() - interval '1 hour'`;

describe('write that was carried out and not accepted', () => {
  it('leaves no value for a person’s when the row is back as it was', async () => {
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

describe('state that was restored', () => {
  it('a value that was sent since the backup is nobody’s', async () => {
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

describe('add', () => {
  const LISTED = rooms({
    fields: { 'room.name': { from: (row) => row['tags'] as string[] | null, add: true, ifNull: 'keep' } },
  });
  it('with a null that keeps the field: its values stay known as added', async () => {
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
