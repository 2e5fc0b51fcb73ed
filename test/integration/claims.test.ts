// Guarantee 4
// Claims: at most one write to an object is under way, and an older version never stays over a newer one. A batch whose run is
// cancelled or paused sends nothing more, and releases its claims.
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { readClock } from '../../src/state/database.js';
import { bindDestination } from '../../src/state/destination-binding.js';
import { claimRecords } from '../../src/state/records/claims.js';
import { setPaused } from '../../src/state/runs/advance-run.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { keepRooms, rooms, until } from '../support/steps.js';

const open = keepRooms();

it('a process that slept sends nothing to its service after the state was bound to another service', async () => {
  const world = await open(rooms());
  const { binding } = world.destination;
  await bindDestination(world.state, binding);
  await world.addRooms('A', 'B');
  const { queue } = await world.plan();
  // It counts as ended, and nothing was sent: the state may be bound anew.
  const other = { ...binding, organizationId: 'other' };
  await bindDestination(world.state, other);
  await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({
    code: 'destination_changed',
    message: expect.stringContaining('the state database now belongs to organization other'),
  });
  expect(world.writes()).toEqual([]);
  expect(await world.recordsOf('rooms')).toEqual({});
});

it('claims on linked objects belong to the keys of the links, not to the keys whose template names the objects', async () => {
  const world = await open(rooms());
  await world.addRooms('A', 'B', 'C');
  const { runId } = await world.plan();
  await world.sql`
    INSERT INTO slotsync.links (stream, local_key, external_id, assigns_id, linked_by)
    VALUES ('rooms', 'B', 'room_A', false, 'match')`;
  const { binding } = world.destination;
  const claim = { token: 'test', stream: 'rooms', seconds: 60, lateSeconds: 60, runId, binding };
  const keys = ['A', 'C'];
  const externalIds = new Map(['A', 'B', 'C'].map((key) => [key, `room_${key}`]));
  await claimRecords(world.state.db, { ...claim, keys, externalIds });
  await claimRecords(world.state.db, { ...claim, keys: ['B'], externalIds });
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { external_id: null },
    B: { external_id: 'room_A' },
    C: { external_id: 'room_C' },
  });
});

it('a batch beside many records reads only the records that it needs, without statistics and with them', async () => {
  const world = await open(rooms(), { synced: ['A', 'B', 'C'] });
  await world.sql`
    INSERT INTO slotsync.records (stream, local_key, external_id, status, source_hash, object_hash)
    SELECT 'rooms', 'X' || i, 'room_X' || i, 'synced', 1, 'accepted' FROM generate_series(1, 20000) AS i`;
  /** Records that were read without an index. */
  const readings = async () => {
    // A session tells the server at the end of a statement what it has read, once a second.
    await pause(1100);
    await Promise.all(Array.from({ length: 4 }, () => readClock(world.state.db)));
    const [found] = await world.sql<{ rows: number }[]>`
      SELECT seq_tup_read::int AS rows FROM pg_stat_user_tables WHERE relname = 'records'`;
    return found?.rows ?? NaN;
  };
  for (const name of ['without statistics', 'with statistics']) {
    if (name === 'with statistics') await world.sql`ANALYZE slotsync.records`;
    const before = await readings();
    await world.renameAll(name, ['A', 'B']);
    await world.addRooms(name);
    await world.push('rooms', 'A', 'B', name);
    expect(world.nameOf('A')).toBe(name);
    expect((await readings()) - before, name).toBeLessThan(10_000);
  }
});

describe('two batches with one key', () => {
  it('never write at once: the second waits for its claim', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B', 'C');
    const { runId, queue } = await world.planBatches('rooms', [
      ['A', 'B'],
      ['B', 'C'],
    ]);
    const [one = 0, two = 0] = queue;
    const { ended: first } = await world.applyHeld(one, { method: 'PUT' });
    await expect(world.apply(two)).rejects.toMatchObject({ code: 'claimed', disposition: 'defer' });
    world.sandbox.openGate();
    await first;
    // C, which nobody else was writing, has gone already; B goes in its turn.
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    expect((await readBatch(world.state.db, two))?.keys).toEqual(['B']);
    await world.finish(runId, [two]);
    await world.expectInSync();
  });

  it('write the object again when the first write arrives after the second batch has settled', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await world.rename('A', 'first');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    const { ended: first } = await world.applyHeld(one, { method: 'PUT' });
    await world.expireClaims();
    await world.rename('A', 'second');
    await world.apply(two);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    world.sandbox.openGate();
    await expect(first).rejects.toThrow();
    expect(world.nameOf('A')).toBe('first');
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true } });
    await world.finish(runId, [one]);
    await world.expectInSync();
  });

  it('keep the record of the second when the first finds its row gone after it lost its claim', async () => {
    const world = await open(rooms());
    await world.addRooms('B');
    const { runId, queue } = await world.planBatches('rooms', [['A', 'B'], ['A']]);
    const [one = 0, two = 0] = queue;
    // A has no row and no object: the first forgets it, when the answer about B is there.
    const { ended: first } = await world.applyHeld(one, { path: '/objects/find' });
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second' WHERE local_key = 'A'`;
    await world.addRooms('A');
    await world.apply(two);
    world.sandbox.openGate();
    await first.catch(() => undefined);
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced' });
    const batch = await readBatch(world.state.db, one);
    await world.finish(runId, batch?.state === 'queued' ? [one] : []);
    await world.expectInSync();
  });

  it('count each record once when one batch is worked twice after it lost its lock', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B');
    const { runId, queue } = await world.plan();
    const [id = 0] = queue;
    const { ended: first } = await world.applyHeld(id, { method: 'PUT', hold: 'answer' });
    await world.expireClaims();
    await world.apply(id);
    world.sandbox.openGate();
    await first;
    const { run } = await world.finish(runId, []);
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 2 } } });
    expect(world.metered('rooms', 'synced')).toBe(2);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true }, B: { in_doubt: true } });
    await world.sync();
    await world.expectInSync();
  });

  it('send only the second when it takes over after the first was answered 429', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await world.rename('A', 'first');
    const { queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    world.sandbox.clearArrivals();
    const { ended: first } = await world.applyHeld(one, { method: 'PUT' });
    await world.expireClaims();
    world.passDays(1);
    await world.rename('A', 'second');
    await world.apply(two);
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 429 });
    world.sandbox.openGate();
    await expect(first).rejects.toMatchObject({ code: 'claim_lost' });
    expect(world.writes().map(({ status }) => status)).toEqual([429, 200]);
    expect(world.nameOf('A')).toBe('second');
  });

  it('leave the key to the first while it waits long, because its claim is renewed', async () => {
    const world = await open(rooms());
    await world.addRooms('A');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    onTestFinished(() => void vi.useRealTimers());
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true });
    world.sandbox.closeGate({ path: '/objects/find' });
    const first = world.apply(one);
    await until(() => world.sandbox.gate().held, { describe: 'the find' });
    // A third of the time that a claim is valid for has passed, and the claim is as good as over.
    await world.sql`UPDATE slotsync.records SET claimed_until = now()`;
    await vi.advanceTimersByTimeAsync((world.destination.requestTimeoutMs + 30_000) / 3);
    const isValid = async () =>
      (await world.sql`SELECT FROM slotsync.records WHERE claimed_until > now() + interval '30 seconds'`)
        .count;
    await until(isValid, { describe: 'the renewal', timeoutMs: 10_000 });
    await expect(world.apply(two)).rejects.toMatchObject({ code: 'claimed' });
    world.sandbox.openGate();
    await first;
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', in_doubt: false } });
    await world.finish(runId, [two]);
    expect(world.writes()).toHaveLength(1);
  });
});

/** A batch may hold the objects of many requests. */
const CODES = Array.from({ length: 1200 }, (_, at) => `r${at}`);

/** Applies a batch of 1200 rooms, whose first request is held until `meanwhile` is done. */
async function applyBatchWhile(meanwhile: 'cancelled' | 'paused') {
  const world = await open(rooms({ owns: 'object', batchSize: 10 }));
  await world.addRooms(...CODES);
  const { runId, queue } = await world.planBatches('rooms', [CODES]);
  const [id = 0] = queue;
  world.sandbox.closeGate({ method: 'PUT' });
  const applying = world.apply(id).then(
    () => 'done',
    (error: unknown) => error,
  );
  await until(() => world.sandbox.gate().held, { describe: 'the first request' });
  await (meanwhile === 'cancelled' ? world.cancel(runId) : setPaused(world.state.db, true, runId));
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
  await world.expectInSync();
});

it('a batch sends nothing more while its run is paused, and sends the rest after the resume', async () => {
  const { world, runId, id, sent, end } = await applyBatchWhile('paused');
  expect(end).toMatchObject({ code: 'run_stopped', disposition: 'defer' });
  expect(sent).toBeLessThan(1200);
  expect((await readBatch(world.state.db, id))?.keys).toHaveLength(1200 - sent);
  await setPaused(world.state.db, false, runId);
  await world.finish(runId, [id]);
  await world.expectInSync();
});

it('a batch that is cancelled while it waits for its slot releases its claims', async () => {
  const world = await open(rooms({ owns: 'object' }));
  await world.addRooms('A');
  const { runId, queue } = await world.plan();
  await world.limiter.throttled(600_000);
  const stopping = new AbortController();
  const applying = world.apply(queue[0] ?? 0, stopping.signal);
  await until(async () => (await world.recordOf('A'))?.claimed_by, { describe: 'the claim' });
  await world.cancel(runId);
  stopping.abort();
  await applying.catch(() => undefined);
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { claimed_by: null, status: 'pending' } });
});
