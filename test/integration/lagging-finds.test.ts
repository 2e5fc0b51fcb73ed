// Guarantees 2, 4, 6
// A find that lags some seconds behind a write: its result does not outweigh what the service accepted a moment ago. A create
// replaces no object of another type.
import { describe, expect, it } from 'vitest';
import type { ApplyDeps } from '../../src/sync/apply/apply-batch.js';
import { addRooms, keepRoomWorlds, nameAtService, rename, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();

/** Replaces the finds of the service, which may lag a minute. */
function lagging(world: World, findObjects: ApplyDeps['destination']['findObjects']): ApplyDeps {
  const deps = world.deps();
  return { ...deps, destination: { ...deps.destination, findLagSeconds: 60, findObjects } };
}

describe('a record accepted before a lagging find', () => {
  it('is written when its row is as before, although a find still shows the former object', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    const before = await world.destination.findObjects(['room_A'], 'room', { lane: 'sync' });
    await rename(world, 'A', 'Aula');
    await world.sync();
    await rename(world, 'A', 'Room A');
    const { runId, queue } = await world.plan();
    await world.apply(
      queue[0] ?? 0,
      undefined,
      lagging(world, async () => before),
    );
    await world.finish(runId, []);
    expect(nameAtService(world, 'A')).toBe('Room A');
  });

  it('is retired when its row is gone, although a find does not show its object yet', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    const { runId, queue } = await world.plan();
    // Ten of the sixty seconds are left to wait.
    await world.sql`UPDATE slotsync.records SET synced_at = now() - interval '50 seconds'`;
    let asked = 0;
    const find: ApplyDeps['destination']['findObjects'] = async (...given) =>
      asked++ === 0 ? new Map() : world.destination.findObjects(...given);
    await world.apply(queue[0] ?? 0, undefined, lagging(world, find));
    await world.finish(runId, []);
    expect(world.sandbox.object('room_A')).toMatchObject({ active: false });
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced' });
  });
});

describe('a create of a whole object', () => {
  it('does not replace an object of another type, and its record names the reason', async () => {
    const world = await open(rooms({ owns: 'object' }));
    await addRooms(world, 'A', 'B');
    const fields = [{ fieldId: 'person.name', values: ['Ada'] }];
    world.sandbox.addObject({ extId: 'room_A', typeId: 'person', active: true, fields });
    await world.sync();
    expect(world.sandbox.object('room_A')).toMatchObject({ typeId: 'person', fields });
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_code: 'external_id_taken' },
      B: { status: 'synced' },
    });
  });
});
