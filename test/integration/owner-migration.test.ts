// Guarantees 2, 4
// A state of before, in which several records know of one object: the migration makes one of them its owner, and the next runs make
// the service what the rows say. The records are as the program left them that kept what it knew with the keys.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { listContested, migrate } from '../../src/state/migrate.js';
import { createObject } from '../../src/streams/destination-object.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();

const FORMER_COLUMNS = `
  ALTER TABLE slotsync.records DROP COLUMN row_external_id, DROP COLUMN former_key, ADD COLUMN former_external_id text;
  DROP INDEX slotsync.records_external_id;
  CREATE INDEX records_external_id ON slotsync.records (external_id);
  CREATE INDEX records_former_external_id ON slotsync.records (stream) WHERE former_external_id IS NOT NULL`;

interface FormerRecord {
  local_key: string;
  external_id: string | null;
  object_hash?: string;
  status: string;
  error_code?: string;
  refused_hash?: string;
  in_doubt?: boolean;
  check_after?: Date;
  synced_at?: Date;
  former_external_id?: string;
}

const minutes = (count: number) => new Date(Date.now() + count * 60_000);
const V1 = { object_hash: 'w-xPxBWNZVdX1JNdn2TiKJ', synced_at: minutes(-9) };
const NEWEST = { object_hash: 'X9LgXQ6tFhaL2q2T71MH73', synced_at: minutes(-5) };
const CHANGED = { status: 'dead', error_code: 'external_id_changed', refused_hash: '9006801481516529286' };

async function openState(
  { rows, there }: { rows: [number, string, string][]; there: string },
  records: readonly FormerRecord[],
): Promise<World> {
  const world = await openWorld({
    streams: {
      places: {
        from: 'places',
        key: 'id',
        type: 'place',
        externalId: 'y_{code}',
        fields: { 'place.name': 'name' },
      },
    },
  });
  await world.sql`CREATE TABLE places (id int PRIMARY KEY, code text, name text)`;
  for (const row of rows) await world.sql`INSERT INTO places VALUES ${world.sql([row])}`;
  await world.destination.putObjects([createObject('y_A', 'place', true, [['place.name', [there]]])], {
    lane: 'sync',
  });
  await world.sql.unsafe(FORMER_COLUMNS);
  for (const record of records)
    await world.sql`INSERT INTO slotsync.records ${world.sql({ stream: 'places', source_hash: '1', destination_id: 1001, ...record })}`;
  for (const file of ['0010_object_owners.sql', '0011_one_owner.sql'])
    for (const statement of readFileSync(`migrations/${file}`, 'utf8').split('--> statement-breakpoint'))
      await world.sql.unsafe(statement);
  return world;
}

async function settle(world: World): Promise<void> {
  for (let rounds = 0; rounds < 3; rounds++) {
    await world.sync();
    await world.drainInbox();
    await world.passLateWrites();
  }
}

const nameOf = (world: World, extId: string) => world.fieldsOf(extId)?.['place.name'];

describe('migration: an object that several records know of', () => {
  it.each<[string, FormerRecord]>([
    [
      'which was given up when its external id changed',
      {
        local_key: '1',
        external_id: 'y_A',
        ...V1,
        ...CHANGED,
        in_doubt: true,
        check_after: minutes(1),
        former_external_id: 'y_A',
      },
    ],
    [
      'which was retried and let go of it',
      {
        local_key: '1',
        external_id: null,
        status: 'failed',
        check_after: minutes(1),
        former_external_id: 'y_A',
      },
    ],
  ])('a write that came late for a record %s does not stay', async (_, former) => {
    const world = await openState(
      {
        rows: [
          [1, 'C', 'v2'],
          [2, 'A', 'newest'],
        ],
        there: 'v2',
      },
      [former, { local_key: '2', external_id: 'y_A', status: 'synced', ...NEWEST }],
    );
    expect(await world.recordsOf('places')).toMatchObject({ 2: { external_id: 'y_A', in_doubt: true } });
    await settle(world);
    expect([nameOf(world, 'y_A'), nameOf(world, 'y_C')]).toEqual(['newest', 'v2']);
    expect(await world.statusesOf('places')).toEqual({ 1: 'synced', 2: 'synced' });
  });

  it('a change that was undone and not sent is sent', async () => {
    const world = await openState({ rows: [[1, 'A', 'v1']], there: 'newest' }, [
      { local_key: '1', external_id: 'y_A', status: 'synced', ...V1 },
      { local_key: '2', external_id: 'y_A', status: 'synced', ...NEWEST },
    ]);
    expect(await world.recordsOf('places')).toMatchObject({
      1: { external_id: null, row_external_id: 'y_A', object_hash: null, status: 'pending' },
      2: { external_id: 'y_A', in_doubt: true },
    });
    await settle(world);
    expect(nameOf(world, 'y_A')).toBe('v1');
    expect(await world.statusesOf('places')).toEqual({ 1: 'synced' });
  });

  it('an object that a record had before is kept by a record of its own, with its doubt', async () => {
    const world = await openState({ rows: [[1, 'C', 'v2']], there: 'v1' }, [
      { local_key: '1', external_id: 'y_C', status: 'synced', ...NEWEST, former_external_id: 'y_A' },
    ]);
    expect(await world.recordsOf('places')).toMatchObject({
      1: { external_id: 'y_C', in_doubt: false },
      '#former y_A': { external_id: 'y_A', former_key: '1', in_doubt: true },
    });
  });

  it('is named by migrate and check when somebody made it by hand', async () => {
    const world = await openState({ rows: [[1, 'A', 'v1']], there: 'v1' }, []);
    await world.sql.unsafe(`DROP INDEX slotsync.records_external_id`);
    await world.sql`
      INSERT INTO slotsync.records (stream, local_key, external_id, object_hash, status)
      VALUES ('places', '1', 'y_A', 'x', 'synced'), ('places', 'o''clock', 'y_A', 'x', 'synced')`;
    const contested = [{ externalId: 'y_A', records: ["places '1'", "places 'o'clock'"] }];
    expect(await listContested(world.state.db)).toEqual(contested);
    expect(await migrate(world.state.url)).toEqual({ applied: 0, contested });
  });
});
