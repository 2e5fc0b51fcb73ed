// Guarantees 2, 3, 4, 5, 7
// One record owns all facts of an object. The owner is the record of the row with the external id, even after the object
// changes hands, a change is undone, a parent is forgotten, or the object is renamed at the service.
import { describe, expect, it } from 'vitest';
import type { Mirror } from '../../src/mirror/mirror.js';
import { findRecordByName } from '../../src/sync/operator/explain.js';
import { cancelRuns } from '../support/place-worlds.js';
import { DESKS, HALLS, keepPlaces, type PlaceWorld } from '../support/steps.js';

const open = keepPlaces();

describe('a late write over an object that another record owns now', () => {
  /** Row 1 becomes v2, and its write loses the answer; meanwhile row 2 takes its object over and is accepted. */
  async function loseWriteAndObject(world: PlaceWorld): Promise<void> {
    await world.syncPlaces([1, 'A', 'v1']);
    await world.rename(1, 'v2');
    const { runId, queue } = await world.plan();
    world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'late' });
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
    await world.takeOver({ id: 1, code: 'C' }, 2, 'newest');
    await world.finish(runId, queue);
    await world.send('places', '1', '2');
    expect(world.nameOf('y_A')).toBe('newest');
  }

  it('does not stay, because the object is read again for its owner', async () => {
    const world = await open();
    await loseWriteAndObject(world);
    world.sandbox.releaseLate();
    expect(world.nameOf('y_A')).toBe('v2');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('newest');
    await world.expectOneOwner();
  });

  it('does not stay after a retry of the record that had sent it', async () => {
    const world = await open();
    await loseWriteAndObject(world);
    await world.retry('1');
    await world.sync();
    world.sandbox.releaseLate();
    await world.comeToRest();
    expect([world.nameOf('y_A'), world.nameOf('y_C')]).toEqual(['newest', 'v2']);
    await world.expectOneOwner();
  });

  it('does not stay when the claim of the next owner was lost while both changed their codes', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'v1'], [2, 'B', 'other']);
    await world.rename(1, 'v2');
    const lost = await world.plan();
    await world.loseAnswer(lost);
    await cancelRuns(world);
    await world.sql`UPDATE places SET (code, name) = (CASE id WHEN 1 THEN 'C' ELSE 'A' END, 'newest')`;
    const { runId, queue } = await world.planBatches('places', [['1', '2']]);
    const claimRow2 = (token: string | null) =>
      world.sql`UPDATE slotsync.records SET claimed_by = ${token} WHERE local_key = '2'`;
    const { readRows } = world.mirror;
    const mirror: Mirror = {
      ...world.mirror,
      async readRows(...asked) {
        await claimRow2('another batch');
        return readRows(...asked);
      },
    };
    await expect(world.apply(queue[0] ?? 0, undefined, { ...world.deps(), mirror })).rejects.toMatchObject({
      code: 'claimed',
    });
    await claimRow2(null);
    await world.finish(runId, queue);
    expect(world.nameOf('y_A')).toBe('newest');
    world.sandbox.releaseLate();
    expect(world.nameOf('y_A')).toBe('v2');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('newest');
    await world.expectOneOwner();
  });
});

describe('a change of owner that is undone', () => {
  /** Row 1 has C by mistake, and row 2 has A. */
  async function giveAway(world: PlaceWorld): Promise<void> {
    await world.syncPlaces([1, 'A', 'v1'], [9, 'Z', 'other']);
    await world.takeOver({ id: 1, code: 'C' }, 2, 'newest');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('newest');
  }

  it('has the first row sent again, before or after the object was retired for the second row', async () => {
    const world = await open();
    for (const isRetired of [false, true]) {
      await giveAway(world);
      await world.sql.begin(async (sql) => {
        await sql`DELETE FROM places WHERE id = 2`;
        if (!isRetired) await sql`UPDATE places SET code = 'A' WHERE id = 1`;
      });
      if (isRetired) {
        await world.sync();
        expect(world.isActive('y_A')).toBe(false);
        await world.setCode(1, 'A');
      }
      await world.comeToRest();
      expect([world.nameOf('y_A'), world.isActive('y_A')]).toEqual(['v1', true]);
      await world.expectOneOwner();
      await world.sql`DELETE FROM places`;
    }
  });

  it('has the first row sent again after a retry in a stream that retires nothing', async () => {
    const world = await open({ retire: 'keep' });
    await giveAway(world);
    await world.sql`DELETE FROM places WHERE id = 2`;
    await world.setCode(1, 'A');
    await world.retry('1');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('v1');
    await world.expectOneOwner();
  });

  it('has the first row sent again although it was synced under another code', async () => {
    const world = await open();
    await giveAway(world);
    await world.retry('1');
    await world.comeToRest();
    expect(world.nameOf('y_C')).toBe('v1');
    await world.replace('A', 3, 'third');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('third');
    await world.sql.begin(async (sql) => {
      await sql`DELETE FROM places WHERE id = 3`;
      await sql`UPDATE places SET code = 'A' WHERE id = 1`;
    });
    await world.comeToRest();
    expect([world.nameOf('y_A'), world.isActive('y_A')]).toEqual(['v1', true]);
    await world.expectOneOwner();
  });

  it('has the row sent again that comes back from a stream that has retired the object', async () => {
    const world = await open({}, { halls: HALLS });
    await world.insert(1, 'A', 'v1');
    await world.insert(9, 'Z', 'other');
    await world.insert(9, 'Y', 'other', 'halls');
    await world.sync();
    await world.replace('A', 1, 'hall', 'halls');
    await world.comeToRest();
    expect(world.nameOf('y_A')).toBe('hall');
    await world.sql`DELETE FROM halls WHERE id = 1`;
    await world.sync();
    expect(world.isActive('y_A')).toBe(false);
    await world.insert(1, 'A', 'v1');
    await world.comeToRest();
    await world.expectOneOwner();
  });

  it('has no object made for the code that the first row had before, when it is undone during the batch', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'v1'], [9, 'Z', 'other']);
    await world.takeOver({ id: 1, code: 'C' }, 2, 'newest');
    const { runId, queue } = await world.planBatches('places', [['1', '2']]);
    const { findKeysByExternalId } = world.mirror;
    const mirror: Mirror = {
      ...world.mirror,
      async findKeysByExternalId(...asked) {
        await world.sql.begin(async (sql) => {
          await sql`DELETE FROM places WHERE id = 2`;
          await sql`UPDATE places SET code = 'A' WHERE id = 1`;
        });
        return findKeysByExternalId(...asked);
      },
    };
    await expect(world.apply(queue[0] ?? 0, undefined, { ...world.deps(), mirror })).rejects.toMatchObject({
      code: 'claimed',
    });
    await world.finish(runId, queue);
    await world.comeToRest();
    expect(world.activeIds()).toEqual(['y_A', 'y_Z']);
    await world.expectOneOwner();
  });
});

describe('rows that exchange their objects', () => {
  it('swap two objects, or move on by one in a chain whose last object is new', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'one'], [2, 'B', 'two'], [3, 'C', 'three'], [4, 'D', 'four']);
    await world.sql`UPDATE places SET code = CASE code WHEN 'A' THEN 'B' WHEN 'B' THEN 'A' WHEN 'C' THEN 'D' ELSE 'E' END`;
    await world.comeToRest();
    expect(['A', 'B', 'D', 'E'].map((code) => world.nameOf(`y_${code}`))).toEqual([
      'two',
      'one',
      'three',
      'four',
    ]);
    await world.expectOneOwner();
  });

  it('wait for an operator when only one is renamed, and keep their objects until then', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'one']);
    await world.setCode(1, 'B');
    await world.comeToRest();
    expect(await world.recordOf('1')).toMatchObject({ status: 'dead', error_code: 'external_id_changed' });
    expect(world.activeIds()).toEqual(['y_A']);
    await world.retry('1');
    await world.comeToRest();
    expect(world.nameOf('y_B')).toBe('one');
    await world.expectOneOwner();
  });
});

it('the owner of an object that changed hands is found by external id and number, and compared by verify', async () => {
  const world = await open();
  await world.syncPlaces([1, 'A', 'v1']);
  await world.takeOver({ id: 1, code: 'C' }, 2, 'newest');
  await world.sync();
  await world.drainInbox();
  expect(world.nameOf('y_A')).toBe('newest');
  const { id = 0 } = world.sandbox.object('y_A') ?? {};
  const find = (named: string) => findRecordByName(world.deps(), world.stream('places'), [named]);
  expect([await find('y_A'), await find(`#${id}`)]).toEqual([{ key: '2' }, { key: '2' }]);
  await world.passHour();
  world.edit('y_A', { 'place.name': 'by hand' });
  await world.verify();
  const fields = { 'place.name': { here: ['newest'], there: ['by hand'] } };
  expect(await world.sql`SELECT local_key, kind, fields FROM slotsync.drift`).toEqual([
    { local_key: '2', kind: 'changed', fields },
  ]);
});

describe('a parent', () => {
  const placeOf = (world: PlaceWorld, desk: string) => world.fieldsOf(desk)?.['desk.place'];

  /** Place 1 has y_A, and desk 1 stands in it. */
  async function openWithDesk(): Promise<PlaceWorld> {
    const world = await open({}, { desks: DESKS });
    await world.insert(1, 'A', 'a');
    await world.insert(9, 'Z', 'other');
    await world.sql`INSERT INTO desks VALUES (1, 'one', 1)`;
    await world.sync();
    expect(placeOf(world, 'desk_1')).toBe('y_A');
    return world;
  }

  it.each([
    ['object was taken over by another row', (world: PlaceWorld) => world.replace('A', 2, 'second')],
    [
      'object was removed at the service',
      async (world: PlaceWorld) => {
        await world.sql`DELETE FROM places WHERE id = 1`;
        world.sandbox.removeObject('y_A');
      },
    ],
  ])('is followed by its children when it comes back with another external id: its %s', async (_, forget) => {
    const world = await openWithDesk();
    await forget(world);
    await world.sync();
    await world.sync();
    expect(await world.recordOf('1')).toBeUndefined();
    await world.syncPlaces([1, 'B', 'b']);
    await world.sync();
    expect(world.nameOf('y_B')).toBe('b');
    expect(placeOf(world, 'desk_1')).toBe('y_B');
    expect(await world.recordOf('1', 'desks')).toMatchObject({ status: 'synced', in_doubt: false });
  });

  it.each([
    ['its operator retries it', 'y_B', (world: PlaceWorld): Promise<unknown> => world.retry('1')],
    ['its row is as before', 'y_A', async (world: PlaceWorld): Promise<unknown> => world.setCode(1, 'A')],
  ])(
    'keeps its children waiting, when given up with another external id, until %s',
    async (_, extId, settle) => {
      const world = await openWithDesk();
      await world.setCode(1, 'B');
      await world.sync();
      expect(await world.recordOf('1')).toMatchObject({ status: 'dead', error_code: 'external_id_changed' });
      await world.sql`UPDATE desks SET name = 'uno' WHERE id = 1`;
      await world.sql`INSERT INTO desks VALUES (2, 'two', 1)`;
      await world.sync();
      const waits = { status: 'deferred', error_code: 'reference_missing' };
      expect(await world.recordsOf('desks')).toMatchObject({ 1: waits, 2: waits });
      expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'one', 'desk.place': 'y_A' });
      expect(world.fieldsOf('desk_2')).toBeUndefined();
      await settle(world);
      await world.sync();
      await world.sync();
      expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'uno', 'desk.place': extId });
      expect(world.fieldsOf('desk_2')).toEqual({ 'desk.name': 'two', 'desk.place': extId });
      expect(await world.statusesOf('desks')).toEqual({ 1: 'synced', 2: 'synced' });
    },
  );
});

describe('an object that was renamed at the service', () => {
  it.each([
    ['its key', 'y_{id}', 'y_1'],
    ['another column', 'y_{code}', 'y_A'],
  ])('is not created a second time (external id from %s)', async (_, externalId, extId) => {
    const world = await open({ externalId });
    await world.syncPlaces([1, 'A', 'before']);
    const { id } = world.sandbox.changeObject(extId, { extId: 'by_hand' });
    await world.rename(1, 'after');
    await world.sync();
    await world.sync();
    expect(world.sandbox.objects().map((object) => object.extId)).toEqual(['by_hand']);
    expect(world.nameOf('by_hand')).toBe('before');
    const record = await world.recordOf('1');
    expect(record).toMatchObject({ status: 'dead', error_code: 'external_id_changed_there' });
    for (const named of [String(id), extId, 'by_hand']) expect(record?.error_message).toContain(named);

    world.sandbox.changeObject('by_hand', { extId });
    await world.retry('1');
    await world.sync();
    expect(world.sandbox.objects()).toMatchObject([{ id, extId }]);
    expect(world.nameOf(extId)).toBe('after');
    expect(await world.recordOf('1')).toMatchObject({ status: 'synced', in_doubt: false });
  });

  it('is not created a second time when it is owned as a whole and in doubt', async () => {
    const world = await open({ owns: 'object' });
    await world.syncPlaces([1, 'A', 'before']);
    world.sandbox.changeObject('y_A', { extId: 'by_hand' });
    await world.rename(1, 'after');
    await world.sql`UPDATE slotsync.records SET in_doubt = true`;
    await world.sync();
    expect(world.sandbox.objects().map((object) => object.extId)).toEqual(['by_hand']);
    expect(await world.recordOf('1')).toMatchObject({ error_code: 'external_id_changed_there' });
  });

  it('is created again if it was deleted instead', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'before']);
    world.sandbox.removeObject('y_A');
    await world.rename(1, 'after');
    await world.sync();
    expect(world.nameOf('y_A')).toBe('after');
    await world.expectOneOwner();
  });
});
