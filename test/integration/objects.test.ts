// Guarantees 2, 3, 4, 6, 7
// Guarantees for each object: whatever key, stream or run a write is for, an older version never stays over a newer one, and no
// object is deactivated that a row has.
import { describe, expect, it } from 'vitest';
import { DESKS, HALLS, PLACES } from '../support/place-worlds.js';
import { keepPlaces, until, type Declaration, type PlaceWorld } from '../support/steps.js';

const openPlaces = keepPlaces();

/** Expects every row to be synced, at the service and in the state. */
async function expectInSync(world: PlaceWorld): Promise<void> {
  await world.comeToRest(); // a record that the sync forgets passes its doubt on, which is followed up later
  const rows = await world.sql<{ id: number; code: string; name: string }[]>`SELECT * FROM places`;
  for (const { id, code, name } of rows) {
    expect([code, world.nameOf(`y_${code}`), world.isActive(`y_${code}`)]).toEqual([code, name, true]);
    expect((await world.recordsOf('places'))[id]).toMatchObject({ status: 'synced', in_doubt: false });
  }
  expect(await world.sql`SELECT FROM slotsync.object_claims`).toHaveLength(0);
}

describe('an object whose row comes back under another key', () => {
  it.each(['fields', 'object'] as const)(
    'is written after the write under way for the former key (owns: %s)',
    async (owns) => {
      const world = await openPlaces({ owns });
      const { runId, queue } = await world.planOlder();
      const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
      await world.replace('A', 2, 'newer');
      const changes = await world.planChanges('places', '1', '2');
      for (const batch of changes.queue)
        await expect(world.apply(batch)).rejects.toMatchObject({ code: 'claimed', disposition: 'defer' });
      world.sandbox.openGate();
      await applying;
      await world.finish(runId, []);
      await world.finish(changes.runId, changes.queue);
      expect(world.nameOf('y_A')).toBe('newer');
      await expectInSync(world);
      expect(Object.keys(await world.recordsOf('places'))).toEqual(['2']);
    },
  );

  it('is never deactivated when the former key is retired', async () => {
    const world = await openPlaces({ unlessReserved: true });
    await world.syncPlaces([1, 'A', 'first'], [9, 'Z', 'other']);
    await world.sql`DELETE FROM places WHERE id = 1`;
    const { runId, queue } = await world.plan();
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { path: '/reservations/find' });
    await world.insert(2, 'A', 'second');
    const changes = await world.planChanges('places', '2');
    await expect(world.apply(changes.queue[0] ?? 0)).rejects.toMatchObject({ code: 'claimed' });
    world.sandbox.clearArrivals();
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    expect(world.writes()).toEqual([]);
    await world.finish(changes.runId, changes.queue);
    expect(world.isActive('y_A')).toBe(true);
    await expectInSync(world);
    expect(await world.statusesOf('places')).toEqual({ 2: 'synced', 9: 'synced' });
  });

  it('is the same object if the other key is in another stream', async () => {
    const world = await openPlaces({}, { halls: HALLS });
    await world.syncPlaces([1, 'A', 'first'], [9, 'Z', 'other']);
    await world.rename(1, 'older');
    const { runId, queue } = await world.plan('places');
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
    await world.replace('A', 1, 'newer', 'halls');
    const changes = await world.planChanges('halls', '1');
    await expect(world.apply(changes.queue[0] ?? 0)).rejects.toMatchObject({ code: 'claimed' });
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    await world.finish(changes.runId, changes.queue);
    await world.sync();
    expect([world.nameOf('y_A'), world.isActive('y_A')]).toEqual(['newer', true]);
    expect(await world.statusesOf('places')).toEqual({ 9: 'synced' });
    expect(await world.statusesOf('halls')).toEqual({ 1: 'synced' });
  });

  it('is not written from a row that changed its external id before the claim', async () => {
    const world = await openPlaces();
    await world.insert(1, 'A', 'a');
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
    expect(world.ids()).toEqual(['y_B']);
    await expectInSync(world);
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
      const run = await world.planOlder();
      await world.loseAnswer(run);
      await world.rename(1, 'newer');
      await world.finish(run.runId, run.queue);
      expect(world.nameOf(extId)).toBe('newer');
      expect(await world.recordsOf('places')).toMatchObject({ 1: { status: 'synced', in_doubt: false } });
      world.sandbox.releaseLate();
      expect(world.nameOf(extId)).toBe('older');
      // Nothing is due before the service cannot carry it out any more.
      expect(await world.drainInbox()).toEqual([]);
      await world.passLateWrites();
      expect(await world.drainInbox()).toHaveLength(1);
      expect(world.nameOf(extId)).toBe('newer');
      world.sandbox.clearArrivals();
      expect(await world.drainInbox()).toEqual([]);
      await world.sync();
      expect(world.writes()).toEqual([]);
    },
  );

  it('costs one check, and no write, when it never landed', async () => {
    const world = await openPlaces({ externalId: 'y_{id}', owns: 'object' });
    await world.insert(1, 'A', 'first');
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
    await world.insert(1, 'A', 'older');
    const run = await world.plan();
    await world.loseAnswer(run);
    await world.rename(1, 'newer');
    await world.finish(run.runId, run.queue);
    world.sandbox.releaseLate();
    await world.passLateWrites();
    await world.sync();
    expect(world.nameOf('y_A')).toBe('newer');
  });

  it('does not reactivate a retired object', async () => {
    const world = await openPlaces();
    const run = await world.planOlder();
    await world.loseAnswer(run);
    await world.sql`DELETE FROM places`;
    await world.finish(run.runId, run.queue);
    await world.syncPlaces([9, 'Z', 'other']);
    expect(world.isActive('y_A')).toBe(false);
    world.sandbox.releaseLate();
    expect(world.isActive('y_A')).toBe(true);
    await world.passLateWrites();
    await world.drainInbox();
    expect(world.isActive('y_A')).toBe(false);
  });
});

it('a retired object that is in doubt is checked again without a second approval', async () => {
  const world = await openPlaces({ limits: { retire: { count: 1, percent: 1 } } });
  for (const id of [1, 2, 3]) await world.insert(id, `A${id}`, 'first');
  await world.syncPlaces([9, 'Z', 'other']);
  await world.sql`UPDATE slotsync.records SET status = 'retired', in_doubt = true WHERE local_key <> '9'`;
  await world.sql`DELETE FROM places WHERE id <> 9`;
  const { run } = await world.sync();
  expect(run).toMatchObject({ status: 'succeeded', holds: {} });
  expect(['y_A1', 'y_A2', 'y_A3'].map((extId) => world.isActive(extId))).toEqual([false, false, false]);
});

describe('a parent that gets another external id', () => {
  it('has a referring record sent again that was being written when the id changed', async () => {
    const world = await openPlaces({}, { desks: DESKS });
    await world.insert(1, 'A', 'a');
    await world.sql`INSERT INTO desks VALUES (1, 'one', 1)`;
    await world.sync();
    await world.sql`UPDATE desks SET name = 'uno'`;
    const { runId, queue } = await world.plan('desks');
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { method: 'PUT' });
    await world.sql`UPDATE places SET code = 'A2'`;
    await world.sync('places');
    await world.retry('1');
    await world.sync('places');
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    expect(world.fieldsOf('desk_1')?.['desk.place']).toBe('y_A');
    await world.drainInbox();
    expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'uno', 'desk.place': 'y_A2' });
  });
});

it('an external id of two rows is sent for the second row when the owner goes or gets another id, without a sync', async () => {
  const world = await openPlaces();
  await world.syncPlaces([1, 'A', 'first'], [3, 'C', 'third']);
  await world.syncPlaces([2, 'A', 'second'], [4, 'C', 'fourth']);
  const refused = { status: 'failed', error_code: 'external_id_shared' };
  expect(await world.recordsOf('places')).toMatchObject({ 2: refused, 4: refused });
  await world.sql`DELETE FROM places WHERE id = 1`;
  await world.setCode(3, 'D');
  await world.send('places', '1', '3');
  await world.drainInbox();
  expect([world.nameOf('y_A'), world.nameOf('y_C')]).toEqual(['second', 'fourth']);
  expect(await world.statusesOf('places')).toMatchObject({ 2: 'synced', 4: 'synced' });
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
    for (const id of [1, 2, 3]) await world.insert(id, `A${id}`, 'first');
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
    expect(world.nameOf('y_A1')).toBe('second');
    expect([world.nameOf('y_A2'), world.isActive('y_A2')]).toEqual(['first', true]);
  });
});

describe('a wait for the quota', () => {
  /** Begins a batch; resolves when the service has refused its write, to be sent again two seconds later. */
  async function beginThrottled(world: PlaceWorld, [batch = 0]: readonly number[]) {
    world.sandbox.clearArrivals();
    const headers = { 'retry-after': '2' };
    world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'status', status: 429, headers });
    const applying = world.apply(batch);
    await until(() => world.writes().length, { describe: 'the write to be refused' });
    return { applying };
  }

  it('costs no attempt and no claim, however long it lasts', async () => {
    const world = await openPlaces({ externalId: 'y_{id}', owns: 'object' });
    await world.insert(1, 'A', 'first');
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
    await world.syncPlaces([1, 'A', 'first']);
    await world.rename(1, 'second');
    const { runId, queue } = await world.plan('places');
    const { applying } = await beginThrottled(world, queue);
    world.edit('y_1', { 'place.note': 'by hand' });
    world.passDays(1);
    await applying;
    await world.finish(runId, []);
    expect(world.fieldsOf('y_1')).toEqual({ 'place.name': 'second', 'place.note': 'by hand' });
  });
});
