// Dead records: the events that have a given-up record sent again.
import { describe, expect, it } from 'vitest';
import { retryRecords } from '../../src/state/records/retry-records.js';
import {
  addRooms,
  expectInSync,
  expectNothingToSend,
  keepRoomWorlds,
  rename,
  rooms,
} from '../support/room-worlds.js';

const open = keepRoomWorlds();

describe('a dead record', () => {
  const broken = rooms({
    fields: {
      'room.name': (row) => {
        if (row.name === 'bad') throw new Error('this name cannot be mapped');
        return row.name;
      },
    },
  });

  it('is sent again when its row changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    await rename(world, 'A', 'good');
    await world.sync();
    await expectInSync(world);
  });

  it('is sent again when the mapping changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    world.configure(rooms({ fields: { 'room.name': 'name' } }));
    await world.sync();
    await expectInSync(world);
  });

  it('is sent again by a retry, and not by a sync alone', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    world.sandbox.refuseObject('room_A', { status: 400, message: 'no' });
    await world.sync();
    world.sandbox.allowObject('room_A');
    await expectNothingToSend(world);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'dead', B: 'synced' });
    expect(await retryRecords(world.state.db, { stream: 'rooms', keys: ['A', 'unknown'] })).toEqual([
      { stream: 'rooms', localKey: 'A', code: 'refused_400' },
    ]);
    await world.sync();
    await expectInSync(world);
  });
});
