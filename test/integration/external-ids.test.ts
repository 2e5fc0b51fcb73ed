// External ids that two records share, that change, or that another record owns.
import { describe, expect, it } from 'vitest';
import { readBatch } from '../../src/state/runs/batches.js';
import { COURSES } from '../support/campus.js';
import { ROOMS, addRooms, keepRoomWorlds, rooms, roomsAndCourses } from '../support/room-worlds.js';

const open = keepRoomWorlds();

describe('an external id', () => {
  const byNumber = rooms({ externalId: 'room_{number}' });

  it('is sent for neither of two rows that share it, until the rows are corrected', async () => {
    const world = await open(byNumber);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('B', 'b', '1'), ('C', 'c', '2')`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'partial', counts: { rooms: { synced: 1, failed: 2 } } });
    expect([world.metered('rooms', 'synced'), world.metered('rooms', 'failed')]).toEqual([1, 2]);
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_2']);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringMatching(/room_1.*B/),
      },
      B: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringMatching(/room_1.*A/),
      },
    });
    await world.sql`UPDATE rooms SET number = '3' WHERE code = 'B'`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['room_2', 'room_1', 'room_3']);
  });

  it('belongs to the first of two streams that share it, and the other record names its owner', async () => {
    const shared = {
      streams: { ...roomsAndCourses().streams, courses: { ...COURSES, externalId: 'room_{code}' } },
    };
    const world = await open(shared);
    await addRooms(world, 'A');
    await world.sql`INSERT INTO courses VALUES ('A', 'One', 'A'), ('B', 'Two', 'A')`;
    await world.sync();
    expect(await world.recordsOf('courses')).toMatchObject({
      A: {
        status: 'failed',
        error_code: 'external_id_shared',
        error_message: expect.stringContaining("rooms 'A'"),
      },
      B: { status: 'synced' },
    });
    expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'room' });
  });

  it.each([
    ['its key', 'room_{code}'],
    ['another column', 'room_{number}'],
  ])('is sent for only one of two streams that create it at once, from %s', async (_, externalId) => {
    const world = await open({
      streams: { rooms: { ...ROOMS, externalId }, halls: { ...ROOMS, externalId } },
    });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    const { queue, runId } = await world.plan();
    expect(queue).toHaveLength(2);
    world.sandbox.setLatency(100);
    await Promise.allSettled(queue.map((id) => world.apply(id)));
    // The first leaves the object to the other, and finds out when it is sent.
    const batches = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    const left = batches.flatMap((batch) => (batch?.state === 'queued' ? [batch.id] : []));
    await world.finish(runId, left);
    expect(world.writes().length).toBeLessThanOrEqual(1);
    const records = [
      ...Object.values(await world.recordsOf('rooms')),
      ...Object.values(await world.recordsOf('halls')),
    ];
    const others = records.filter(({ status }) => status !== 'synced');
    expect(others.length).toBeGreaterThanOrEqual(1);
    for (const other of others)
      expect(other).toMatchObject({ status: 'failed', error_code: 'external_id_shared' });
  });

  it('replaces the former external id if it changes before anything was accepted', async () => {
    const world = await open(rooms({ externalId: 'hall_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 503, times: 4 });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'failed', external_id: 'hall_1' } });
    await world.sql`UPDATE slotsync.records SET in_doubt = false, check_after = NULL`;
    world.configure(byNumber);
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', external_id: 'room_1' } });
  });
});
