// Guarantee 5
// Links: made only where no fact contradicts them, and followed by the writes of rows.
import { describe, expect, it } from 'vitest';
import { linkRecords, unlinkRecords, type NewLink } from '../../src/state/records/links.js';
import { claimObjects } from '../../src/state/records/claims.js';
import { keepRooms, rooms, until } from '../support/steps.js';

const open = keepRooms();

const link = (localKey: string, externalId: string, more: Partial<NewLink> = {}): NewLink => ({
  stream: 'rooms',
  localKey,
  externalId,
  destinationId: null,
  assignsId: false,
  linkedBy: 'match',
  fields: ['room.name'],
  ...more,
});

describe('linkRecords', () => {
  it('links keys without a record, and keys whose record was never accepted', async () => {
    const world = await open(rooms());
    await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status) VALUES
      ('rooms', 'B', 'room_B', 'failed')`;
    const { linked, refused } = await linkRecords(world.state, [link('A', 'old_A'), link('B', 'old_B')]);
    expect(linked.map(({ localKey }) => localKey)).toEqual(['A', 'B']);
    expect(refused).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({ B: { external_id: 'old_B' } });
    expect(await world.sql`SELECT FROM slotsync.object_claims`).toHaveLength(0);
  });

  it('refuses what another fact contradicts, and makes at most one of several links to one object', async () => {
    const world = await open(rooms(), { synced: ['S'] });
    await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status, in_doubt) VALUES
      ('rooms', 'D', 'room_D', 'failed', true)`;
    await claimObjects(world.state.db, { token: 'batch', seconds: 60 }, ['busy']);
    await linkRecords(world.state, [link('A', 'old_A', { destinationId: '7' })]);
    const contradicted: [what: string, wanted: NewLink, reason: RegExp][] = [
      ['a second link of a key', link('A', 'other'), /already linked to 'old_A'/],
      ['a second link to an object', link('B', 'old_A'), /rooms 'A' is already linked to 'old_A'/],
      ['a second link to a number', link('B', 'other', { destinationId: '7' }), /number 7/],
      ['an object that was accepted as another record', link('B', 'room_S'), /rooms 'S' owns the object/],
      ['a key whose object was accepted', link('S', 'other'), /owns the object 'room_S'/],
      ['an object whose write is in doubt', link('B', 'room_D'), /rooms 'D' owns the object/],
      ['a key whose write is in doubt', link('D', 'other'), /owns the object 'room_D'/],
      ['an object that a batch has claimed', link('B', 'busy'), /a batch is writing/],
    ];
    for (const [what, wanted, reason] of contradicted) {
      const { linked, refused } = await linkRecords(world.state, [wanted]);
      expect([what, linked]).toEqual([what, []]);
      expect(refused).toEqual([{ link: wanted, reason: expect.stringMatching(reason) }]);
      expect(await world.sql`SELECT FROM slotsync.links`).toHaveLength(1);
    }
    const made = await Promise.all(
      ['E', 'F', 'G'].map((key) => linkRecords(world.state, [link(key, 'old')])),
    );
    expect(made.flatMap(({ linked }) => linked).length).toBeLessThanOrEqual(1);
    expect(made.flatMap(({ refused }) => refused).length).toBeGreaterThanOrEqual(2);
  });

  it('protects a link that is made while a batch claims the same records', async () => {
    const world = await open(rooms());
    await world.addRooms('1');
    const CLAIMING = 4711;
    await world.sql.unsafe(`
      CREATE FUNCTION wait_claiming() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_advisory_xact_lock_shared(${CLAIMING}); RETURN NULL; END $$;
      CREATE TRIGGER wait_claiming AFTER INSERT ON slotsync.records
        FOR EACH ROW WHEN (NEW.claimed_by IS NOT NULL) EXECUTE FUNCTION wait_claiming()`);
    const syncing = await world.sql.begin(async (tx) => {
      await tx`SELECT pg_advisory_xact_lock(${CLAIMING})`;
      const begun = world.sync();
      const isWaiting = async () =>
        (await tx`SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`).length > 0;
      await until(isWaiting, { describe: 'the batch to claim' });
      expect((await linkRecords(world.state, [link('A', 'room_1')])).linked).toHaveLength(1);
      return { begun };
    });
    await syncing.begun;
    expect(await world.recordsOf('rooms')).toMatchObject({ 1: { error_code: 'external_id_shared' } });
    expect(world.sandbox.objects()).toEqual([]);
  });
});

describe('a link to an object without an external id', () => {
  it('says that its external id is to be assigned when the service refuses the write', async () => {
    const world = await open({ ...rooms(), service: { assignExternalIds: true } });
    await world.addRooms('A', 'B');
    const { id } = world.addObject(null);
    await linkRecords(world.state, [link('A', 'room_A', { destinationId: String(id), assignsId: true })]);
    await world.sync();
    expect((await world.recordOf('A'))?.error_message).toContain(
      `this write assigns the external id 'room_A' to object ${id}: if the service cannot assign ids, enter the id there`,
    );
  });

  it('writes nothing when the object has got another external id at the service', async () => {
    const world = await open(
      { ...rooms(), service: { assignExternalIds: true } },
      { sandbox: { assignsExternalIds: true } },
    );
    await world.addRooms('A');
    const { id } = world.addObject(null);
    await linkRecords(world.state, [link('A', 'room_A', { destinationId: String(id), assignsId: true })]);
    world.sandbox.changeObject(id, { extId: 'by_hand' });
    await world.sync();
    await world.sync();
    expect(world.writes()).toEqual([]);
    expect(world.sandbox.objects()).toMatchObject([{ id, extId: 'by_hand', fields: [] }]);
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'dead',
        error_code: 'link_broken',
        error_message: `the record is linked to the object number ${id}, which has the external id 'by_hand' now, not 'room_A'`,
      },
    });
  });
});

it('a linked row without a record is planned as an update, by a preview and by a run', async () => {
  const world = await open(rooms());
  await world.addRooms('A', 'B', 'C');
  for (const [extId, name] of [
    ['old_A', 'Room A'],
    ['old_B', 'By hand'],
  ] as const)
    world.sandbox.addObject({ extId, typeId: 'room', fields: [{ fieldId: 'room.name', values: [name] }] });
  await linkRecords(world.state, [link('A', 'old_A'), link('B', 'old_B')]);
  const { counts, samples } = await world.preview();
  expect(counts).toMatchObject({ create: 1, update: 2 });
  expect(Object.fromEntries(samples.map(({ key, operation }) => [key, operation]))).toEqual({
    A: 'update',
    B: 'overwrite',
    C: 'create',
  });
  const { run } = await world.sync();
  expect(run.plan).toMatchObject({ rooms: { create: 1, update: 2 } });
  expect(world.sandbox.objects()).toHaveLength(3);
});

describe('a link that is made or undone', () => {
  it('has a record sent again that was given up without the link', async () => {
    const world = await open(rooms({ match: ['room.name'] }));
    await world.addRooms('A');
    for (const extId of ['one', 'two']) world.addObject(extId, { 'room.name': 'Room A' });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { error_code: 'match_ambiguous' } });
    await linkRecords(world.state, [link('A', 'one')]);
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced', external_id: 'one' } });
  });

  it('is seen by the next run when it is undone, although the row has not changed', async () => {
    const world = await open(rooms());
    await world.addRooms('A', 'B');
    for (const extId of ['old_A', 'old_B']) world.addObject(extId);
    await linkRecords(world.state, [link('A', 'old_A')]);
    await world.sync('rooms');
    await world.sql`UPDATE slotsync.records SET object_hash = NULL, status = 'failed' WHERE local_key = 'B'`;
    await linkRecords(world.state, [link('B', 'old_B')]);
    const undone = await unlinkRecords(world.state.db, 'rooms', ['A', 'B', 'C']);
    expect(undone.map(({ externalId }) => externalId).toSorted()).toEqual(['old_A', 'old_B']);
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'dead', error_code: 'external_id_changed', external_id: 'old_A' },
      B: { status: 'synced', external_id: 'room_B' },
    });
  });
});
