// Guarantees 3, 4, 5, 6
// Two rows, or a row and an earlier write, want one object: its owner, and the count towards the limits.
import { describe, expect, it } from 'vitest';
import { linkRecords } from '../../src/state/records/links.js';
import { keepPlaces, PLACES, type PlaceWorld } from '../support/steps.js';

const open = keepPlaces();

const NOTHING = { count: 0, percent: 0 };
/** Sends the creates of these rows. The service carries them out, and their answers are lost. */
async function loseCreates(world: PlaceWorld): Promise<void> {
  const { runId, queue } = await world.plan();
  world.sandbox.failNext({ method: 'PUT', path: '/objects', fault: 'loseAnswer' });
  await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'answer_lost' });
  await world.cancel(runId);
}

describe('a second row with the external id of a record', () => {
  it('does not get the object while the row of the owner cannot be read', async () => {
    const world = await open({
      from: {
        query:
          "SELECT id, CASE WHEN name = 'bad' THEN (1 / (id - id))::text ELSE code END AS code, name FROM places",
      },
    });
    await world.syncPlaces([1, 'A', 'first']);
    await world.rename(1, 'bad');
    await world.insert(2, 'A', 'second');
    const { runId, queue } = await world.planBatches('places', [['2']]);
    await world.finish(runId, queue);
    expect(world.nameOf('y_A')).toBe('first');
    const { 1: owner, 2: other } = await world.recordsOf('places');
    expect(owner).toMatchObject({ external_id: 'y_A' });
    expect(other).toMatchObject({ status: 'failed', error_code: 'external_id_shared' });
  });

  it('does not get the object when the create of the first row has lost its answer', async () => {
    const world = await open();
    await world.insert(1, 'A', 'first');
    await loseCreates(world);
    await world.insert(2, 'A', 'second');
    await world.send('places', '2');
    expect(world.nameOf('y_A')).toBe('first');
    expect(await world.recordOf('2')).toMatchObject({ status: 'failed', error_code: 'external_id_shared' });
  });
});

describe('a contested object that is to be retired', () => {
  it('keeps its record when its row is back before anything is written', async () => {
    const world = await open({ unlessReserved: true });
    await world.syncPlaces([1, 'A', 'first'], [9, 'Z', 'other']);
    const before = await world.recordOf('1');
    await world.sql`DELETE FROM places WHERE id = 1`;
    const { runId, queue } = await world.plan();
    const { ended: applying } = await world.applyHeld(queue[0] ?? 0, { path: '/reservations/find' });
    await world.insert(1, 'A', 'first');
    world.sandbox.clearArrivals();
    world.sandbox.openGate();
    await applying;
    await world.finish(runId, []);
    expect(await world.recordOf('1')).toMatchObject({
      status: 'synced',
      external_id: 'y_A',
      object_hash: before?.object_hash,
    });
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(world.isActive('y_A')).toBe(true);
  });

  it('is retired when the row with its external id is linked to another object', async () => {
    const world = await open();
    await world.syncPlaces([1, 'A', 'first'], [9, 'Z', 'other']);
    world.sandbox.addObject({ extId: 'by_hand', typeId: 'place', fields: [] });
    const link = { stream: 'places', localKey: '2', externalId: 'by_hand', destinationId: null };
    await linkRecords(world.state, [{ ...link, assignsId: false, linkedBy: 'match', fields: null }]);
    await world.sql.begin(async (sql) => {
      await sql`DELETE FROM places WHERE id = 1`;
      await sql`INSERT INTO places VALUES (2, 'A', 'linked')`;
    });
    await world.sync();
    await world.sync();
    expect(world.nameOf('by_hand')).toBe('linked');
    expect(world.activeIds().toSorted()).toEqual(['by_hand', 'y_Z']);
  });
});

describe('a row that only changed its key', () => {
  it('leaves no record of the former key in doubt when its stream retires nothing', async () => {
    const world = await open({ retire: 'keep' });
    await world.syncPlaces([1, 'A', 'first'], [9, 'Z', 'other']);
    await world.sql`UPDATE places SET id = 2 WHERE id = 1`;
    // A batch of a run that was planned before the row of the former key went.
    const { runId, queue } = await world.planBatches('places', [['2']]);
    await world.finish(runId, queue);
    await world.sql`UPDATE slotsync.records SET in_doubt = true WHERE local_key = '1'`;
    await world.sync();
    await world.drainInbox();
    expect(await world.recordsOf('places')).toMatchObject({
      2: { status: 'synced', external_id: 'y_A', in_doubt: false },
      9: { status: 'synced', in_doubt: false },
    });
    expect(Object.keys(await world.statusesOf('places'))).toEqual(['2', '9']);
  });

  it('is no create for the limits, even if its former create has lost its answer', async () => {
    const world = await open();
    await world.syncPlaces([9, 'Z', 'other']);
    await world.insert(1, 'A', 'first');
    await loseCreates(world);
    await world.sql`UPDATE places SET id = 2 WHERE id = 1`;
    world.configure({ streams: { places: { ...PLACES, limits: { create: NOTHING, retire: NOTHING } } } });
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', holds: {}, plan: { places: { create: 0, retire: 0 } } });
    expect(world.nameOf('y_A')).toBe('first');
    expect(await world.recordsOf('places')).toMatchObject({ 2: { status: 'synced', external_id: 'y_A' } });
  });
});

describe('creates that have lost their answers', () => {
  it.each([
    ['known to their process', async () => undefined],
    [
      'of a process that died',
      ({ sql }: PlaceWorld) => sql`
        UPDATE slotsync.records SET in_doubt = false, check_after = NULL, claimed_by = 'dead',
          claimed_until = now() - interval '1 second'`,
    ],
  ])('are no overwriting, and no limit holds their newer values: %s', async (_, die) => {
    const world = await open();
    await world.sql`INSERT INTO places SELECT i, 'c' || i, 'first' FROM generate_series(1, 15) AS i`;
    await loseCreates(world);
    await die(world);
    expect(world.activeIds()).toHaveLength(15);
    await world.sql`UPDATE places SET name = 'second'`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', holds: {} });
    expect(world.activeIds().map((extId) => world.nameOf(extId))).toEqual(
      Array.from({ length: 15 }, () => 'second'),
    );
  });
});
