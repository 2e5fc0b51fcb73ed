// Guarantee 4
// Claims: at most one write to an object is under way, and an older version never stays over a newer one.
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { readClock } from '../../src/state/database.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { bindDestination } from '../../src/state/destination-binding.js';
import { claimRecords } from '../../src/state/records/claims.js';
import { readBatch } from '../../src/state/runs/batches.js';
import {
  addRooms,
  expectInSync,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
} from '../support/room-worlds.js';
import { until } from '../support/wait.js';

const open = keepRoomWorlds();

describe('a process that slept', () => {
  it('sends nothing to its service after the state was bound to another service', async () => {
    const world = await open(rooms());
    const { binding } = world.destination;
    await bindDestination(world.state, binding);
    await addRooms(world, 'A', 'B');
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
});

describe('claims on linked objects', () => {
  it('belong to the keys of the links, not to the keys whose template names the objects', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
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
});

describe('a batch beside many records', () => {
  it.each(['with statistics', 'without statistics'])(
    'reads only the records that it needs, %s',
    async (statistics) => {
      const world = await open(rooms());
      await addRooms(world, 'A', 'B', 'C');
      await world.sync();
      await world.sql`
        INSERT INTO slotsync.records (stream, local_key, external_id, status, source_hash, object_hash)
        SELECT 'rooms', 'X' || i, 'room_X' || i, 'synced', 1, 'accepted' FROM generate_series(1, 20000) AS i`;
      if (statistics === 'with statistics') await world.sql`ANALYZE slotsync.records`;
      /** Records that were read without an index. */
      const readings = async () => {
        // A session tells the server at the end of a statement what it has read, once a second.
        await pause(1100);
        await Promise.all(Array.from({ length: 4 }, () => readClock(world.state.db)));
        const [found] = await world.sql<{ rows: number }[]>`
          SELECT seq_tup_read::int AS rows FROM pg_stat_user_tables WHERE relname = 'records'`;
        return found?.rows ?? NaN;
      };
      const before = await readings();
      await rename(world, 'A', 'Aula');
      await rename(world, 'B', 'Bar');
      await addRooms(world, 'D');
      await addChanges(world.state.db, 'rooms', ['A', 'B', 'D']);
      await world.drainInbox();
      expect(nameAtService(world, 'A')).toBe('Aula');
      expect((await readings()) - before).toBeLessThan(10_000);
    },
  );
});

describe('two batches with one key', () => {
  it('never write at once: the second waits for its claim', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B', 'C');
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
    await expectInSync(world);
  });

  it('keep the newer version when the first is answered after it lost its claim', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'first');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    world.sandbox.closeGate({ method: 'PUT', hold: 'answer' });
    const first = world.apply(one);
    await until(() => world.sandbox.gate().held, { describe: 'the first answer' });
    // As if it had taken longer than a claim stands.
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;
    await rename(world, 'A', 'second');
    // The second has taken the record over and reads when the answer to the first arrives.
    world.sandbox.closeGate({ path: '/objects/find' });
    const second = world.apply(two);
    await until(() => world.sandbox.gate().held === 2, { describe: 'the second to read' });
    world.sandbox.openGate();
    world.sandbox.closeGate({ method: 'PUT' });
    await expect(first).rejects.toMatchObject({ code: 'claimed', disposition: 'defer' });
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true } });
    // The outcome of the second does not matter: it cannot know whether the first wrote after it.
    world.sandbox.openGate();
    await second.catch(() => undefined);
    const batches = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    const left = batches.flatMap((batch) => (batch?.state === 'queued' ? [batch.id] : []));
    await world.finish(runId, left);
    await world.sync();
    await expectInSync(world);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: false, claimed_by: null } });
  });

  it('write the object again when the first write arrives after the second batch has settled', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'first');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    const { ended: first } = await world.applyHeld(one, { method: 'PUT' });
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;
    await rename(world, 'A', 'second');
    await world.apply(two);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    world.sandbox.openGate();
    await expect(first).rejects.toThrow();
    expect(nameAtService(world, 'A')).toBe('first');
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true } });
    await world.finish(runId, [one]);
    await expectInSync(world);
  });

  it('keep the record of the second when the first finds its row gone after it lost its claim', async () => {
    const world = await open(rooms());
    await addRooms(world, 'B');
    const { runId, queue } = await world.planBatches('rooms', [['A', 'B'], ['A']]);
    const [one = 0, two = 0] = queue;
    // A has no row and no object: the first forgets it, when the answer about B is there.
    const { ended: first } = await world.applyHeld(one, { path: '/objects/find' });
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second' WHERE local_key = 'A'`;
    await addRooms(world, 'A');
    await world.apply(two);
    world.sandbox.openGate();
    await first.catch(() => undefined);
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced' });
    const batch = await readBatch(world.state.db, one);
    await world.finish(runId, batch?.state === 'queued' ? [one] : []);
    await expectInSync(world);
  });

  it('count each record once when one batch is worked twice after it lost its lock', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A', 'B');
    const { runId, queue } = await world.plan();
    const [id = 0] = queue;
    const { ended: first } = await world.applyHeld(id, { method: 'PUT', hold: 'answer' });
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;
    await world.apply(id);
    world.sandbox.openGate();
    await first;
    const { run } = await world.finish(runId, []);
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 2 } } });
    expect(world.metered('rooms', 'synced')).toBe(2);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { in_doubt: true }, B: { in_doubt: true } });
    await world.sync();
    await expectInSync(world);
  });

  it('send only the second when it takes over after the first was answered 429', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    await world.sync();
    await rename(world, 'A', 'first');
    const { queue } = await world.planBatches('rooms', [['A'], ['A']]);
    const [one = 0, two = 0] = queue;
    world.sandbox.clearArrivals();
    const { ended: first } = await world.applyHeld(one, { method: 'PUT' });
    await world.sql`UPDATE slotsync.records SET claimed_until = now() - interval '1 second'`;
    world.passDays(1);
    await rename(world, 'A', 'second');
    await world.apply(two);
    world.sandbox.failNext({ path: '/objects', fault: 'status', status: 429 });
    world.sandbox.openGate();
    await expect(first).rejects.toMatchObject({ code: 'claim_lost' });
    expect(world.writes().map(({ status }) => status)).toEqual([429, 200]);
    expect(nameAtService(world, 'A')).toBe('second');
  });

  it('leave the key to the first while it waits long, because its claim is renewed', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
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

  it('send nothing when a claim held for long is lost before the request', async () => {
    const world = await open(rooms());
    await addRooms(world, 'A');
    const { queue } = await world.plan();
    world.sandbox.closeGate({ path: '/objects/find' });
    const applying = world.apply(queue[0] ?? 0);
    await until(() => world.sandbox.gate().held, { describe: 'the reading before the write' });
    await world.sql`UPDATE slotsync.records SET claimed_by = 'another'`;
    world.passDays(1);
    world.sandbox.openGate();
    await expect(applying).rejects.toMatchObject({ code: 'claim_lost', disposition: 'defer' });
    expect(world.writes()).toEqual([]);
  });
});
