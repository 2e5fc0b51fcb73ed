// Guarantee 10
// An object too large to read at the service: it stops only its own record.
import { expect, it } from 'vitest';
import { addRooms, keepRoomWorlds, nameAtService, rename, rooms } from '../support/room-worlds.js';

const open = keepRoomWorlds();
/** An answer with more values than the client parses. */
const TOO_LARGE = { results: [], more: Array.from({ length: 4_000_001 }, () => 0) };

it('an object too large to read fails, is not overwritten, and does not stop its batch', async () => {
  const world = await open(rooms());
  await addRooms(world, 'A', 'B', 'C');
  world.sandbox.putObject({ extId: 'room_B', typeId: 'room', fields: [] });
  world.sandbox.failNext({
    path: '/objects/find',
    extId: 'room_B',
    fault: 'status',
    status: 200,
    body: TOO_LARGE,
    times: 'always',
  });
  expect((await world.sync()).run.status).toBe('partial');
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: {
      status: 'failed',
      error_code: 'answer_too_large',
      error_message: "POST /v1/objects/find: the answer is too large: it is for a single name: 'room_B'",
    },
    C: { status: 'synced' },
  });
  expect(['A', 'B', 'C'].map((code) => nameAtService(world, code))).toEqual(['Room A', undefined, 'Room C']);

  world.sandbox.clearFailures();
  await rename(world, 'A', 'new');
  await world.sync();
  expect(['A', 'B'].map((code) => nameAtService(world, code))).toEqual(['new', 'Room B']);
});

it('an object too large to read is not created again where its row may match another object', async () => {
  const world = await open(rooms({ match: ['room.name'] }));
  await addRooms(world, 'A', 'B');
  world.sandbox.putObject({ extId: 'room_B', typeId: 'room', fields: [] });
  world.sandbox.putObject({
    extId: 'other',
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: ['Room B'] }],
  });
  world.sandbox.failNext({
    path: '/objects/find',
    extId: 'room_B',
    fault: 'status',
    status: 200,
    body: TOO_LARGE,
    times: 'always',
  });
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: { status: 'failed', error_code: 'answer_too_large' },
  });
  expect(await world.sql`SELECT FROM slotsync.links`).toHaveLength(0);
  expect(world.sandbox.objects()).toHaveLength(3);
});
