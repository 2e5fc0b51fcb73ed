// Guarantees 6, 7
// Rows that change only their key: they are neither retired nor created, and no limit holds them.
import { describe, expect, it } from 'vitest';
import { planStream } from '../../src/sync/plan/plan-stream.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { keepRooms, ROOMS, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const NOTHING = { count: 0, percent: 0 };
const STRICT = { create: NOTHING, retire: NOTHING };
const byNumber = (changes: Parameters<typeof rooms>[0] = {}) =>
  rooms({ externalId: 'room_{number}', retire: 'deactivate', limits: STRICT, ...changes });

/** Opens a world in which twenty rooms are synced: `k1` with the number `1`, and so on. */
async function openSynced(config: SlotsyncConfig): Promise<RoomWorld> {
  const world = await open(config);
  await world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'k' || i, 'Room ' || i, i::text FROM generate_series(1, 20) AS i`;
  await world.sync();
  world.sandbox.clearArrivals();
  return world;
}
const giveNewKeys = ({ sql }: RoomWorld, count: number) =>
  sql`UPDATE rooms SET code = 'new' || number WHERE number::int <= ${count}`;
const keysOf = async (world: RoomWorld, stream = 'rooms') => Object.keys(await world.statusesOf(stream));

describe('rows that get new keys', () => {
  it('are moved while creates are held, without a deactivation, and their former records go', async () => {
    const world = await openSynced(byNumber());
    await giveNewKeys(world, 6);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('other', 'Room', '99')`;
    const counts = { create: 1, retire: 0, moved: 6, unchanged: 14 };
    const preview = await world.preview();
    expect(preview).toMatchObject({ counts, holds: { create: { count: 1 } } });
    const sampled = preview.samples.map(({ operation }) => operation);
    expect(sampled.toSorted()).toEqual(['create', 'move', 'move', 'move', 'move', 'move']);
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', plan: { rooms: counts } });
    expect(run.holds).toEqual({ rooms: { create: expect.objectContaining({ count: 1 }) } });
    expect(world.inactiveIds()).toEqual([]);
    const keys = await keysOf(world);
    expect(keys).toHaveLength(20);
    expect(keys).toContain('new6');
    expect(keys).not.toContain('k6');
    await world.remove('other');
    expect((await world.sync()).run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { create: 0, retire: 0, moved: 0, unchanged: 20 } },
    });
  });

  it('are moved by changes of the former key, or of both keys', async () => {
    const world = await openSynced(byNumber());
    await giveNewKeys(world, 1);
    expect((await world.send('rooms', 'k1', 'new1')).run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { create: 0, retire: 0, moved: 1 } },
    });
    expect(world.inactiveIds()).toEqual([]);
    expect(await keysOf(world)).not.toContain('k1');
    // By a change of only the former key the record stays until the next sync.
    await giveNewKeys(world, 2);
    expect((await world.send('rooms', 'k2')).run).toMatchObject({
      plan: { rooms: { create: 0, retire: 0, moved: 1 } },
    });
    expect(world.inactiveIds()).toEqual([]);
    await world.sync();
    expect(world.inactiveIds()).toEqual([]);
    expect(await keysOf(world)).not.toContain('k2');
  });

  it('are not held in a stream that retires nothing', async () => {
    const world = await openSynced(byNumber({ retire: 'keep' }));
    await giveNewKeys(world, 6);
    // A record in doubt counts once, too.
    await world.sql`UPDATE slotsync.records SET in_doubt = true WHERE local_key = 'k1'`;
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { create: 0, moved: 6, unchanged: 14 } },
    });
    const keys = await keysOf(world);
    expect(keys).toHaveLength(20);
    expect(keys).toContain('new6');
  });
});

describe('a stream that gets another key column', () => {
  it.each([
    ['that the external id is made of', 'code', 'number'],
    ['that the external id is not made of', 'number', 'code'],
  ])('sends nothing and holds nothing if it is a column %s', async (_, before, after) => {
    const world = await openSynced(byNumber({ key: before }));
    world.configure(byNumber({ key: after }));
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { create: 0, retire: 0, moved: 20 } },
      holds: {},
    });
    expect(world.writes()).toEqual([]);
    expect(await keysOf(world)).toHaveLength(20);
    expect(Object.values(await world.recordsOf('rooms'))).toMatchObject(
      Array.from({ length: 20 }, () => ({ status: 'synced', claimed_by: null })),
    );
    expect((await world.sync()).run).toMatchObject({ plan: { rooms: { unchanged: 20, moved: 0 } } });
  });
});

describe('rows with new keys and new values', () => {
  const limited = byNumber({ limits: { ...STRICT, update: { count: 5, percent: 10 } } });

  it('are held as updates beyond the limit, while rows with equal objects are moved', async () => {
    const world = await openSynced(limited);
    await giveNewKeys(world, 20);
    await world.sql`UPDATE rooms SET name = 'other ' || name WHERE number::int <= 12`;
    const counts = { create: 0, update: 12, retire: 0, moved: 8 };
    const preview = await world.preview();
    expect(preview).toMatchObject({ counts, holds: { update: { count: 12 } } });
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'held',
      plan: { rooms: counts },
      holds: { rooms: { update: { count: 12 } } },
    });
    expect(world.writes()).toEqual([]);
    expect(world.nameOf('1')).toBe('Room 1');
    expect(await keysOf(world)).toContain('k1');
    expect(await keysOf(world)).not.toContain('k13');
    expect((await world.approve(run.id)).run).toMatchObject({ status: 'succeeded' });
    expect(world.nameOf('1')).toBe('other Room 1');
    expect(world.inactiveIds()).toEqual([]);
    expect((await keysOf(world)).filter((key) => key.startsWith('new'))).toHaveLength(20);
    expect((await world.sync()).run).toMatchObject({ plan: { rooms: { unchanged: 20, moved: 0 } } });
  });

  it('count as updates in incremental runs, within a day', async () => {
    const world = await openSynced(limited);
    await giveNewKeys(world, 10);
    await world.sql`UPDATE rooms SET name = 'other ' || name WHERE number::int <= 10`;
    const keysUpTo = (from: number, to: number) =>
      Array.from({ length: to - from + 1 }, (_, at) => [`k${from + at}`, `new${from + at}`]).flat();
    expect((await world.send('rooms', ...keysUpTo(1, 5))).run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { update: 5, moved: 0 } },
    });
    expect((await world.send('rooms', ...keysUpTo(6, 10))).run).toMatchObject({
      status: 'held',
      holds: { rooms: { update: { count: 5 } } },
    });
    expect(world.nameOf('6')).toBe('Room 6');
    expect(world.inactiveIds()).toEqual([]);
  });

  it('are no updates because the rows that they refer to have new keys', async () => {
    const halls = {
      ...ROOMS,
      from: 'halls',
      key: 'id',
      externalId: 'hall_{number}',
      fields: { 'room.name': 'name' },
      references: { 'room.parent': { stream: 'rooms', key: 'room' } },
      limits: { ...STRICT, update: { count: 0, percent: 0 } },
    };
    const { streams } = byNumber();
    const world = await open({ streams: { ...streams, halls } });
    await world.sql`CREATE TABLE halls (id text PRIMARY KEY, name text, number text, room text)`;
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k1', 'One', '1')`;
    await world.sql`INSERT INTO halls VALUES ('h1', 'Hall', '7', 'k1')`;
    await world.sync();
    await world.sql`UPDATE rooms SET code = 'new1'`;
    await world.sql`UPDATE halls SET id = 'new7', room = 'new1'`;
    world.sandbox.clearArrivals();
    expect((await world.sync()).run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { moved: 1 }, halls: { create: 0, update: 0, moved: 1 } },
    });
    expect(world.writes()).toEqual([]);
  });
});

it('a row that goes to another stream with the same template is neither retired nor created', async () => {
  const halls = {
    ...ROOMS,
    from: 'courses',
    externalId: 'room_{room}',
    fields: { 'room.name': 'name' },
    limits: STRICT,
  };
  const world = await open({
    streams: {
      rooms: { ...ROOMS, externalId: 'room_{number}', retire: 'deactivate', limits: STRICT },
      halls,
    },
  });
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k1', 'One', '1'), ('k2', 'Two', '2')`;
  await world.sql`INSERT INTO courses (code, name, room) VALUES ('h9', 'Nine', '9')`;
  await world.sync();
  await world.remove('k1');
  await world.sql`INSERT INTO courses (code, name, room) VALUES ('h1', 'One', '1')`;
  const { run } = await world.sync();
  expect(run).toMatchObject({
    status: 'succeeded',
    plan: { rooms: { retire: 0, moved: 1 }, halls: { create: 0, moved: 1 } },
    holds: {},
  });
  expect(world.inactiveIds()).toEqual([]);
  expect([await keysOf(world), await keysOf(world, 'halls')]).toEqual([['k2'], ['h1', 'h9']]);
});

it('a stream whose external id follows from the key does not ask the mirror for moved rows', async () => {
  const world = await openSynced(rooms({ retire: 'deactivate' }));
  await world.remove('k1', 'k2');
  const asked: string[][] = [];
  const { mirror, ...deps } = world.deps();
  const findKeysByExternalId: typeof mirror.findKeysByExternalId = (declared, ids) => {
    asked.push([...ids]);
    return mirror.findKeysByExternalId(declared, ids);
  };
  const { counts } = await planStream(
    { ...deps, mirror: { ...mirror, findKeysByExternalId } },
    world.stream('rooms'),
    { kind: 'sync', range: null, room: { records: Infinity }, context: { lane: 'sync' } },
    { addBatch: async () => undefined, refuse: async () => undefined },
  );
  expect(counts).toMatchObject({ retire: 2, moved: 0 });
  expect(asked).toEqual([]);
});

/** A type whose cast to text differs from what it prints: `10.0.0.1/32` and `10.0.0.1`. */
const host = { from: 'hosts', type: 'host', externalId: 'host_{address}', fields: { 'host.name': 'name' } };

it('rows with an inet column that are loaded again under new keys keep their objects', async () => {
  const limits = { retire: { count: 100, percent: 100 }, create: NOTHING };
  const world = await open({
    streams: { hosts: { ...host, key: 'id', retire: 'deactivate', limits } },
  });
  await world.sql`CREATE TABLE hosts AS
    SELECT i AS id, ('10.0.0.' || i)::inet AS address, 'Host ' || i AS name FROM generate_series(1, 12) AS i`;
  await world.sync();
  await world.sql`UPDATE hosts SET id = id + 100`;
  expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
  expect(world.sandbox.objects().filter(({ active }) => !active)).toEqual([]);
  expect(await world.statusesOf('hosts')).toMatchObject({ 101: 'synced', 112: 'synced' });
  await world.expectNothingToSend();
});

it('references to an inet key arrive', async () => {
  const world = await open({
    streams: {
      hosts: { ...host, key: 'address', externalId: 'host_{name}' },
      ports: {
        from: 'ports',
        key: ['address', 'port'],
        type: 'port',
        externalId: 'port_{address}_{port}',
        fields: {},
        references: { 'port.host': { stream: 'hosts', key: 'address' } },
      },
    },
  });
  await world.sql`CREATE TABLE hosts AS SELECT '10.0.0.1'::inet AS address, 'a' AS name`;
  await world.sql`CREATE TABLE ports AS SELECT '10.0.0.1'::inet AS address, 80 AS port`;
  await world.sync();
  expect(await world.statusesOf('ports')).toEqual({ '10.0.0.1|80': 'synced' });
  expect(world.fieldsOf('port_10.0.0.1_80')).toEqual({ 'port.host': 'host_a' });
});
