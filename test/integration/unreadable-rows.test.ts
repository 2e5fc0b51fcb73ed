// Guarantee 10
// A row that cannot be read, among changed keys: the plan of their run leaves it to its batch, which fails it alone.
import { expect, it } from 'vitest';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { pushKeys } from '../../src/sync/push-keys.js';
import { addRooms, keepRoomWorlds, nameAtService, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const STRANGE = 'B\t\\é';

/** Rooms through a view that raises an error for rooms named `bad`. */
async function openView(): Promise<World> {
  const world = await open(rooms({ from: 'seen' }));
  await world.sql.unsafe(`
    CREATE FUNCTION check_name(name text) RETURNS text LANGUAGE plpgsql AS $$
      BEGIN IF name = 'bad' THEN RAISE EXCEPTION 'bad'; END IF; RETURN name; END $$;
    CREATE VIEW seen AS SELECT code, check_name(name) AS name, seats FROM rooms`);
  return world;
}

async function pushAndWork(world: World, keys: readonly string[]) {
  await pushKeys(world.deps(), world.stream('rooms'), keys);
  const taken = await takeChanges(world.state.db, ['rooms']);
  if (typeof taken === 'string') throw new Error(taken);
  const { queue } = await world.planRun(taken.runId);
  return world.finish(taken.runId, queue);
}

it('unreadable row: it fails alone, the changed keys beside it arrive, and nothing is retired', async () => {
  const world = await openView();
  const keys = ['A', STRANGE, 'C', 'D', 'Ä'];
  await addRooms(world, ...keys);
  await world.sync();
  await world.sql`UPDATE rooms SET name = CASE WHEN code = ${STRANGE} THEN 'bad' ELSE 'new' END`;
  const { run, errors } = await pushAndWork(world, [...keys, 'A']);
  expect({ errors, status: run.status }).toEqual({ errors: [], status: 'partial' });
  expect(keys.map((key) => nameAtService(world, key))).toEqual([
    'new',
    `Room ${STRANGE}`,
    'new',
    'new',
    'new',
  ]);
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    [STRANGE]: { status: 'failed', error_code: 'mirror_raised' },
    Ä: { status: 'synced' },
  });
  await world.sql`UPDATE rooms SET name = 'good' WHERE code = ${STRANGE}`;
  await pushAndWork(world, [STRANGE]);
  expect(nameAtService(world, STRANGE)).toBe('good');
});
