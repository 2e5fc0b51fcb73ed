// A key is not forgotten while a run counts on it, or while a write of it may be on its way to the service.
import { expect, it } from 'vitest';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { readTakenKeys, takeChanges } from '../../src/state/inbox/take-changes.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { keepRooms, rooms, until, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const forget = ({ state }: RoomWorld, localKey: string) => forgetKey(state.db, { stream: 'rooms', localKey });

/** Opens a run whose batch with A is done, and whose batch with B is not. */
async function openHalfDone(): Promise<{ world: RoomWorld; runId: number; rest: number[] }> {
  const world = await open(rooms({ batchSize: 1 }));
  await world.addRooms('A', 'B');
  const { runId, queue } = await world.planChanges('rooms', 'A', 'B');
  const [first = 0, ...rest] = queue;
  await world.apply(first);
  return { world, runId, rest };
}

it('forget refuses a key that a run has sent until the run has ended', async () => {
  const { world, runId, rest } = await openHalfDone();
  expect(await forget(world, 'A')).toEqual({ refused: 'in_run', runId });
  const { run } = await world.finish(runId, rest);
  expect(run).toMatchObject({ status: 'succeeded', errorCode: null });
  expect(await forget(world, 'A')).toMatchObject({ deleted: { records: 1, batches: 1 } });
  expect(await forget(world, 'A')).toBeUndefined();
});

it('forget leaves the unsent changes of a cancelled run to return to the inbox', async () => {
  const { world, runId } = await openHalfDone();
  await forget(world, 'A');
  await world.cancel(runId);
  const changes = await world.sql`SELECT local_key, run_id FROM slotsync.changes`;
  expect(changes).toEqual([{ local_key: 'B', run_id: null }]);
});

it('forget refuses a key while a run is planned that may have read its record', async () => {
  const world = await open(rooms(), { synced: ['A', 'B'] });
  const runId = await world.startRun();
  expect(await forget(world, 'A')).toEqual({ refused: 'in_run', runId });
  await world.cancel(runId);
  await addChanges(world.state.db, 'rooms', ['A']);
  const taken = await takeChanges(world.state.db, ['rooms']);
  if (typeof taken === 'string') throw new Error(taken);
  expect(await readTakenKeys(world.state.db, taken.runId, 'rooms')).toEqual(['A']);
  expect(await forget(world, 'A')).toEqual({ refused: 'in_run', runId: taken.runId });
  expect(await forget(world, 'B')).toMatchObject({ deleted: { records: 1 } });
});

it('forget refuses a key while a cancelled batch writes its record', async () => {
  const world = await open(rooms());
  await world.addRooms('A');
  const { runId, queue } = await world.plan();
  world.sandbox.closeGate({ method: 'PUT' });
  const applying = world.apply(queue[0] ?? 0);
  await until(() => world.sandbox.gate().held, { describe: 'the write' });
  await world.cancel(runId);
  expect(await forget(world, 'A')).toEqual({ refused: 'claimed' });
  world.sandbox.openGate();
  await applying;
  expect(await forget(world, 'A')).toMatchObject({ deleted: { records: 1 }, externalIds: ['room_A'] });
});

it('forget refuses a key while a batch writes the object of its row for another key', async () => {
  const world = await open(rooms({ key: 'number', externalId: 'room_{code}', from: 'shared' }));
  const { sql } = world;
  await sql`CREATE TABLE shared AS SELECT 'A' AS code, 'Room A' AS name, 1 AS seats, '1' AS number`;
  await world.sync();
  await sql`INSERT INTO shared VALUES ('A', 'Room A', 1, '2')`;
  await world.sync();
  expect(await world.recordsOf('rooms')).toMatchObject({ 2: { error_code: 'external_id_shared' } });
  await sql`DELETE FROM shared WHERE number = '2'`;
  await sql`UPDATE shared SET name = 'new'`;
  const { runId, queue } = await world.planBatches('rooms', [['1']]);
  world.sandbox.closeGate({ method: 'PUT' });
  const finishing = world.finish(runId, queue);
  await until(() => world.sandbox.gate().held, { describe: 'the write' });
  expect(await forget(world, '2')).toEqual({ refused: 'claimed' });
  world.sandbox.openGate();
  await finishing;
  expect(await forget(world, '2')).toMatchObject({ deleted: { records: 1 } });
});
