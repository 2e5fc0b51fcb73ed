// Guarantees 6, 10
// After an external id has changed, the object a record had before is remembered, shown, and retired when an operator
// asks for it.
import { describe, expect, it } from 'vitest';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { keepRoomWorlds, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const BY_NUMBER = rooms({ externalId: 'room_{number}', retire: 'deactivate' });

/** A world with one room, accepted as room_1. */
async function openWithRoom(): Promise<World> {
  const world = await open(BY_NUMBER);
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
  await world.sync();
  return world;
}

const setNumber = (world: World, code: string, number: string) =>
  world.sql`UPDATE rooms SET number = ${number} WHERE code = ${code}`;
const recordOf = async (world: World, key = 'A') => (await world.recordsOf('rooms'))[key];

describe('former object: it', () => {
  it('is remembered from the change on, through the retry and the acceptance of the new one', async () => {
    const world = await openWithRoom();
    expect(await recordOf(world)).toMatchObject({ external_id: 'room_1', former_external_id: null });
    await setNumber(world, 'A', '2');
    await world.sync();
    const former = { former_external_id: 'room_1' };
    expect(await recordOf(world)).toMatchObject({ status: 'dead', external_id: 'room_1', ...former });
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    expect(await recordOf(world)).toMatchObject({ status: 'failed', external_id: null, ...former });
    await world.sync();
    expect(await recordOf(world)).toMatchObject({ status: 'synced', external_id: 'room_2', ...former });
    await world.sql`UPDATE rooms SET name = 'b'`;
    await world.sync();
    expect(await recordOf(world)).toMatchObject({ status: 'synced', external_id: 'room_2', ...former });
  });

  it.each([
    ['before the retry', false],
    ['after the retry', true],
  ])('is no former one any more when the row gives it again, %s', async (_, isRetried) => {
    const world = await openWithRoom();
    await setNumber(world, 'A', '2');
    await world.sync();
    if (isRetried) await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await setNumber(world, 'A', '1');
    await world.sync();
    expect(await recordOf(world)).toMatchObject({
      status: 'synced',
      external_id: 'room_1',
      former_external_id: null,
    });
  });

  it('is no former one any more when the row gives it again after the new one was accepted', async () => {
    const world = await openWithRoom();
    await setNumber(world, 'A', '2');
    await world.sync();
    await retryRecords(world.state.db, { keys: [] });
    await world.sync();
    await setNumber(world, 'A', '1');
    await world.sync();
    const changedBack = { status: 'dead', external_id: 'room_2', former_external_id: 'room_2' };
    expect(await recordOf(world)).toMatchObject(changedBack);
  });
});
