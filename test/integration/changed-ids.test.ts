// A plan and a check of rows foresee the outcome of a sync for external ids: changed ids, ids of another stream's row,
// and objects that change hands.
import { expect, it } from 'vitest';
import { checkRows } from '../../src/sync/operator/check-rows.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { ROOMS, keepRoomWorlds } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

/** Opens four rooms, `k1` with the number 1 and so on, and two labs whose template may make the ids of rooms. */
async function openSynced(): Promise<World> {
  const byNumber = { ...ROOMS, externalId: 'room_{number}', fields: { 'room.name': 'name' } };
  const world = await open({ streams: { rooms: byNumber, labs: { ...byNumber, from: 'labs' } } });
  await world.sql`CREATE TABLE labs (code text PRIMARY KEY, name text, number text)`;
  await world.sql`INSERT INTO rooms (code, name, number) SELECT 'k' || i, 'Room ' || i, i::text FROM generate_series(1, 4) AS i`;
  await world.sql`INSERT INTO labs VALUES ('l1', 'Lab 1', '11'), ('l2', 'Lab 2', '12')`;
  await world.sync();
  return world;
}
const preview = (world: World, stream = 'rooms', each?: Parameters<typeof previewStream>[2]) =>
  previewStream(world.deps(), world.stream(stream), each);
const faultsOf = async (world: World, stream: string) =>
  (await checkRows(world.deps(), world.stream(stream))).faults;
const codesOf = async (world: World, stream: string) =>
  Object.fromEntries(
    Object.entries(await world.recordsOf(stream)).map(([key, { error_code: code }]) => [key, code]),
  );

it('a plan foresees that a changed external id is refused', async () => {
  const world = await openSynced();
  await world.sql`UPDATE rooms SET number = '1x' WHERE code = 'k1'`;
  await world.sql`UPDATE rooms SET name = 'New name' WHERE code = 'k2'`;
  const message = "the service knows this record as 'room_1', but its row now has 'room_1x'";
  const planned = await preview(world);
  expect(planned).toMatchObject({ refused: 1, refusals: [{ key: 'k1', message }], handovers: [] });
  expect(planned.samples.map(({ key }) => key)).toEqual(['k2']);
  const listed: unknown[] = [];
  await preview(world, 'rooms', { each: async (some) => void listed.push(...some) });
  expect(listed).toMatchObject([
    { key: 'k1', problem: message },
    { key: 'k2', problem: undefined },
  ]);
  expect(await faultsOf(world, 'rooms')).toEqual([
    { reason: 'rooms.externalId: it is another one than the service accepted', count: 1, keys: ['k1'] },
  ]);
  await world.sync();
  expect(await codesOf(world, 'rooms')).toMatchObject({ k1: 'external_id_changed', k2: null });
});

it('a plan foresees the refusal of an external id that a row of another stream has', async () => {
  const world = await openSynced();
  await world.sql`INSERT INTO labs VALUES ('l3', 'Lab 3', '3'), ('l9', 'Lab 9', '99')`;
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k9', 'Room 9', '99')`;
  const first = 'only the row that is sent first will be accepted';
  expect((await preview(world, 'labs')).refusals).toEqual([
    { key: 'l3', code: 'external_id_shared', message: "external id 'room_3' is also that of rooms 'k3'" },
    {
      key: 'l9',
      code: 'external_id_shared',
      message: `external id 'room_99' is also that of rooms 'k9'; ${first}`,
    },
  ]);
  expect((await preview(world)).refusals).toEqual([
    {
      key: 'k9',
      code: 'external_id_shared',
      message: `external id 'room_99' is also that of labs 'l9'; ${first}`,
    },
  ]);
  const shared = 'labs.externalId: a row of another stream has it, too';
  expect(await faultsOf(world, 'labs')).toEqual([{ reason: shared, count: 2, keys: ['l3', 'l9'] }]);
  await world.sync();
  expect(await codesOf(world, 'labs')).toMatchObject({ l3: 'external_id_shared' });
});

it('a plan foresees swapped codes as updates whose objects change hands', async () => {
  const world = await openSynced();
  await world.sql`UPDATE rooms SET number = (3 - number::int)::text WHERE code IN ('k1', 'k2')`;
  const planned = await preview(world);
  expect(planned).toMatchObject({ counts: { update: 2 }, refused: 0, handedOver: 2 });
  expect(planned.handovers).toMatchObject([
    { externalId: 'room_2', from: { localKey: 'k2' }, to: 'k1' },
    { externalId: 'room_1', from: { localKey: 'k1' }, to: 'k2' },
  ]);
  expect(await faultsOf(world, 'rooms')).toEqual([]);
  const { run } = await world.sync();
  expect(run.status).toBe('succeeded');
  expect(world.fieldsOf('room_2')?.['room.name']).toBe('Room 1');
});
