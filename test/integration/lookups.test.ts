// Lookups in tables of the mirror: the sent values follow the content of the table, even in processes that loaded the
// configuration long before a change.
import { expect, it } from 'vitest';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { reconcile } from '../../src/sync/reconcile/reconcile.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const CONFIG: SlotsyncConfig = {
  lookups: { group: { from: 'groups', key: 'code', value: 'name' } },
  streams: {
    rooms: {
      ...ROOMS,
      fields: { 'room.name': 'name', 'room.group': { column: 'group_code', lookup: 'group' } },
      cursor: 'changed_at',
    },
    labs: { ...ROOMS, from: 'labs', type: 'lab', externalId: 'lab_{code}' },
  },
};
const openWorld = keepWorlds();

async function open(config = CONFIG): Promise<World> {
  const world = await openWorld(config);
  await addGroups(world);
  await world.sql`CREATE TABLE labs (code text PRIMARY KEY, name text)`;
  await world.sql`INSERT INTO labs VALUES ('L', 'Lab')`;
  await world.sql`
    CREATE TABLE rooms (code text PRIMARY KEY, name text, group_code int, changed_at timestamptz DEFAULT now() - interval '1 minute')`;
  await world.sql`INSERT INTO rooms VALUES ('A', 'Room A', 1), ('B', 'Room B', 2), ('C', 'Room C', 3)`;
  return world;
}
const addGroups = ({ sql }: World) =>
  sql.unsafe(`DROP TABLE IF EXISTS groups; CREATE TABLE groups (code smallint, name text);
    INSERT INTO groups VALUES (1, 'Manufacturing'), (2, 'Nursing'), (3, NULL)`);
const groupThere = (world: World, code: string) => world.fieldsOf(`room_${code}`)?.['room.group'];

it('a lookup table translates codes, and the next run sends what a changed content changes', async () => {
  const world = await open();
  expect((await world.sync()).run.status).toBe('succeeded');
  expect(['A', 'B', 'C'].map((code) => groupThere(world, code))).toEqual([
    'Manufacturing',
    'Nursing',
    undefined,
  ]);
  expect((await world.sync()).run.plan['rooms']).toMatchObject({ unchanged: 3, update: 0 });
  world.sandbox.clearArrivals();

  await world.sql`UPDATE groups SET name = 'Care' WHERE code = 2`;
  const { run } = await world.sync();
  expect(run).toMatchObject({
    plan: { rooms: { update: 3 }, labs: { unchanged: 1 } },
    counts: { rooms: { synced: 1, unchanged: 2 } },
  });
  expect(groupThere(world, 'B')).toBe('Care');
  expect(world.writes()).toHaveLength(1);
  expect((await world.sync()).run.plan['rooms']).toMatchObject({ unchanged: 3 });
  // After a change between the plan and the batch the rows are checked again.
  await world.sql`UPDATE rooms SET name = 'new' WHERE code = 'B'`;
  const { runId, queue } = await world.plan('rooms');
  await world.sql`UPDATE groups SET name = 'Nursing' WHERE code = 2`;
  await world.finish(runId, queue);
  expect(world.fieldsOf('room_B')).toMatchObject({ 'room.name': 'new', 'room.group': 'Care' });
  expect((await world.sync()).run.counts['rooms']).toMatchObject({ synced: 1 });
  expect(groupThere(world, 'B')).toBe('Nursing');
});

it('a lookup table that lacks a code makes the row dead until the code is added', async () => {
  const world = await open();
  await world.sql`UPDATE rooms SET group_code = 77 WHERE code = 'A'`;
  await world.sync();
  const { A } = await world.recordsOf('rooms');
  expect(A).toMatchObject({
    status: 'dead',
    error_code: 'mapping_failed',
    error_message:
      "rooms.fields['room.group']: column group_code holds a code that lookup 'group' does not have",
  });
  expect(groupThere(world, 'B')).toBe('Nursing');
  await world.sql`INSERT INTO groups VALUES (77, 'Seventy-seven')`;
  await world.sync();
  expect(groupThere(world, 'A')).toBe('Seventy-seven');
});

it('a lookup table that cannot serve fails only the streams that use it', async () => {
  const world = await open();
  const faults: [statement: string, fault: RegExp][] = [
    ['DROP TABLE groups', /^lookups\.group\.from: relation "groups" does not exist/],
    ['ALTER TABLE groups RENAME name TO title', /^lookups\.group\.value: there is no column name/],
    [
      'INSERT INTO groups VALUES (2, $$Twice$$)',
      /^lookups\.group\.key: a code is in several rows, such as '2'/,
    ],
    [
      `UPDATE groups SET name = repeat('x', 9 * 1024 * 1024) WHERE code < 3`,
      /^lookups\.group\.from: the codes and values of the table are larger than 16 MB, too large for a lookup/,
    ],
  ];
  for (const [statement, fault] of faults) {
    await addGroups(world);
    await world.sql.unsafe(statement);
    await world.sql`UPDATE labs SET name = ${statement}`;
    const { run } = await world.sync();
    expect([statement, run]).toMatchObject([
      statement,
      { status: 'partial', counts: { labs: { synced: 1 } } },
    ]);
    const [batch] = await world.sql<{ error_code: string; error_message: string }[]>`
      SELECT error_code, error_message FROM slotsync.batches WHERE stream = 'rooms' AND run_id = ${run.id}`;
    expect(batch?.error_code).toBe('mirror_source');
    expect(batch?.error_message.replace('rooms: ', '')).toMatch(fault);
    expect(await world.recordsOf('rooms')).toEqual({});
  }
});

it('a lookup table is compared by a poll with its present content', async () => {
  const world = await open();
  await world.sync();
  const { mirror, state } = world;
  const polling = { overlapSeconds: 3600, lagSeconds: 0 };
  const poll = createPoll({ mirror, state, polling }, world.stream('rooms'));
  expect(await poll()).toMatchObject({ rows: 3, put: 0 });
  await world.sql`UPDATE groups SET name = 'Care' WHERE code = 2`;
  expect(await poll()).toMatchObject({ put: 3 });
  await world.drainInbox();
  expect(groupThere(world, 'B')).toBe('Care');
  expect(await poll()).toMatchObject({ put: 0 });
});

it('a lookup table translates the fields of bookings that are compared', async () => {
  const world = await open({
    ...CONFIG,
    reservations: {
      from: 'bookings',
      key: 'id',
      externalId: 'res_{id}',
      begin: 'starts_at',
      end: 'ends_at',
      fields: { 'res.group': { column: 'group_code', lookup: 'group' } },
    },
  });
  await world.sql`CREATE TABLE bookings (id int, group_code int, starts_at timestamptz, ends_at timestamptz)`;
  await world.sql`INSERT INTO bookings VALUES (1, 1, now(), now() + interval '1 hour')`;
  const verdictOf = async () => {
    await reconcile(world.reconciling());
    const [row] = await world.sql`SELECT verdict, here FROM slotsync.reservations`;
    return row;
  };
  expect(await verdictOf()).toMatchObject({
    verdict: 'missing_there',
    here: { fields: [{ fieldId: 'res.group', values: ['Manufacturing'] }] },
  });
  await world.sql`UPDATE groups SET name = 'Factory' WHERE code = 1`;
  expect(await verdictOf()).toMatchObject({
    here: { fields: [{ fieldId: 'res.group', values: ['Factory'] }] },
  });
});
