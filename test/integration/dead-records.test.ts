// Dead records: why a record is not sent, and what makes it go again.
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

describe('dead record: it', () => {
  const broken = rooms({
    fields: {
      'room.name': (row) => {
        if (row.name === 'bad') throw new Error('this name cannot be mapped');
        return row.name;
      },
    },
  });

  it('is given up with the message of the mapping, and the others go', async () => {
    const world = await open(broken);
    await addRooms(world, 'A', 'B');
    await rename(world, 'A', 'bad');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'dead',
        error_code: 'mapping_failed',
        error_message: "rooms.fields['room.name']: this name cannot be mapped",
      },
      B: { status: 'synced' },
    });
  });

  it('goes when its row changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    await rename(world, 'A', 'good');
    await world.sync();
    await expectInSync(world);
  });

  it('goes when the mapping changes', async () => {
    const world = await open(broken);
    await addRooms(world, 'A');
    await rename(world, 'A', 'bad');
    await world.sync();
    world.configure(rooms({ fields: { 'room.name': 'name' } }));
    await world.sync();
    await expectInSync(world);
  });

  it('goes when it is retried, and not of itself', async () => {
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

  it('that names a column that is not there says so', async () => {
    const world = await open(rooms({ fields: { 'room.name': (row) => row.title } }));
    await addRooms(world, 'A');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_message: expect.stringContaining('there is no column title') },
    });
  });
});
