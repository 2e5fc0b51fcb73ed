// The check of rows finds rows that could not be sent before a sync: each reason with its place, its count and its first keys.
import { expect, it } from 'vitest';
import { findRisks } from '../../src/sync/operator/check.js';
import { checkRows } from '../../src/sync/operator/check-rows.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();

const CONFIG: SlotsyncConfig = {
  lookups: { group: { a: 'A', b: 'B' } },
  streams: {
    rooms: {
      ...ROOMS,
      externalId: 'room_{number}',
      fields: {
        'room.name': (row) => {
          if (row.name === '') throw new Error('it has no name');
          if (row.name === 'each') throw new Error(`cannot read ${row.code}`);
          return row.name as string;
        },
        'room.group': { column: 'group_code', lookup: 'group' },
      },
    },
    courses: { ...COURSES, fields: { 'course.name': 'name', 'course.data': 'data' } },
  },
};

async function open(): Promise<World> {
  const world = await openWorld(CONFIG);
  await world.sql`CREATE TABLE rooms (code text, name text, number text, group_code text)`;
  await world.sql`
    INSERT INTO rooms SELECT 'r' || to_char(i, 'FM0000'), 'Room', i::text, 'a' FROM generate_series(1, 2500) AS i`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text, data jsonb)`;
  return world;
}
const check = (world: World, name: string) => checkRows(world.deps(), world.stream(name));

it('the check of rows finds no fault in good rows before any parent is accepted', async () => {
  const world = await open();
  await world.sql`INSERT INTO courses SELECT code, 'Course', code FROM rooms`;
  expect(await check(world, 'rooms')).toEqual({ rows: 2500, faults: [] });
  expect(await check(world, 'courses')).toEqual({ rows: 2500, faults: [] });
  expect(world.sandbox.arrivals()).toEqual([]);
  expect(await world.recordsOf('rooms')).toEqual({});
  await world.sql`DELETE FROM courses`;
  expect(await check(world, 'courses')).toEqual({ rows: 0, faults: [] });
});

it('the check of rows groups rows that cannot be sent by the reason', async () => {
  const world = await open();
  await world.sql`UPDATE rooms SET name = '' WHERE code BETWEEN 'r0100' AND 'r0107'`;
  await world.sql`UPDATE rooms SET group_code = 'Anna Berg' WHERE code IN ('r0001', 'r2500')`;
  await world.sql`UPDATE rooms SET number = NULL WHERE code = 'r1500'`;
  await world.sql`UPDATE rooms SET number = '7' WHERE code IN ('r0008', 'r0009')`;
  await world.sql`INSERT INTO rooms VALUES (repeat('é', 1000), 'Long', 'long', 'a')`;
  const { rows, faults } = await check(world, 'rooms');
  expect(rows).toBe(2501);
  expect(faults).toEqual([
    {
      reason: "rooms.fields['room.name']: it has no name",
      count: 8,
      keys: ['r0100', 'r0101', 'r0102', 'r0103', 'r0104'],
    },
    {
      reason: "rooms.externalId: several rows give the external id 'room_7'",
      count: 3,
      keys: ['r0007', 'r0008', 'r0009'],
    },
    {
      reason: "rooms.fields['room.group']: column group_code holds a code that lookup 'group' does not have",
      count: 2,
      keys: ['r0001', 'r2500'],
    },
    { reason: 'rooms.externalId: column number of the external id is empty', count: 1, keys: ['r1500'] },
    {
      reason: 'rooms.key: it is longer than 1024 bytes',
      count: 1,
      keys: [expect.stringContaining('~sha256:')],
    },
  ]);
});

it('the check of rows merges many different reasons, and counts all rows', async () => {
  const world = await open();
  await world.sql`UPDATE rooms SET name = 'each'`;
  const { faults } = await check(world, 'rooms');
  expect(faults).toHaveLength(11);
  expect(faults[0]).toMatchObject({ reason: "rooms.fields['room.name']: other reasons", count: 2490 });
});

it('the check of rows finds missing references and values that cannot be sent', async () => {
  const world = await open();
  await world.sql`INSERT INTO courses VALUES ('A', 'x', 'r0001', NULL), ('B', 'x', 'nowhere', NULL), ('C', 'x', NULL, '{}')`;
  expect((await check(world, 'courses')).faults).toEqual([
    {
      reason: "courses.references['course.room']: it refers to a row that rooms does not have",
      count: 1,
      keys: ['B'],
    },
    {
      reason:
        "courses.fields['course.data']: an object cannot be sent; map it to text with a function of the row",
      count: 1,
      keys: ['C'],
    },
  ]);
});

it('the check of rows names risks that the catalogue shows', async () => {
  const world = await open();
  const risksOf = async (name: string) =>
    findRisks(world.stream(name), await world.deps().mirror.catalogue.readTables());
  expect(await risksOf('rooms')).toEqual([
    'no unique index rules out that the key code repeats or is null, and then nothing is sent',
  ]);
  expect(await risksOf('courses')).toEqual([
    'column data is jsonb, and an object in it cannot be sent; map it with a function of the row',
  ]);
  await world.sql`ALTER TABLE rooms ADD UNIQUE (code), ALTER code SET NOT NULL`;
  expect(await risksOf('rooms')).toEqual([]);
});

it('the check of rows finds keys that repeat or are null', async () => {
  const world = await open();
  await world.sql`INSERT INTO rooms VALUES ('r0001', 'Twice', 'x', 'a'), (NULL, 'None', 'y', 'a')`;
  const { rows, faults } = await check(world, 'rooms');
  expect(rows).toBe(2502);
  expect(faults).toEqual([
    { reason: 'rooms.key: it is null, and so nothing of the stream is sent', count: 1, keys: [] },
    {
      reason: 'rooms.key: it is not unique, and so nothing of the stream is sent',
      count: 1,
      keys: ['r0001'],
    },
  ]);
});
