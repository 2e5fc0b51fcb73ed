// Guarantees 2, 3, 4, 6, 7
// Guarantees for each object: whatever key, stream or run a write is for, an older version never stays over a newer one, and no
// object is deactivated that a row has.
import { describe, expect, it } from 'vitest';
import { retryRecords } from '../../src/state/records/retry-records.js';
import type { Declaration } from '../support/campus.js';
import {
  comeToRest,
  DESKS,
  dieWhileWriting,
  HALLS,
  insert,
  isActive,
  keepPlaceWorlds,
  loseAnswer,
  nameOf,
  PLACES,
  planOlder,
  rename,
  syncPlaces,
  replace,
} from '../support/place-worlds.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';

const openPlaces = keepPlaceWorlds();

/** Expects every row to be synced, at the service and in the state. */
async function expectInSync(world: World): Promise<void> {
  await comeToRest(world); // a record that the sync forgets passes its doubt on, which is followed up later
  const rows = await world.sql<{ id: number; code: string; name: string }[]>`SELECT * FROM places`;
  for (const { id, code, name } of rows) {
    expect([code, nameOf(world, `y_${code}`), isActive(world, `y_${code}`)]).toEqual([code, name, true]);
    expect((await world.recordsOf('places'))[id]).toMatchObject({ status: 'synced', in_doubt: false });
  }
  expect(await world.sql`SELECT FROM slotsync.object_claims`).toHaveLength(0);
}

describe('an object whose row comes back under another key', () => {
  it.each(['fields', 'object'] as const)(
    'is written after the write under way for the former key (owns: %s)',
    async (owns) => {
      const world = await openPlaces({ owns });
      const { runId, queue } = await planOlder(world);
      const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
      await replace(world, 'A', 2, 'newer');
      const changes = await world.planChanges('places', '1', '2');
      for (const batch of changes.queue)
        await expect(world.apply(batch)).rejects.toMatchObject({ code: 'claimed', disposition: 'defer' });
      world.sandbox.openGate();
      await applying;
      await world.finish(runId, []);
      await world.finish(changes.runId, changes.queue);
      expect(nameOf(world, 'y_A')).toBe('newer');
      await expectInSync(world);
      expect(Object.keys(await world.recordsOf('places'))).toEqual(['2']);
    },
  );

  it('is never deactivated when the former key is retired', async () => {
    const world = await openPlaces({ unlessReserved: true });
    await syncPlaces(world, [1, 'A', 'first'], [9, 'Z', 'other']);
    await world.sql`DELETE FROM places WHERE id = 1`;
    const { runId, queue } = await world.plan();
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { path: '/reservations/find' });
    await insert(world, 2, 'A', 'second');
    const changes = await world.planChanges('places', '2');
    await expect(world.apply(changes.queue[0] ?? 0)).rejects.toMatchObject({ code: 'claimed' });
    world.sandbox.clearArrivals();
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    expect(world.writes()).toEqual([]);
    await world.finish(changes.runId, changes.queue);
    expect(isActive(world, 'y_A')).toBe(true);
    await expectInSync(world);
    expect(await world.statusesOf('places')).toEqual({ 2: 'synced', 9: 'synced' });
  });

  it('is the same object if the other key is in another stream', async () => {
    const world = await openPlaces({}, { halls: HALLS });
    await syncPlaces(world, [1, 'A', 'first'], [9, 'Z', 'other']);
    await rename(world, 1, 'older');
    const { runId, queue } = await world.plan('places');
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
    await replace(world, 'A', 1, 'newer', 'halls');
    const changes = await world.planChanges('halls', '1');
    await expect(world.apply(changes.queue[0] ?? 0)).rejects.toMatchObject({ code: 'claimed' });
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    await world.finish(changes.runId, changes.queue);
    await world.sync();
    expect([nameOf(world, 'y_A'), isActive(world, 'y_A')]).toEqual(['newer', true]);
    expect(await world.statusesOf('places')).toEqual({ 9: 'synced' });
    expect(await world.statusesOf('halls')).toEqual({ 1: 'synced' });
  });

  it('is not written from a row that changed its external id before the claim', async () => {
    const world = await openPlaces();
    await insert(world, 1, 'A', 'a');
    const { runId, queue } = await world.plan();
    // The row has another external id as soon as it was read for the first time.
    const deps = world.deps();
    let looks = 0;
    deps.mirror = {
      ...deps.mirror,
      async readRows(...asked) {
        const rows = await world.mirror.readRows(...asked);
        if (looks++ === 0) await world.sql`UPDATE places SET code = 'B', name = 'b'`;
        return rows;
      },
    };
    await expect(world.apply(queue[0] ?? 0, undefined, deps)).rejects.toMatchObject({ code: 'claimed' });
    expect(world.writes()).toEqual([]);
    await world.finish(runId, queue);
    expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['y_B']);
    await expectInSync(world);
  });

  it('keeps no older value of a batch that died while it wrote the object', async () => {
    const world = await openPlaces();
    const end = await dieWhileWriting(world, await planOlder(world));
    await replace(world, 'A', 2, 'newer');
    const changes = await world.planChanges('places', '2');
    await world.finish(changes.runId, changes.queue);
    expect(nameOf(world, 'y_A')).toBe('newer');
    await end();
    world.sandbox.releaseLate();
    expect(nameOf(world, 'y_A')).toBe('older');
    await expectInSync(world);
    expect(nameOf(world, 'y_A')).toBe('newer');
  });
});

describe('a late write whose answer was lost', () => {
  it.each([
    ['its key', 'y_{id}', 'fields'],
    ['its key', 'y_{id}', 'object'],
    ['another column', 'y_{code}', 'fields'],
    ['another column', 'y_{code}', 'object'],
  ] as const)(
    'does not stay over a newer write (external id from %s: %s, owns: %s)',
    async (_, externalId, owns) => {
      const world = await openPlaces({ externalId, owns });
      const extId = externalId === 'y_{id}' ? 'y_1' : 'y_A';
      const run = await planOlder(world);
      await loseAnswer(world, run);
      await rename(world, 1, 'newer');
      await world.finish(run.runId, run.queue);
      expect(nameOf(world, extId)).toBe('newer');
      expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'synced', in_doubt: false } });
      world.sandbox.releaseLate();
      expect(nameOf(world, extId)).toBe('older');
      // Nothing is due before the service cannot carry it out any more.
      expect(await world.drainInbox()).toEqual([]);
      await world.passLateWrites();
      expect(await world.drainInbox()).toHaveLength(1);
      expect(nameOf(world, extId)).toBe('newer');
      world.sandbox.clearArrivals();
      expect(await world.drainInbox()).toEqual([]);
      await world.sync();
      expect(world.writes()).toEqual([]);
    },
  );

  it('costs one check, and no write, when it never landed', async () => {
    const world = await openPlaces({ externalId: 'y_{id}', owns: 'object' });
    await insert(world, 1, 'A', 'first');
    world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'loseAnswer' });
    await world.sync();
    await world.passLateWrites();
    world.sandbox.clearArrivals();
    await world.drainInbox();
    const paths = world.sandbox.arrivals().map(({ path }) => path);
    expect(paths.filter((path) => path.startsWith('/v1/objects'))).toEqual(['/v1/objects/find']);
    expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'synced', in_doubt: false } });
  });

  it('is found by the next sync when no worker follows it up', async () => {
    const world = await openPlaces();
    await insert(world, 1, 'A', 'older');
    const run = await world.plan();
    await loseAnswer(world, run);
    await rename(world, 1, 'newer');
    await world.finish(run.runId, run.queue);
    world.sandbox.releaseLate();
    await world.passLateWrites();
    await world.sync();
    expect(nameOf(world, 'y_A')).toBe('newer');
  });

  it('is followed up although its row has another key meanwhile', async () => {
    const world = await openPlaces();
    const run = await planOlder(world);
    await loseAnswer(world, run);
    await replace(world, 'A', 2, 'newer');
    await world.finish(run.runId, run.queue);
    const changes = await world.planChanges('places', '2');
    await world.finish(changes.runId, changes.queue);
    // The record of key 1 goes, and what is doubtful about its object is doubtful of key 2 from now on.
    await world.sync();
    expect(Object.keys(await world.recordsOf('places'))).toEqual(['2']);
    world.sandbox.releaseLate();
    expect(nameOf(world, 'y_A')).toBe('older');
    await world.passLateWrites();
    await world.drainInbox();
    expect(nameOf(world, 'y_A')).toBe('newer');
  });

  it('does not reactivate a retired object', async () => {
    const world = await openPlaces();
    const run = await planOlder(world);
    await loseAnswer(world, run);
    await world.sql`DELETE FROM places`;
    await world.finish(run.runId, run.queue);
    await syncPlaces(world, [9, 'Z', 'other']);
    expect(isActive(world, 'y_A')).toBe(false);
    world.sandbox.releaseLate();
    expect(isActive(world, 'y_A')).toBe(true);
    await world.passLateWrites();
    await world.drainInbox();
    expect(isActive(world, 'y_A')).toBe(false);
  });
});

describe('a retired object that is in doubt', () => {
  it('is checked again without a second approval', async () => {
    const world = await openPlaces({ limits: { retire: { count: 1, percent: 1 } } });
    for (const id of [1, 2, 3]) await insert(world, id, `A${id}`, 'first');
    await syncPlaces(world, [9, 'Z', 'other']);
    await world.sql`UPDATE slotsync.records SET status = 'retired', in_doubt = true WHERE local_key <> '9'`;
    await world.sql`DELETE FROM places WHERE id <> 9`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(['y_A1', 'y_A2', 'y_A3'].map((extId) => isActive(world, extId))).toEqual([false, false, false]);
  });
});

describe('a parent that gets another external id', () => {
  it('has the records that refer to it sent again', async () => {
    const world = await openPlaces({}, { desks: DESKS });
    await insert(world, 1, 'A', 'a');
    await insert(world, 2, 'B', 'b');
    await world.sql`INSERT INTO desks VALUES (1, 'one', 1), (2, 'two', 2)`;
    await world.sync();
    await world.sql`UPDATE places SET code = 'A2' WHERE id = 1`;
    await world.sync();
    expect(await world.statusesOf('places')).toEqual({ 1: 'dead', 2: 'synced' });
    await retryRecords(world.state.db, { stream: 'places', keys: ['1'] });
    await world.sync('places');
    await world.drainInbox();
    expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'one', 'desk.place': 'y_A2' });
    expect(world.fieldsOf('desk_2')).toEqual({ 'desk.name': 'two', 'desk.place': 'y_B' });
    expect(await world.statusesOf('desks')).toEqual({ 1: 'synced', 2: 'synced' });
  });

  it('has a referring record sent again that was being written when the id changed', async () => {
    const world = await openPlaces({}, { desks: DESKS });
    await insert(world, 1, 'A', 'a');
    await world.sql`INSERT INTO desks VALUES (1, 'one', 1)`;
    await world.sync();
    await world.sql`UPDATE desks SET name = 'uno'`;
    const { runId, queue } = await world.plan('desks');
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
    await world.sql`UPDATE places SET code = 'A2'`;
    await world.sync('places');
    await retryRecords(world.state.db, { stream: 'places', keys: ['1'] });
    await world.sync('places');
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    expect(world.fieldsOf('desk_1')?.['desk.place']).toBe('y_A');
    await world.drainInbox();
    expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'uno', 'desk.place': 'y_A2' });
  });
});

describe('an external id of two rows', () => {
  it.each([
    ['goes', (world: World) => world.sql`DELETE FROM places WHERE id = 1`],
    ['has another external id', (world: World) => world.sql`UPDATE places SET code = 'B' WHERE id = 1`],
  ])('is sent for the second row when the row that owned it %s, without a sync', async (_, change) => {
    const world = await openPlaces();
    await syncPlaces(world, [1, 'A', 'first']);
    await syncPlaces(world, [2, 'A', 'second']);
    expect(await world.recordsOf('places')).toMatchObject({
      2: { status: 'failed', error_code: 'external_id_shared' },
    });
    await change(world);
    const changes = await world.planChanges('places', '1');
    await world.finish(changes.runId, changes.queue);
    await world.drainInbox();
    expect(nameOf(world, 'y_A')).toBe('second');
    expect(await world.recordsOf('places')).toMatchObject({ 2: { status: 'synced' } });
  });
});

describe('an object whose row cannot be read', () => {
  const RAISING: Declaration = {
    ...PLACES,
    from: {
      query:
        "SELECT id, CASE WHEN name = 'bad' THEN (1 / (id - id))::text ELSE code END AS code, name FROM places",
    },
  };

  it('fails alone, and is neither written nor retired', async () => {
    const world = await openPlaces(RAISING);
    for (const id of [1, 2, 3]) await insert(world, id, `A${id}`, 'first');
    await world.sync();
    await world.sql`UPDATE places SET name = CASE WHEN id = 2 THEN 'bad' ELSE 'second' END`;
    const { runId, queue } = await world.planBatches('places', [['1', '2', '3']]);
    await world.sql`UPDATE slotsync.batches SET operation = 'retire', level = 1 WHERE state = 'queued'`;
    await world.finish(runId, queue);
    expect(await world.recordsOf('places')).toMatchObject({
      1: { status: 'synced' },
      2: { status: 'failed', error_code: 'mirror_source' },
      3: { status: 'synced' },
    });
    expect(nameOf(world, 'y_A1')).toBe('second');
    expect([nameOf(world, 'y_A2'), isActive(world, 'y_A2')]).toEqual(['first', true]);
  });
});

describe('a wait for the quota', () => {
  /** Begins a batch; resolves when the service has refused its write, to be sent again two seconds later. */
  async function beginThrottled(world: World, [batch = 0]: readonly number[]) {
    world.sandbox.clearArrivals();
    const headers = { 'retry-after': '2' };
    world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'status', status: 429, headers });
    const applying = world.apply(batch);
    await until(() => world.writes().length, { describe: 'the write to be refused' });
    return { applying };
  }

  it('costs no attempt and no claim, however long it lasts', async () => {
    const world = await openPlaces({ externalId: 'y_{id}', owns: 'object' });
    await insert(world, 1, 'A', 'first');
    const { runId, queue } = await world.plan();
    const { applying } = await beginThrottled(world, queue);
    // Longer than a claim is valid, by the clock of this process.
    world.passDays(1);
    await applying;
    await world.finish(runId, []);
    expect(world.writes().map(({ status }) => status)).toEqual([429, 200]);
    expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'synced', attempts: 0 } });
  });

  it('is followed by a new reading, because people may have changed the object', async () => {
    const world = await openPlaces(
      { externalId: 'y_{id}' },
      // So that the service knows a field that the mapping of places does not own.
      { desks: { ...DESKS, fields: { 'place.note': 'name' }, references: {} } },
    );
    await syncPlaces(world, [1, 'A', 'first']);
    await rename(world, 1, 'second');
    const { runId, queue } = await world.plan('places');
    const { applying } = await beginThrottled(world, queue);
    world.sandbox.changeObject('y_1', { fields: [{ fieldId: 'place.note', values: ['by hand'] }] });
    world.passDays(1);
    await applying;
    await world.finish(runId, []);
    expect(world.fieldsOf('y_1')).toEqual({ 'place.name': 'second', 'place.note': 'by hand' });
  });

  it('is followed by no write when the claim was lost', async () => {
    const world = await openPlaces({ externalId: 'y_{id}', owns: 'object' });
    await insert(world, 1, 'A', 'first');
    const { queue } = await world.plan();
    const { applying } = await beginThrottled(world, queue);
    await world.sql`UPDATE slotsync.records SET claimed_by = 'another'`;
    world.passDays(1);
    await expect(applying).rejects.toMatchObject({ code: 'claim_lost' });
    expect(world.writes().map(({ status }) => status)).toEqual([429]);
  });
});
