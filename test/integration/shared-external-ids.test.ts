// Guarantee 10
// Rows that share an external id, in any number: each is refused with its reason, in small portions.
import { describe, expect, it } from 'vitest';
import type { PlanSink } from '../../src/sync/plan/planned-batches.js';
import { planStream } from '../../src/sync/plan/plan-stream.js';
import { explainRefusal } from '../../src/sync/plan/plan-lists.js';
import { keepRoomWorlds, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();
const byNumber = rooms({ externalId: 'room_{number}' });
const MANY = 60_000;

/** Collects what a plan does. Refusals come in portions. */
function watch() {
  const refused: { key: string; message: string }[][] = [];
  const planned: string[] = [];
  const sink: PlanSink = {
    addBatch: async (_kind, entries) => void planned.push(...entries.map(({ key }) => key)),
    refuse: async (rows) => void refused.push([...rows]),
  };
  return { sink, refused, planned };
}
const WHOLE = { kind: 'sync', range: null, room: { records: Infinity }, context: { lane: 'sync' } } as const;

describe('an external id of 60 000 rows', () => {
  it('is counted, named with six keys, and its rows are refused in portions', async () => {
    const world = await open(byNumber);
    await world.sql`
      INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', '1' FROM generate_series(1, ${MANY}) AS i`;
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room', '2')`;
    const [shared, ...others] = await world.mirror.findSharedExternalIds(world.stream('rooms'));
    expect(others).toEqual([]);
    expect(shared).toEqual({
      externalId: 'room_1',
      count: MANY,
      keys: ['r1', 'r10', 'r100', 'r1000', 'r10000', 'r10001'],
    });
    const { sink, refused, planned } = watch();
    await planStream(world.deps(), world.stream('rooms'), WHOLE, sink);
    expect(planned).toEqual(['A']);
    expect(refused).toHaveLength(MANY / 1000);
    expect(Math.max(...refused.map(({ length }) => length))).toBe(1000);
    const messages = new Map(refused.flat().map(({ key, message }) => [key, message]));
    expect(messages.size).toBe(MANY);
    expect(messages.get('r10')).toBe(
      "external id 'room_1' is also that of r1, r100, r1000, r10000, r10001 and 59994 more rows",
    );
    expect(Math.max(...[...messages.values()].map(({ length }) => length))).toBeLessThan(120);
  });
});

it('rows with an empty code have no external id and a reason each, and all other rows are sent', async () => {
  const world = await open(byNumber);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', '' FROM generate_series(1, ${MANY}) AS i`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room', '2')`;
  const { sink, refused, planned } = watch();
  await planStream(world.deps(), world.stream('rooms'), WHOLE, sink);
  expect(refused).toEqual([]);
  expect(planned).toHaveLength(MANY + 1);

  await world.sql`DELETE FROM rooms WHERE code > 'r3'`;
  await world.sql`DELETE FROM rooms WHERE code NOT IN ('A', 'r1', 'r2')`;
  expect((await world.sync()).run).toMatchObject({ counts: { rooms: { synced: 1, dead: 2, failed: 0 } } });
  const dead = {
    status: 'dead',
    error_code: 'mapping_failed',
    error_message: 'rooms.externalId: column number of the external id is empty',
  };
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced' }, r1: dead, r2: dead });
});

it('a run refuses rows that share an external id with a batch for each portion', async () => {
  const world = await open(byNumber);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'r' || i, 'Room', (i % 2)::text FROM generate_series(1, 2500) AS i`;
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'partial', counts: { rooms: { failed: 2500, synced: 0 } } });
  expect(await world.sql`SELECT cardinality(keys) AS keys FROM slotsync.batches ORDER BY id`).toEqual([
    { keys: 1000 },
    { keys: 1000 },
    { keys: 500 },
  ]);
  expect(await world.statusesOf('rooms')).toMatchObject({ r1: 'failed', r2500: 'failed' });
});

it.each([
  [2, ['a', 'b'], 'a', 'b'],
  [2, ['a', 'b'], 'b', 'a'],
  [7, ['a', 'b', 'c', 'd', 'e', 'f'], 'a', 'b, c, d, e, f and 1 more row'],
  [6, ['a', 'b', 'c', 'd', 'e', 'f'], 'c', 'a, b, d, e, f'],
  [60_000, ['a', 'b', 'c', 'd', 'e', 'f'], 'z', 'a, b, c, d, e and 59994 more rows'],
])(
  'of %i rows that share an external id, with the keys %j, the message of %s names %s',
  (count, keys, key, others) => {
    const row = {
      operation: 'refuse',
      key,
      hash: '1',
      sharedId: 0,
      isSettled: false,
      decision: 'create',
    } as const;
    expect(explainRefusal(row, [{ externalId: 'x', count, keys }]).message).toBe(
      `external id 'x' is also that of ${others}`,
    );
  },
);

it('rows that share an external id are refused in the part of a run, if they would be sent', async () => {
  const world = await open(byNumber);
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '2')`;
  await world.sync();
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('C', 'c', '1'), ('D', 'd', '2')`;
  const { sink, refused, planned } = watch();
  const range = { where: "number = '1'" };
  await planStream(world.deps(), world.stream('rooms'), { ...WHOLE, kind: 'backfill', range }, sink);
  expect(planned).toEqual([]);
  expect(refused.flat().map(({ key }) => key)).toEqual(['C']);
  // A run over the whole stream reports what was accepted, too.
  const whole = watch();
  await planStream(world.deps(), world.stream('rooms'), WHOLE, whole.sink);
  expect(whole.refused.flat().map(({ key }) => key)).toEqual(['A', 'B', 'C', 'D']);
});
