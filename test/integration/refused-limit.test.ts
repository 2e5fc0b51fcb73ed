// Guarantees 6, 11
// The limit of refusals: a stream of which the service refuses too much costs some requests, and then waits for an operator.
import { describe, expect, it } from 'vitest';
import { approve } from '../../src/sync/operator/approve.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { applyBatch } from '../../src/sync/apply/apply-batch.js';
import { closeGate } from '../../src/state/gates/close-gates.js';
import { readGates } from '../../src/state/gates/gates.js';
import { createRefusals } from '../../src/sync/limits/refusals.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { describeReason } from '../../src/sync/limits/hold-reason.js';
import { codes, keepRooms, reasonHeld, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();
const NO = { status: 400, message: 'no such category' };
const LIMIT = { count: 5, percent: 10 };
/** Configures batches of ten rooms, in the order of their codes. */
const few = (limits = {}) =>
  rooms({ batchSize: 10, retire: 'deactivate', limits: { refused: LIMIT, ...limits } });

const refuse = (world: RoomWorld, some: readonly string[], answer = NO) => {
  for (const code of some) world.sandbox.refuseObject(`room_${code}`, answer);
};
const objectsSent = (world: RoomWorld) =>
  world.writes().reduce((sum, { objects }) => sum + (objects ?? 0), 0);
const renameAll = ({ sql }: RoomWorld) => sql`UPDATE rooms SET name = name || '!'`;
const gatesOf = async ({ state }: RoomWorld) =>
  (await readGates(state.db)).map(({ runId, operation, reason, count }) => ({
    runId,
    operation,
    reason,
    count,
  }));
/** Makes the second checks of refused records due, and works them. */
async function lookAgain(world: RoomWorld): Promise<void> {
  await world.sql`UPDATE slotsync.records SET check_after = check_after - interval '2 minutes'`;
  await world.drainInbox();
}
const refusedGate = (runId: number, count: number) => ({ runId, operation: '*', reason: 'refused', count });

describe('the limit of refusals', () => {
  it('holds the rest of the stream, with one of the reasons', async () => {
    const world = await open(few());
    const all = codes(60);
    await world.addRooms(...all);
    refuse(world, all.slice(0, 8));
    refuse(world, all.slice(8, 9), { status: 400, message: 'another reason' });
    const { run } = await world.sync();
    expect(objectsSent(world)).toBe(10);
    expect(run).toMatchObject({
      status: 'partial',
      counts: { rooms: { synced: 1, dead: 9 } },
      errorCode: null,
      holds: { rooms: { refused: { operation: '*', reason: 'refused', count: 50 } } },
    });
    expect(reasonHeld(run, 'rooms', 'refused')).toBe(
      '50 records wait: 9 of 10 records sent were refused, more than 5 and more than 10 %, for example refused_400: another reason; ' +
        'if the rest is to be sent all the same: slotsync approve 1 --stream rooms --gate refused',
    );
    expect(await gatesOf(world)).toEqual([refusedGate(run.id, 50)]);
  });

  it('counts the refusals of all batches of a run together', async () => {
    const world = await open(few());
    const all = codes(60);
    await world.addRooms(...all);
    for (const start of [0, 10, 20]) refuse(world, all.slice(start, start + 3));
    const { run } = await world.sync();
    expect(objectsSent(world)).toBe(20);
    expect(run.holds).toMatchObject({
      rooms: { refused: { count: 40, facts: { refused: { records: 6, sent: 20 } } } },
    });
  });

  it('holds deactivations until nothing of the stream is refused any more', async () => {
    const all = codes(40);
    const world = await open(few(), { synced: all });
    await renameAll(world);
    await world.remove('r038', 'r039');
    refuse(world, all.slice(0, 9));
    const { run } = await world.sync();
    expect(run.holds).toMatchObject({ rooms: { refused: { count: 30 } } });
    const [gate] = await readGates(world.state.db);
    expect(gate).toMatchObject({ count: 30, facts: { byOperation: { retire: 2 } } });
    expect(gate && describeReason(gate)).toContain('30 records wait, 2 of them to be deactivated');
    expect(world.isActive('room_r039')).toBe(true);

    const { run: approved } = await world.approve(run.id);
    expect(approved).toMatchObject({ counts: { rooms: { synced: 28, deferred: 2 } }, holds: {} });
    expect(world.isActive('room_r039')).toBe(true);
    expect(await gatesOf(world)).toEqual([]);
    for (const code of all.slice(0, 9)) world.sandbox.allowObject(`room_${code}`);
    await renameAll(world);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(world.isActive('room_r039')).toBe(false);
  });
});

it('a batch in flight when its stream is held for refusals ends without a write, and counts nothing again', async () => {
  const world = await open(few());
  await world.addRooms(...codes(10));
  const { runId, queue } = await world.plan();
  const batch = await readBatch(world.state.db, queue[0] ?? 0);
  if (!batch) throw new Error('the batch is not there');
  const refusals = createRefusals();
  const holding: typeof refusals = {
    ...refusals,
    async count() {
      // Between the end of its claims and its own look.
      const facts = { accepted: 0 };
      await closeGate(world.state.db, 'rooms', { operation: '*', reason: 'refused', runId, facts });
      await world.sql`DELETE FROM slotsync.batches WHERE run_id = ${runId}`;
      return true;
    },
  };
  await applyBatch({ ...world.deps(), refusals: holding }, batch);
  expect(world.writes()).toEqual([]);
  expect(await world.advance(runId)).toEqual({ queue: [] });
});

describe('an approval after refusals', () => {
  it('lets through the number that was held, even beyond a limit that was approved before', async () => {
    const all = codes(40);
    const world = await open(few({ update: { count: 15, percent: 10 } }), { synced: all });
    await renameAll(world);
    refuse(world, all);
    const { run: heldFirst } = await world.sync();
    expect(heldFirst.holds).toMatchObject({ rooms: { update: { count: 40 } } });
    const { run: refusing } = await world.approve(heldFirst.id);
    expect(refusing.holds).toMatchObject({ rooms: { refused: { count: 30 } } });
    // Nothing was accepted: the ten are checked again, and wait with the others.
    await lookAgain(world);
    const [gate] = await gatesOf(world);
    expect(gate).toMatchObject({ reason: 'refused', count: 40 });
    world.sandbox.clearArrivals();
    // All 40 are refused, as the operator has allowed.
    const { run: approved } = await world.approve(gate?.runId ?? 0);
    expect(approved.holds).toEqual({});
    expect(objectsSent(world)).toBeGreaterThanOrEqual(40);
  });

  it('holds again when more is refused than was held', async () => {
    const world = await open(few());
    await world.addRooms(...codes(20));
    refuse(world, codes(60));
    refuse(world, ['r000'], NO);
    const { run } = await world.sync();
    expect(run.holds).toMatchObject({ rooms: { refused: { count: 10 } } });
    // It is not for exactly the same records, because refused records are not sent again.
    await expect(approve(world.approving(), { runId: run.id, exactly: true })).rejects.toThrow(
      /--exactly is not for a gate of all operations \(refused\)/,
    );
    await world.addRooms(...codes(60).slice(20));
    const { run: approved } = await world.approve(run.id);
    expect(approved.holds).toMatchObject({
      rooms: { refused: { count: 30, facts: { approval: { allowed: 10 }, refused: { records: 20 } } } },
    });
  });

  it('releases nothing that no plan had released', async () => {
    const all = codes(40);
    const world = await open(few({ retire: { count: 1, percent: 1 } }), { synced: all });
    await renameAll(world);
    await world.sql`DELETE FROM rooms WHERE code >= 'r036'`;
    refuse(world, all.slice(0, 9));
    const { run } = await world.sync();
    expect(run.holds).toMatchObject({ rooms: { retire: { count: 4 }, refused: { count: 26 } } });
    const { run: approved } = await world.approve(run.id, { stream: 'rooms', gate: 'refused' });
    expect(approved.holds).toMatchObject({ rooms: { retire: { count: 4 } } });
    expect(world.isActive('room_r039')).toBe(true);
  });
});

it('a stream of which nothing is accepted has nothing given up, and its second checks are held', async () => {
  const world = await open(few());
  await world.addRooms(...codes(40));
  refuse(world, codes(40));
  const { run } = await world.sync();
  expect(run).toMatchObject({
    counts: { rooms: { failed: 10, dead: 0 } },
    holds: { rooms: { refused: { count: 30 } } },
  });
  await lookAgain(world);
  const statuses = Object.values(await world.statusesOf('rooms'));
  expect(statuses).toEqual(Array.from({ length: 10 }, () => 'failed'));
  expect(await gatesOf(world)).toEqual([refusedGate(run.id, 40)]);
  expect(objectsSent(world)).toBe(10);
  // The records that an operator retries are counted again.
  await world.retry();
  const { run: retried } = await world.sync();
  expect(retried.counts).toMatchObject({ rooms: { failed: 10 } });
  expect(await gatesOf(world)).toEqual([refusedGate(retried.id, 30)]);
});

it('refusals of single keys count together within a day until the stream is synced as a whole', async () => {
  const all = codes(30);
  const push = async (...keys: string[]) => (await world.send('rooms', ...keys)).run;
  const world = await open(few(), { synced: all });
  await renameAll(world);
  refuse(world, all.slice(0, 6));
  for (const key of all.slice(0, 5)) expect((await push(key)).holds).toEqual({});
  expect((await push('r005')).holds).toEqual({});
  // The sixth refusal was the last of its run: the next run waits.
  const held = await push('r006', 'r007');
  expect(held).toMatchObject({ status: 'held', holds: { rooms: { refused: { count: 2 } } } });
  expect(world.nameOf('r006')).toBe('Room r006');

  const { run } = await world.approve(held.id);
  expect(run).toMatchObject({ kind: 'sync', holds: {} });
  expect(world.nameOf('r006')).toBe('Room r006!');
  await world.sql`UPDATE rooms SET name = name || '?' WHERE code = 'r007'`;
  expect(await push('r007')).toMatchObject({ status: 'succeeded', holds: {} });
});

it('forgetting a key clears the reason of a gate that names the key', async () => {
  const world = await open(few());
  await world.addRooms(...codes(20));
  refuse(world, codes(10), { status: 400, message: "'room_r003' is refused" });
  await world.sync();
  await forgetKey(world.state.db, { stream: 'rooms', localKey: 'r003' });
  const [gate] = await readGates(world.state.db);
  expect(gate?.facts.refused).toMatchObject({ message: 'removed: this text named a deleted key' });
});
