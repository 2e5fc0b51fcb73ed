// A batch may hold the objects of many requests. Once its run is cancelled or paused, its unsent objects are not sent.
import { expect, it } from 'vitest';
import { readBatch } from '../../src/state/runs/batches.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { setPaused } from '../../src/state/runs/advance-run.js';
import { addRooms, expectInSync, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import { until } from '../support/wait.js';

const open = keepRoomWorlds();
const CODES = Array.from({ length: 1200 }, (_, at) => `r${at}`);

/** Applies a batch of 1200 rooms, whose first request is held until `meanwhile` is done. */
async function applyBatchWhile(meanwhile: 'cancelled' | 'paused') {
  const world = await open(rooms({ owns: 'object', batchSize: 10 }));
  await addRooms(world, ...CODES);
  const { runId, queue } = await world.planBatches('rooms', [CODES]);
  const [id = 0] = queue;
  world.sandbox.closeGate({ method: 'PUT' });
  const applying = world.apply(id).then(
    () => 'done',
    (error: unknown) => error,
  );
  await until(() => world.sandbox.gate().held, { describe: 'the first request' });
  await (meanwhile === 'cancelled'
    ? cancelRun(world.state.db, runId)
    : setPaused(world.state.db, true, runId));
  world.sandbox.openGate();
  const end: unknown = await applying;
  const sent = world.writes().reduce((sum, { objects = 0 }) => sum + objects, 0);
  return { world, runId, id, end, sent };
}

it('a batch sends nothing more once its run is cancelled, and the next run sends the rest', async () => {
  const { world, sent, end } = await applyBatchWhile('cancelled');
  expect(end).toBe('done');
  expect(sent).toBeLessThan(1200);
  await world.sync();
  await expectInSync(world);
});

it('a batch sends nothing more while its run is paused, and sends the rest after the resume', async () => {
  const { world, runId, id, sent, end } = await applyBatchWhile('paused');
  expect(end).toMatchObject({ code: 'run_stopped', disposition: 'defer' });
  expect(sent).toBeLessThan(1200);
  expect((await readBatch(world.state.db, id))?.keys).toHaveLength(1200 - sent);
  await setPaused(world.state.db, false, runId);
  await world.finish(runId, [id]);
  await expectInSync(world);
});

it('a batch that is cancelled while it waits for its slot releases its claims', async () => {
  const world = await open(rooms({ owns: 'object' }));
  await addRooms(world, 'A');
  const { runId, queue } = await world.plan();
  await world.limiter.throttled(600_000);
  const stopping = new AbortController();
  const applying = world.apply(queue[0] ?? 0, stopping.signal);
  await until(async () => (await world.recordsOf('rooms'))['A']?.claimed_by, { describe: 'the claim' });
  await cancelRun(world.state.db, runId);
  stopping.abort();
  await applying.catch(() => undefined);
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { claimed_by: null, status: 'pending' } });
});
