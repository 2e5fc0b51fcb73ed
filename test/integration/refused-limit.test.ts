// Guarantees 6, 11
// The limit of refusals: what the service refuses too much of costs some requests, and the rest waits for an operator.
import { describe, expect, it } from 'vitest';
import { approveHolds } from '../../src/sync/operator/approve-holds.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { applyBatch } from '../../src/sync/apply/apply-batch.js';
import { createRefusalTallies, type RefusalTallies } from '../../src/sync/limits/refusal-tallies.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { reasonHeld } from '../support/held-reason.js';
import { addRooms, codes, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import type { World } from '../support/world.js';

const open = keepRoomWorlds();
const NO = { status: 400, message: 'no such category' };
const LIMIT = { count: 5, percent: 10 };
/** Batches of ten rooms, in the order of their codes. */
const few = (limits = {}) =>
  rooms({ batchSize: 10, retire: 'deactivate', limits: { refused: LIMIT, ...limits } });

const refuse = (world: World, some: readonly string[], answer = NO) => {
  for (const code of some) world.sandbox.refuseObject(`room_${code}`, answer);
};
const objectsSent = (world: World) => world.writes().reduce((sum, { objects }) => sum + (objects ?? 0), 0);
const renameAll = (world: World) => world.sql`UPDATE rooms SET name = name || '!'`;
const holdsOf = (world: World) =>
  world.sql`SELECT run_id::int AS run, operation, count, state FROM slotsync.holds ORDER BY id`;

describe('limit of refusals: beyond it', () => {
  it('the rest of the stream is held with the commonest reason, and other streams go on', async () => {
    const world = await open(few());
    const all = codes(60);
    await addRooms(world, ...all);
    refuse(world, all.slice(0, 8));
    refuse(world, all.slice(8, 9), { status: 400, message: 'another reason' });
    const { run } = await world.sync();
    expect(objectsSent(world)).toBe(10);
    expect(run).toMatchObject({
      status: 'partial',
      counts: { rooms: { synced: 1, dead: 9 } },
      errorCode: null,
      holds: { rooms: { refused: { count: 50, approvable: true } } },
    });
    expect(reasonHeld(run, 'rooms', 'refused')).toBe(
      '9 of 10 records sent were refused, more than 5 and more than 10 %, most often refused_400: no such category; 50 wait; ' +
        'if the rest is to be sent all the same: slotsync approve 1 --stream rooms --operation refused',
    );
  });

  it('refusals of all batches of the run count together', async () => {
    const world = await open(few());
    const all = codes(60);
    await addRooms(world, ...all);
    for (const start of [0, 10, 20]) refuse(world, all.slice(start, start + 3));
    const { run } = await world.sync();
    expect(objectsSent(world)).toBe(20);
    expect(run.holds).toMatchObject({
      rooms: { refused: { count: 40, facts: { refused: { records: 6, sent: 20 } } } },
    });
  });

  it.each([
    ['no more than the number', 5, 60],
    ['no more than the share', 6, 60],
  ])('nothing is held for %s', async (_, refused, sent) => {
    const world = await open(few({ refused: { count: 5, percent: refused === 6 ? 60 : 0 } }));
    await addRooms(world, ...codes(60));
    refuse(world, codes(refused));
    const { run } = await world.sync();
    expect(objectsSent(world)).toBe(sent);
    expect(run).toMatchObject({ status: 'partial', holds: {} });
  });

  it('retirements wait too, and what was planned of each operation is released again by the approval', async () => {
    const world = await open(few());
    const all = codes(40);
    await addRooms(world, ...all);
    await world.sync();
    world.sandbox.clearArrivals();
    await renameAll(world);
    await world.sql`DELETE FROM rooms WHERE code IN ('r038', 'r039')`;
    refuse(world, all.slice(0, 9));
    const { run } = await world.sync();
    expect(run).toMatchObject({
      holds: { rooms: { refused: { count: 30, facts: { released: { retire: 2 } } } } },
    });
    expect(reasonHeld(run, 'rooms', 'refused')).toContain('30 wait, 2 of them to be deactivated');
    expect(world.sandbox.object('room_r039')?.active).toBe(true);

    const { run: approved } = await world.approve(run.id);
    expect(approved).toMatchObject({ counts: { rooms: { synced: 30 } }, holds: {} });
    expect(world.sandbox.object('room_r039')?.active).toBe(false);
    expect(await holdsOf(world)).toEqual([{ run: run.id, operation: 'refused', count: 30, state: 'used' }]);
  });
});

describe('limit of refusals: a batch in flight', () => {
  it('ends where the batch beside it has held it, and nothing is counted anew', async () => {
    const world = await open(few());
    await addRooms(world, ...codes(10));
    const { runId, queue } = await world.plan();
    const batch = await readBatch(world.state.db, queue[0] ?? 0);
    if (!batch) throw new Error('the batch is not there');
    const tallies = createRefusalTallies();
    const stream = world.deps().streams.get('rooms');
    if (!stream) throw new Error('the stream is not there');
    for (let at = 0; at < 6; at++) tallies.note(stream, runId, true);
    const holding: RefusalTallies = {
      ...tallies,
      async isBeyond(...asked) {
        // Between the end of its claims and its own look.
        await world.sql`UPDATE slotsync.batches SET state = 'held', operation = 'refused'`;
        return tallies.isBeyond(...asked);
      },
    };
    await applyBatch({ ...world.deps(), refusals: holding }, batch);
    expect(world.writes()).toEqual([]);
    expect(await tallies.isBeyond(world.state.db, stream, runId)).toBe(true);
  });
});

describe('limit of refusals: an approval', () => {
  it('goes on up to the number that was held, also beyond another limit that released it before', async () => {
    const world = await open(few({ update: { count: 15, percent: 10 } }));
    const all = codes(40);
    await addRooms(world, ...all);
    await world.sync();
    await renameAll(world);
    refuse(world, all);
    const { run: heldFirst } = await world.sync();
    expect(heldFirst.holds).toMatchObject({ rooms: { update: { count: 40 } } });
    const { run: refusing } = await world.approve(heldFirst.id);
    expect(refusing.holds).toMatchObject({
      rooms: { refused: { count: 30, facts: { released: { update: 30 } } } },
    });
    world.sandbox.clearArrivals();
    // All 30 are refused, as the operator has allowed: ten were not given up before, and are not of those.
    const { run: approved } = await world.approve(refusing.id);
    expect(approved.holds).toEqual({});
    expect(objectsSent(world)).toBeGreaterThanOrEqual(30);
  });

  it('holds again when more is refused than was held', async () => {
    const world = await open(few());
    await addRooms(world, ...codes(20));
    refuse(world, codes(60));
    refuse(world, ['r000'], NO);
    const { run } = await world.sync();
    expect(run.holds).toMatchObject({ rooms: { refused: { count: 10 } } });
    await addRooms(world, ...codes(60).slice(20));
    const { run: approved } = await world.approve(run.id);
    expect(approved.holds).toMatchObject({
      rooms: { refused: { count: 30, facts: { approval: { allowed: 10 }, refused: { records: 20 } } } },
    });
  });

  it('releases nothing that no plan had released', async () => {
    const world = await open(few({ retire: { count: 1, percent: 1 } }));
    const all = codes(40);
    await addRooms(world, ...all);
    await world.sync();
    await renameAll(world);
    await world.sql`DELETE FROM rooms WHERE code >= 'r036'`;
    refuse(world, all.slice(0, 9));
    const { run } = await world.sync();
    expect(run.holds).toMatchObject({ rooms: { retire: { count: 4 }, refused: { count: 26 } } });
    const { run: approved } = await world.approve(run.id, { stream: 'rooms', operation: 'refused' });
    expect(approved.holds).toMatchObject({ rooms: { retire: { count: 4 } } });
    expect(world.sandbox.object('room_r039')?.active).toBe(true);
  });

  it('for exactly the same records is refused: what was refused is not sent again', async () => {
    const world = await open(few());
    await addRooms(world, ...codes(20));
    refuse(world, codes(9));
    const { run } = await world.sync();
    await expect(approveHolds(world.approving(), { runId: run.id, exactly: true })).rejects.toThrow(
      /--exactly is not for what was held after refusals/,
    );
  });
});

describe('limit of refusals: while nothing is accepted', () => {
  it('nothing is given up, the rest is held, and second looks do not count again', async () => {
    const world = await open(few());
    await addRooms(world, ...codes(40));
    refuse(world, codes(40));
    const { run } = await world.sync();
    expect(run).toMatchObject({
      counts: { rooms: { failed: 10, dead: 0 } },
      holds: { rooms: { refused: { count: 30 } } },
    });
    await world.sql`UPDATE slotsync.records SET check_after = check_after - interval '2 minutes'`;
    await world.drainInbox();
    const statuses = Object.values(await world.statusesOf('rooms'));
    expect(statuses).toEqual(Array.from({ length: 10 }, () => 'dead'));
    expect(await holdsOf(world)).toEqual([{ run: run.id, operation: 'refused', count: 30, state: 'open' }]);
  });

  it('records that an operator retries count again', async () => {
    const world = await open(few());
    await addRooms(world, ...codes(40));
    refuse(world, codes(40));
    await world.sync();
    await retryRecords(world.state.db, { stream: 'rooms', keys: [] });
    await world.sync();
    expect(await holdsOf(world)).toMatchObject([
      { state: 'replaced' },
      { operation: 'refused', state: 'open' },
    ]);
  });
});

describe('limit of refusals: single keys', () => {
  const push = async (world: World, ...keys: string[]) => {
    const { runId, queue } = await world.planChanges('rooms', ...keys);
    return (await world.finish(runId, queue)).run;
  };

  it('incremental runs of the day count together until the stream is synced as a whole', async () => {
    const world = await open(few());
    const all = codes(30);
    await addRooms(world, ...all);
    await world.sync();
    await renameAll(world);
    refuse(world, all.slice(0, 6));
    for (const key of all.slice(0, 5)) expect((await push(world, key)).holds).toEqual({});
    expect((await push(world, 'r005')).holds).toEqual({});
    // The sixth refusal was the last of its run: the next run waits.
    const held = await push(world, 'r006', 'r007');
    expect(held).toMatchObject({ status: 'held', holds: { rooms: { refused: { count: 2 } } } });
    expect(world.fieldsOf('room_r006')).toMatchObject({ 'room.name': 'Room r006' });

    const { run } = await world.approve(held.id);
    expect(run).toMatchObject({ kind: 'sync', holds: {} });
    expect(world.fieldsOf('room_r006')).toMatchObject({ 'room.name': 'Room r006!' });
    await world.sql`UPDATE rooms SET name = name || '?' WHERE code = 'r007'`;
    expect(await push(world, 'r007')).toMatchObject({ status: 'succeeded', holds: {} });
  });
});

it('forget: a reason that names the key is cleared', async () => {
  const world = await open(few());
  await addRooms(world, ...codes(20));
  refuse(world, codes(10), { status: 400, message: "'room_r003' is refused" });
  await world.sync();
  await world.sql`DELETE FROM slotsync.batches WHERE state = 'held'`;
  await forgetKey(world.state.db, { stream: 'rooms', localKey: 'r003' });
  const [hold] = await world.sql`SELECT facts->'refused'->>'message' AS message FROM slotsync.holds`;
  expect(hold).toEqual({ message: 'it named a key that was removed' });
});
