// Guarantee 4
// The rename of a key: the object follows the row with its number and its bookings, or nothing changes.
import { describe, expect, it } from 'vitest';
import { runDocument } from '../../src/documents/runs.js';
import { readRunFacts } from '../../src/situation/run-facts.js';
import type { Run } from '../../src/state/runs/read-runs.js';
import { failuresDocument } from '../../src/documents/failures.js';
import { answerToText, plain } from '../../src/render/text.js';
import { readFailuresFacts } from '../../src/situation/failures.js';
import { claimRecords, claimObjects } from '../../src/state/records/claims.js';
import type { Row } from '../../src/streams/config-schema.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import { COURSES, type Declaration } from '../support/campus.js';
import { keepRooms, ROOMS, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const MOVED = `UPDATE rooms SET code = 'B' WHERE code = 'A'`;
const renameRow = (world: RoomWorld, from: string, to: string) =>
  world.sql`UPDATE rooms SET code = ${to} WHERE code = ${from}`;
const rename = (world: RoomWorld, from: string, to: string) =>
  renameKey(world.deps(), world.stream('rooms'), { from, to });
const linksOf = (world: RoomWorld) => world.sql<
  { local_key: string; external_id: string; linked_by: string }[]
>`
  SELECT local_key, external_id, linked_by FROM slotsync.links ORDER BY local_key`;

/** Lets a world begin anew: rooms A and C were accepted, and nothing is left of what was before. */
async function beginAnew(world: RoomWorld): Promise<void> {
  await world.sql`
    TRUNCATE rooms, slotsync.streams, slotsync.records, slotsync.links, slotsync.object_claims, slotsync.gates, slotsync.held,
      slotsync.sent, slotsync.changes`;
  for (const extId of world.ids()) world.sandbox.removeObject(extId ?? '');
  await world.addRooms('A', 'C');
  await world.sync();
}

const claimsOf = async ({ sql }: RoomWorld) => [
  ...(await sql`SELECT external_id FROM slotsync.object_claims WHERE claimed_by LIKE 'rename%'`),
];

describe('rename', () => {
  it('lets the object follow the row with its number, and creates or retires no object', async () => {
    const world = await open(rooms({ retire: 'deactivate' }), { synced: ['A', 'C'] });
    const { id } = world.sandbox.object('room_A') ?? {};
    await world.sql`UPDATE rooms SET code = 'B', seats = 4 WHERE code = 'A'`;
    expect(await rename(world, 'A', 'B')).toEqual({
      externalId: 'room_A',
      isLinked: true,
      former: undefined,
      templateId: 'room_B',
    });
    expect(await linksOf(world)).toEqual([{ local_key: 'B', external_id: 'room_A', linked_by: 'rename' }]);
    await world.drainInbox();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', C: 'synced' });
    expect(world.sandbox.object('room_A')).toMatchObject({ id, active: true });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.seats': '4' });
    expect(world.sandbox.objects()).toHaveLength(2);
    await world.expectNothingToSend();
  });

  it('makes no link where the template makes the same external id, and moves an existing link', async () => {
    const world = await open(rooms({ externalId: 'room_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    await world.sync();
    await renameRow(world, 'A', 'B');
    expect(await rename(world, 'A', 'B')).toMatchObject({ isLinked: false });
    expect(await linksOf(world)).toEqual([]);
    await world.sql`UPDATE rooms SET code = 'C', number = '3'`;
    expect(await rename(world, 'B', 'C')).toMatchObject({ isLinked: true });
    await renameRow(world, 'C', 'D');
    expect(await rename(world, 'C', 'D')).toMatchObject({ isLinked: true });
    expect(await linksOf(world)).toEqual([{ local_key: 'D', external_id: 'room_1', linked_by: 'rename' }]);
    await world.sync();
    await world.sql`UPDATE rooms SET code = 'E', number = '1'`;
    expect(await rename(world, 'D', 'E')).toMatchObject({ isLinked: false });
    expect(await linksOf(world)).toEqual([]);
    await world.sync();
    expect(world.sandbox.objects().map(({ extId, active }) => [extId, active])).toEqual([['room_1', true]]);
    expect(await world.statusesOf('rooms')).toEqual({ E: 'synced' });
  });

  it('reactivates a retired object, and replaces a record that was never accepted', async () => {
    const world = await open(rooms({ retire: 'deactivate' }), { synced: ['A', 'C'] });
    await world.remove('A');
    await world.sync();
    await world.addRooms('B');
    world.refuse('room_B');
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'retired', B: 'failed' });
    await world.sql`UPDATE slotsync.records SET check_after = NULL WHERE local_key = 'B'`;
    await rename(world, 'A', 'B');
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced', C: 'synced' });
    expect(world.sandbox.object('room_A')).toMatchObject({ active: true });
    expect(world.sandbox.object('room_B')).toBeUndefined();
  });

  it('wakes what waits for the new key, and moves waiting records, drift and changes', async () => {
    const world = await open(roomsAndCourses(), { synced: ['A'] });
    await world.sql`INSERT INTO courses VALUES ('1', 'One', 'B')`;
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ 1: 'deferred' });
    await renameRow(world, 'A', 'B');
    await world.sql`
      INSERT INTO slotsync.drift (stream, local_key, kind, seen_at) VALUES ('rooms', 'A', 'changed', now())`;
    await world.sql`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
    await rename(world, 'A', 'B');
    expect(await world.sql`SELECT local_key FROM slotsync.drift`).toMatchObject([{ local_key: 'B' }]);
    expect(await world.sql`SELECT FROM slotsync.changes WHERE local_key = 'A'`).toHaveLength(0);
    await world.drainInbox();
    expect(await world.statusesOf('courses')).toEqual({ 1: 'synced' });
    expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_A' });
  });

  it('keeps the object from a later row of the template, whose record names the owner', async () => {
    const world = await open(rooms(), { synced: ['A'] });
    await renameRow(world, 'A', 'B');
    await rename(world, 'A', 'B');
    await world.addRooms('A');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { error_code: 'external_id_shared', error_message: expect.stringContaining("rooms 'B'") },
      B: { status: 'synced', external_id: 'room_A' },
    });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'Room A' });
  });

  const ADDED = `INSERT INTO rooms (code, name) VALUES ('B', 'Room B')`;
  const GONE = `DELETE FROM rooms WHERE code = 'A'`;
  const CLAIM = `'another', now() + interval '1 minute'`;
  const RECORD = `${MOVED}; INSERT INTO slotsync.records (stream, local_key, status`;
  const REFUSED: [when: string, prepare: string, keys: string, reason: RegExp][] = [
    ['both rows are there', ADDED, 'A B', /'A' is still in the mirror, and so is that of 'B'/],
    ['the old row is there', '', 'A B', /'A' is still in the mirror$/],
    ['both keys are one', '', 'A A', /both keys/],
    ['there is no new row', GONE, 'A B', /'B' has no row/],
    ['there is no record', ADDED, 'X B', /'X' has no object/],
    ['the new record has an object', GONE, 'A C', /'room_C', from a time when the row of 'A' was there too/],
    [
      'a batch writes the old record',
      `${MOVED}; UPDATE slotsync.records SET (claimed_by, claimed_until) = (${CLAIM}) WHERE local_key = 'A'`,
      'A B',
      /a batch is writing/,
    ],
    [
      'a batch writes the new record',
      `${RECORD}, claimed_by, claimed_until) VALUES ('rooms', 'B', 'pending', ${CLAIM})`,
      'A B',
      /a batch is writing/,
    ],
    [
      'a batch writes the object',
      `${MOVED}; INSERT INTO slotsync.object_claims VALUES ('room_A', ${CLAIM})`,
      'A B',
      /a batch is writing/,
    ],
    [
      'a write of the new record is in doubt',
      `${RECORD}, in_doubt) VALUES ('rooms', 'B', 'failed', true)`,
      'A B',
      /may have been sent/,
    ],
    [
      'the new key is linked',
      `${MOVED}; INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'B', 'x', 'match')`,
      'A B',
      /linked to 'x'/,
    ],
  ];
  it('is refused in each of these cases, and changes nothing', async () => {
    const world = await open(rooms());
    for (const [when, prepare, keys, reason] of REFUSED) {
      await beginAnew(world);
      await world.sql.unsafe(prepare);
      const [from = '', to = ''] = keys.split(' ');
      const before = await world.recordsOf('rooms');
      const message = expect.stringMatching(reason);
      await expect(rename(world, from, to), when).rejects.toMatchObject({ code: 'usage', message });
      expect(await world.recordsOf('rooms'), when).toEqual(before);
      expect((await linksOf(world)).filter(({ linked_by }) => linked_by === 'rename')).toEqual([]);
      expect(await claimsOf(world), when).toEqual([]);
    }
  });
});

describe('rename after a run with the new key', () => {
  /** A has become B in the mirror, and a run has made an object for B; of A there is a booking. */
  async function openWithBoth(changes: Partial<Declaration> = {}): Promise<RoomWorld> {
    const world = await open({
      streams: { courses: COURSES, rooms: { ...ROOMS, retire: 'deactivate', ...changes } },
    });
    await world.addRooms('A', 'C');
    await world.sql`INSERT INTO courses VALUES ('1', 'One', 'A')`;
    await world.sync();
    await renameRow(world, 'A', 'B');
    await world.sql`UPDATE courses SET room = 'B'`;
    return world;
  }

  /** The same, after the changes went at once, as triggers note them: the record of A is as it was. */
  async function openSeen(changes: Partial<Declaration> = {}): Promise<RoomWorld> {
    const world = await openWithBoth(changes);
    await addChanges(world.state.db, 'rooms', ['B']);
    await world.push('courses', '1');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
    return world;
  }

  /** The row of B is room_A at the service, with its course, and of room_B nothing is left but an inactive object. */
  async function expectFollowed(world: RoomWorld, id: number | undefined): Promise<void> {
    await world.drainInbox();
    expect(world.sandbox.object('room_A')).toMatchObject({ id, active: true });
    expect(world.fieldsOf('room_A')).toMatchObject({ 'room.name': 'Room A' });
    expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_A' });
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      B: { status: 'synced', external_id: 'room_A' },
      '#former room_B': { status: 'retired', external_id: 'room_B', former_key: 'B' },
    });
    expect(world.isActive('room_B')).toBe(false);
    expect(await linksOf(world)).toEqual([{ local_key: 'B', external_id: 'room_A', linked_by: 'rename' }]);
    await world.expectNothingToSend();
  }

  it.each<Partial<Declaration>>([{ owns: 'fields' }, { owns: 'object' }])(
    'lets the former object follow the row, and retires the object of the new key: %j',
    async (changes) => {
      const world = await openSeen(changes);
      const { id } = world.sandbox.object('room_A') ?? {};
      expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_B' });
      expect(await rename(world, 'A', 'B')).toMatchObject({ externalId: 'room_A', former: 'room_B' });
      await expectFollowed(world, id);
    },
  );

  it.each<Partial<Declaration>>([
    { retire: 'deactivate' },
    { retire: 'keep' },
    { retire: 'deactivate', graceDays: 7 },
  ])('is refused if a sync has read both rows since the new row was accepted: %j', async (changes) => {
    const world = await open(rooms(changes), { synced: ['A', 'C'] });
    await world.addRooms('B');
    await world.sync();
    await world.sync();
    const isRetired = changes.retire === 'deactivate' && changes.graceDays === undefined;
    // Even if the new row was accepted again.
    if (isRetired) await world.rename('B', 'accepted again').then(() => world.push('rooms', 'B'));
    await world.remove('A');
    const expectRefused = async () => {
      await world.forgetFinishedRuns();
      const before = await world.recordsOf('rooms');
      await expect(rename(world, 'A', 'B')).rejects.toThrow(/object of its own, 'room_B'/);
      expect(await world.recordsOf('rooms')).toEqual(before);
    };
    await expectRefused();
    // Even if a later sync found the former row gone.
    if (isRetired) return;
    await world.sync();
    await expectRefused();
  });

  it.each<Partial<Declaration>>([
    { retire: 'keep' },
    { graceDays: 7 },
    { limits: { retire: { count: 0, percent: 0 } } },
    { unlessReserved: true },
  ])('is possible after any number of runs over both keys: %j', async (changes) => {
    const world = await openWithBoth(changes);
    if (changes.unlessReserved) world.book('room_A');
    for (let run = 0; run < 3; run++) await world.sync();
    expect(world.isActive('room_A')).toBe(true);
    expect(await rename(world, 'A', 'B')).toMatchObject({ externalId: 'room_A', former: 'room_B' });
  });

  it('reactivates the former object if it was retired', async () => {
    const world = await openWithBoth();
    const { id } = world.sandbox.object('room_A') ?? {};
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'retired', B: 'synced' });
    expect(world.isActive('room_A')).toBe(false);
    await rename(world, 'A', 'B');
    await expectFollowed(world, id);
  });

  it('retires the object of the new key under the limits, and not while it is booked', async () => {
    const world = await openSeen({ limits: { retire: { count: 0, percent: 0 } } });
    await rename(world, 'A', 'B');
    expect((await world.sync()).run.status).toBe('held');
    expect(world.isActive('room_B')).toBe(true);

    const booked = await openSeen();
    booked.book('room_B');
    await rename(booked, 'A', 'B');
    await booked.sync();
    expect(booked.isActive('room_B')).toBe(true);
    expect(await booked.recordOf('#former room_B')).toMatchObject({ error_code: 'still_reserved' });
  });

  it('keeps the object of the new key, and the doubt about it, where the stream retires nothing', async () => {
    const world = await openSeen({ retire: 'keep' });
    // The doubt about the object passes on, with the time of its check.
    await world.sql`
      UPDATE slotsync.records SET in_doubt = true, check_after = now() + interval '1 hour' WHERE local_key = 'B'`;
    const factsOf = (key: string) => world.sql`
      SELECT in_doubt, check_after, destination_id, object_hash FROM slotsync.records WHERE local_key = ${key}`;
    const before = await factsOf('B');
    await rename(world, 'A', 'B');
    expect(await factsOf('#former room_B')).toEqual(before);
    await world.passLateWrites();
    await world.drainInbox();
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([true, true]);
    expect(await world.recordOf('#former room_B')).toMatchObject({ external_id: 'room_B' });
    await world.expectNothingToSend();
  });

  it('is refused after a batch of the new key was killed, until a run has settled its write', async () => {
    const world = await openSeen();
    const { id } = world.sandbox.object('room_A') ?? {};
    const claim = { token: 't', stream: 'rooms', seconds: -1, lateSeconds: 60 };
    const { binding } = world.destination;
    await claimRecords(world.state.db, { ...claim, keys: ['B'], runId: 1, binding });
    await expect(rename(world, 'A', 'B')).rejects.toThrow(/'B' may have been sent, and its answer was lost/);
    await world.push('rooms', 'B');
    await rename(world, 'A', 'B');
    await world.passLateWrites();
    await world.sync();
    await expectFollowed(world, id);
  });

  it('lets the row go back to its former key, before a run has seen that and after', async () => {
    const world = await openSeen();
    const { id } = world.sandbox.object('room_A') ?? {};
    await rename(world, 'A', 'B');
    await expectFollowed(world, id);
    for (const isSeen of [false, true]) {
      await renameRow(world, 'B', 'A');
      await world.sql`UPDATE courses SET room = 'A'`;
      if (isSeen) await world.push('rooms', 'A');
      await rename(world, 'B', 'A');
      await world.drainInbox();
      await world.sync();
      expect(await linksOf(world)).toEqual([]);
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'synced', external_id: 'room_A' },
      });
      expect(world.sandbox.object('room_A')).toMatchObject({ id, active: true });
      expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_A' });
      expect(world.isActive('room_B')).toBe(false);
      await world.expectNothingToSend();
      await renameRow(world, 'A', 'B');
      await world.sql`UPDATE courses SET room = 'B'`;
      await rename(world, 'A', 'B');
      await expectFollowed(world, id);
    }
  });

  it('can be reversed, so that the released object follows the row again', async () => {
    const world = await openSeen();
    await rename(world, 'A', 'B');
    await world.drainInbox();
    await world.sync();
    expect(world.isActive('room_B')).toBe(false);
    await rename(world, '#former room_B', 'B');
    await world.drainInbox();
    await world.sync();
    expect([world.isActive('room_A'), world.isActive('room_B')]).toEqual([false, true]);
    expect(world.fieldsOf('course_1')).toMatchObject({ 'course.room': 'room_B' });
    expect(await linksOf(world)).toEqual([]);
    await world.expectNothingToSend();
  });

  it('is refused when a batch writes either object, even one taken over meanwhile, and changes nothing', async () => {
    const world = await openSeen();
    const before = await world.recordsOf('rooms');
    const { mirror, ...deps } = world.deps();
    const slow: typeof mirror = {
      ...mirror,
      async findReferrers(...asked) {
        await world.sql`UPDATE slotsync.object_claims SET claimed_until = now() - interval '1 second'`;
        await claimObjects(world.state.db, { token: 't', seconds: 60 }, ['room_A']);
        return mirror.findReferrers(...asked);
      },
    };
    const renamed = renameKey({ ...deps, mirror: slow }, world.stream('rooms'), { from: 'A', to: 'B' });
    await expect(renamed).rejects.toThrow(/a batch is writing/);
    await world.sql`DELETE FROM slotsync.object_claims`;
    await claimObjects(world.state.db, { token: 't', seconds: 60 }, ['room_B']);
    await expect(rename(world, 'A', 'B')).rejects.toThrow(/a batch is writing/);
    expect(await world.recordsOf('rooms')).toEqual(before);
    expect(await claimsOf(world)).toEqual([]);
  });
});

describe('a gone and a new row with the same values, in plan', () => {
  const renamedIn = async (world: RoomWorld) => (await world.preview()).renamed;

  it('are offered for a rename, even if fields and references contain the key', async () => {
    const fields = { 'room.name': 'name', 'room.seats': (row: Row) => `${row.code}: ${row.seats ?? 0}` };
    const world = await open(rooms({ retire: 'deactivate', fields }), { synced: ['A', 'C'] });
    await renameRow(world, 'A', 'B');
    await world.addRooms('D');
    expect(await renamedIn(world)).toEqual([{ from: 'A', to: 'B' }]);
    await rename(world, 'A', 'B');
    expect(await renamedIn(world)).toEqual([]);
  });

  it('are found by every part of a key, and by numbers', async () => {
    const key = ['house', 'number'];
    const world = await open(
      rooms({ from: 'halls', key, externalId: 'hall_{house}_{number}', retire: 'deactivate' }),
    );
    await world.sql`CREATE TABLE halls (house text, number int, name text, seats int, PRIMARY KEY (house, number))`;
    await world.sql`INSERT INTO halls VALUES ('N|1', 7, 'Newton', 5), ('S', 7, 'Curie', 5)`;
    await world.sync();
    await world.sql`UPDATE halls SET number = 8 WHERE house = 'N|1'`;
    expect(await renamedIn(world)).toEqual([{ from: 'N\\|1|7', to: 'N\\|1|8' }]);
  });

  it('are not offered in each of these cases', async () => {
    const world = await open(rooms({ retire: 'deactivate' }));
    const cases: [when: string, before: string, change: string][] = [
      ['the values differ', '', `UPDATE rooms SET code = 'B', seats = 5 WHERE code = 'A'`],
      ['nothing is gone', '', `INSERT INTO rooms (code, name) VALUES ('B', 'Room A')`],
      ['two new rows are possible', '', `${MOVED}; INSERT INTO rooms (code, name) VALUES ('D', 'Room A')`],
      [
        'two rows that are gone are possible',
        `UPDATE rooms SET name = 'Room A'`,
        `${MOVED}; DELETE FROM rooms WHERE code = 'C'`,
      ],
      [
        'there are many of them',
        `INSERT INTO rooms (code, name) SELECT i, 'Room ' || i FROM generate_series(1, 20) AS i`,
        `UPDATE rooms SET code = 'n' || code`,
      ],
    ];
    for (const [when, before, change] of cases) {
      await beginAnew(world);
      await world.sql.unsafe(before);
      await world.sync();
      await world.sql.unsafe(change);
      expect(await renamedIn(world), when).toEqual([]);
    }
  });
});

describe('a gone and a new row with the same values, in failures', () => {
  const offersOf = async (world: RoomWorld) => {
    const facts = await readFailuresFacts(world.state.db, {}, {});
    const { lead = [] } = failuresDocument(facts, { most: 10, now: new Date() });
    return lead.filter((text) => plain(text, 'UTC').includes('rename'));
  };
  const OFFER =
    "rooms 'A' was deleted, and 'B' is new with the same values. To keep the object and its bookings: slotsync rename rooms A B";

  const deactivating = rooms({ retire: 'deactivate' });
  const openWorld = () => open(deactivating);
  /** A becomes B, and what plans it ends. */
  async function renameAnew(world: RoomWorld, changes: Partial<Declaration> = {}, isSynced = true) {
    world.configure(deactivating);
    await beginAnew(world);
    expect(await offersOf(world)).toEqual([]);
    world.configure(rooms({ retire: 'deactivate', ...changes }));
    await renameRow(world, 'A', 'B');
    await addChanges(world.state.db, 'rooms', ['A', 'B']);
    await (isSynced ? world.sync() : world.drainInbox());
  }

  it.each(['deactivate', 'keep'] as const)(
    'are offered by the sync that finds them, and by no later sync: %s',
    async (retire) => {
      const world = await open(rooms({ retire }), { synced: ['A', 'C'] });
      await renameRow(world, 'A', 'B');
      const printed = async ({ run }: { run: Run }) =>
        answerToText(runDocument(await readRunFacts(world.state.db, run), new Date()), {
          timeZone: 'UTC',
          columns: Infinity,
        });
      expect(await printed(await world.sync())).toContain(OFFER);
      expect(await printed(await world.sync())).not.toContain('slotsync rename');
    },
  );

  it('are offered for a rename until it is done, whatever keeps the former object', async () => {
    const world = await openWorld();
    const limits = { retire: { count: 0, percent: 0 }, create: { count: 0, percent: 0 } };
    const ways: [Partial<Declaration>, boolean?][] = [
      [{}],
      [{}, false],
      [{ retire: 'keep' }],
      [{ graceDays: 7 }],
      [{ limits }],
    ];
    for (const way of ways) {
      await renameAnew(world, ...way);
      expect(await offersOf(world), JSON.stringify(way)).toEqual([OFFER]);
      await world.sync();
      expect(await offersOf(world)).toEqual([OFFER]);
      await rename(world, 'A', 'B');
      expect(await offersOf(world)).toEqual([]);
      await world.sync();
      await world.expectNothingToSend();
      expect(await offersOf(world)).toEqual([]);
    }
  });

  it('are not offered any more when either row has changed, or nobody has renamed for a month', async () => {
    const world = await openWorld();
    const expectNone = async () => {
      await world.sync();
      expect(await offersOf(world)).toEqual([]);
    };
    await renameAnew(world);
    await world.remove('B');
    await expectNone();
    await renameAnew(world);
    await world.sql`UPDATE slotsync.records SET updated_at = now() - interval '31 days' WHERE local_key = 'A'`;
    await expectNone();
    // The former row came back, and it went again.
    await renameAnew(world);
    await world.addRooms('A');
    await expectNone();
    await world.remove('A');
    await expectNone();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'retired', B: 'synced', C: 'synced' });
  });

  it('are forgotten with the new key', async () => {
    const world = await openWorld();
    await renameAnew(world);
    await forgetKey(world.state.db, { stream: 'rooms', localKey: 'B' });
    const [record] = await world.sql`SELECT renamed_to FROM slotsync.records WHERE local_key = 'A'`;
    expect(record).toEqual({ renamed_to: null });
  });
});
