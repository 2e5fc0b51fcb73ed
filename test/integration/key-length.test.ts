// Guarantee 10
// Keys and external ids too long for an index: each such row has its reason, and all other rows are sent.
import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { createPoll } from '../../src/sync/detect/poll-cursor.js';
import { findUnknownKeys } from '../../src/sync/identity/read-keys.js';
import { pushKeys } from '../../src/sync/operator/push-keys.js';
import { keepRooms, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

/** A random text, which no compression makes short enough for an index. */
const LONG = randomBytes(2400).toString('hex');
const SHORT = `${LONG.slice(0, 64)}~sha256:${createHash('sha256').update(LONG).digest('hex')}`;
const addRoom = ({ sql }: RoomWorld, code: string, name = 'Room', number: string | null = null) =>
  sql`INSERT INTO rooms (code, name, number) VALUES (${code}, ${name}, ${number})`;
const EMOJI = `å${'😀'.repeat(300)}`;
/** Opens a world without the index on the code, which could not hold the key. */
async function openWithLongKeys(...config: Parameters<typeof open>) {
  const world = await open(...config);
  await world.sql`ALTER TABLE rooms DROP CONSTRAINT rooms_pkey`;
  return world;
}
const stateOf = (world: RoomWorld) => world.sql`SELECT * FROM slotsync.records ORDER BY local_key`;

describe('a key of 4 800 random characters', () => {
  it('is given up with its reason, while all other rows are sent, until its row changes or goes', async () => {
    const world = await openWithLongKeys(rooms());
    for (const code of ['A', LONG, 'z']) await addRoom(world, code);
    expect(await world.preview()).toMatchObject({
      counts: { create: 2, dead: 1 },
      refused: 1,
      refusals: [{ key: SHORT, code: 'key_too_long', message: 'its key is longer than 1024 bytes' }],
    });
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({
      status: 'partial',
      plan: { rooms: { create: 2, dead: 1 } },
      counts: { rooms: { synced: 2, dead: 1 } },
    });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', [SHORT]: 'dead', z: 'synced' });
    expect(await world.recordOf(SHORT)).toMatchObject({ error_code: 'key_too_long' });
    expect(world.ids()).toEqual(['room_A', 'room_z']);
    // The next plan counts it, and sends nothing.
    const before = await stateOf(world);
    world.sandbox.clearArrivals();
    expect((await world.preview()).requests).toBe(0);
    expect((await world.sync()).run).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { unchanged: 2, dead: 1, create: 0 } },
    });
    expect(await stateOf(world)).toEqual(before);
    await world.sql`UPDATE rooms SET name = 'Hall' WHERE code = ${LONG}`;
    expect((await world.sync()).run).toMatchObject({ status: 'partial', counts: { rooms: { dead: 1 } } });
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.writes()).toEqual([]);
    await world.remove(LONG);
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', z: 'synced' });
  });

  it('is given up again after a retry, which then is not wished for any more', async () => {
    const world = await openWithLongKeys(rooms());
    await addRoom(world, LONG);
    await world.sync();
    await world.retry();
    expect(await stateOf(world)).toMatchObject([{ status: 'failed', resend: 'retry' }]);
    await world.sync();
    expect(await stateOf(world)).toMatchObject([{ status: 'dead', resend: null, attempts: 2 }]);
  });

  it('is found through the inbox by its name in the state, and stays dead', async () => {
    const world = await openWithLongKeys(rooms());
    for (const code of ['A', LONG, EMOJI]) await addRoom(world, code);
    expect(await findUnknownKeys(world.deps(), world.stream('rooms'), [LONG, EMOJI, 'x'])).toEqual(['x']);
    expect(await pushKeys(world.deps(), world.stream('rooms'), [LONG, 'A'])).toEqual({
      pushed: [SHORT, 'A'],
      unknown: [],
    });
    const taken = await takeChanges(world.state.db, ['rooms']);
    const { run } = await world.work(typeof taken === 'string' ? 0 : taken.runId);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1, dead: 1 } } });
    expect((await world.send('rooms', SHORT)).run.status).toBe('succeeded');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', [SHORT]: 'dead' });
  });

  it('is left to the next sync by polling, and does not hold back the watermark', async () => {
    const config = rooms({ cursor: 'seats' });
    const world = await openWithLongKeys(config);
    await addRoom(world, 'A');
    await world.sync();
    await world.sql`INSERT INTO rooms (code, name, seats) VALUES (${LONG}, 'Room', 2)`;
    const poll = createPoll(
      { ...world.deps(), polling: { overlapSeconds: 0, lagSeconds: 0 } },
      world.stream('rooms'),
    );
    expect(await poll()).toMatchObject({ rows: 1, put: 0 });
    await world.sync();
    expect(await poll()).toMatchObject({ put: 0 });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', [SHORT]: 'dead' });
  });

  it('is given up alone if it has several columns', async () => {
    const world = await openWithLongKeys(
      rooms({ key: ['code', 'number'], externalId: 'room_{code}_{number}' }),
    );
    await addRoom(world, 'A|B', 'Room', String.raw`1\2`);
    await addRoom(world, LONG, 'Room', '1');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ [String.raw`A\|B|1\\2`]: { status: 'synced' } });
    expect(Object.values(await world.statusesOf('rooms')).toSorted()).toEqual(['dead', 'synced']);
  });
});

it('a key of up to 1 024 bytes is sent, and a longer one is given up', async () => {
  const world = await openWithLongKeys(rooms({ externalId: 'room_{number}' }));
  for (const [at, code] of ['a'.repeat(1024), 'å'.repeat(1024), 'å'.repeat(512)].entries())
    await addRoom(world, code, 'Room', String(at));
  await world.sync();
  expect(world.ids().toSorted()).toEqual(['room_0', 'room_2']);
  expect(Object.values(await world.statusesOf('rooms')).toSorted()).toEqual(['dead', 'synced', 'synced']);
});

describe('an external id of 4 800 random characters', () => {
  it('is given up with its reason, while all other rows are sent, and is not sent again', async () => {
    const world = await open(rooms({ externalId: 'room_{number}' }));
    await addRoom(world, 'A', 'Room', '1');
    await addRoom(world, 'B', 'Room', LONG);
    // Two of them do not count as shared: the reason of each is its own.
    await addRoom(world, 'C', 'Room', LONG);
    const { run, errors } = await world.sync();
    expect(errors).toEqual([]);
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1, dead: 2 } } });
    const dead = { status: 'dead', error_code: 'external_id_too_long', external_id: null };
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced' }, B: dead, C: dead });
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded', plan: { rooms: { dead: 2 } } });
    await world.sql`UPDATE rooms SET number = code`;
    await world.sql`UPDATE rooms SET number = '1' WHERE code = 'A'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
  });

  it('made of the key is not noted with its record', async () => {
    const world = await open(rooms({ externalId: `${'r'.repeat(100)}{code}` }));
    await addRoom(world, 'k'.repeat(1000));
    await world.sync();
    expect(Object.values(await world.recordsOf('rooms'))).toMatchObject([
      { status: 'dead', error_code: 'external_id_too_long', external_id: null },
    ]);
  });
});

it('a reference to a key of 4 800 random characters is given up, while all other rows are sent', async () => {
  const world = await open(roomsAndCourses());
  await addRoom(world, 'A');
  await world.sql`INSERT INTO courses VALUES ('c1', 'One', 'A'), ('c2', 'Two', ${LONG})`;
  await world.sync();
  expect(await world.recordsOf('courses')).toMatchObject({
    c1: { status: 'synced' },
    c2: {
      status: 'dead',
      error_code: 'key_too_long',
      error_message: "courses.references['course.room']: the key is longer than 1024 bytes",
    },
  });
});
