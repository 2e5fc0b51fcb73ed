// Guarantees 4, 5
// `match` in a run: an object that exists at the service is linked before a record is created. There is never a second object
// for one row, and never one object for two rows.
import { describe, expect, it } from 'vitest';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { readBatch } from '../../src/state/runs/batches.js';
import { deleteLinks } from '../../src/state/records/links.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { COURSES } from '../support/campus.js';
import {
  ROOMS,
  addRooms,
  codes,
  expectNothingToSend,
  keepRoomWorlds,
  rooms,
} from '../support/room-worlds.js';
import type { World, WorldOptions } from '../support/world.js';

const open = keepRoomWorlds();

const MATCHED = { ...ROOMS, match: ['room.name'] };
const matching = (changes: Partial<typeof MATCHED> = {}, more: Partial<SlotsyncConfig> = {}) => ({
  ...rooms({ ...MATCHED, ...changes }),
  ...more,
});

/** Adds an object that somebody made by hand. */
const addObject = (
  world: World,
  name: string,
  extId: string | null,
  more: { seats?: string; active?: boolean } = {},
) =>
  world.sandbox.addObject({
    extId,
    typeId: 'room',
    active: more.active ?? true,
    fields: [
      { fieldId: 'room.name', values: [name] },
      { fieldId: 'room.seats', values: more.seats === undefined ? [] : [more.seats] },
    ],
  });
const linksOf = (world: World) =>
  world.sql<
    { local_key: string; external_id: string; assigns_id: boolean; linked_by: string; fields: string[] }[]
  >`
    SELECT * FROM slotsync.links ORDER BY stream, local_key`;
const objectNames = (world: World) => world.sandbox.objects().map(({ extId }) => extId);

describe('a row with `match`', () => {
  it('is not created when the search for its values fails, and other rows are linked', async () => {
    const isBroken = { now: true };
    let finds = 0;
    const speech: NonNullable<WorldOptions['sandbox']>['speech'] = (native) => (request) => {
      const body = JSON.stringify(request.json() ?? {});
      if (body.includes('exactSearchFields')) finds++;
      const isHit = isBroken.now && body.includes('exactSearchFields') && body.includes('Room r003');
      return isHit ? { status: 500, body: { message: 'no such index' } } : native(request);
    };
    const world = await open(matching({ match: ['room.seats', 'room.name'] }), { sandbox: { speech } });
    await addRooms(world, ...codes(8));
    await world.sql`UPDATE rooms SET seats = 4`;
    for (const code of ['r003', 'r005']) addObject(world, `Room ${code}`, `hand_${code}`, { seats: '4' });
    const { samples } = await previewStream(world.deps(), world.stream('rooms'));
    expect(samples.find(({ key }) => key === 'r003')?.problem).toContain('answered 500');
    finds = 0;
    await world.sync();
    expect(finds).toBeLessThan(30);
    const { r003, ...others } = await world.recordsOf('rooms');
    expect(r003).toMatchObject({ status: 'failed', error_code: 'service_fails_on_object' });
    expect(new Set(Object.values(others).map(({ status }) => status))).toEqual(new Set(['synced']));
    expect(objectNames(world)).toContain('hand_r005');
    expect(objectNames(world).filter((extId) => /r00[35]$/.test(extId))).toEqual(['hand_r003', 'hand_r005']);
    isBroken.now = false;
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      r003: { status: 'synced', external_id: 'hand_r003' },
    });
  });

  it('is linked to the one object with its values, which it updates', async () => {
    const world = await open(matching());
    const { id } = addObject(world, 'Room A', 'hand_7');
    await addRooms(world, 'A', 'B');
    await world.sql`UPDATE rooms SET seats = 12`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded' });
    expect(await linksOf(world)).toMatchObject([
      {
        local_key: 'A',
        external_id: 'hand_7',
        destination_id: String(id),
        linked_by: 'match',
        fields: ['room.name'],
      },
    ]);
    expect(objectNames(world)).toEqual(['hand_7', 'room_B']);
    expect(world.fieldsOf('hand_7')).toEqual({ 'room.name': 'Room A', 'room.seats': '12' });
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'hand_7', status: 'synced' } });
    await expectNothingToSend(world);

    await world.sql`UPDATE rooms SET name = 'Hall A' WHERE code = 'A'`;
    await world.sync();
    expect(world.fieldsOf('hand_7')).toMatchObject({ 'room.name': 'Hall A' });
    await world.sql`DELETE FROM slotsync.records`;
    await world.sync();
    expect(objectNames(world)).toEqual(['hand_7', 'room_B']);
  });

  it('is not matched when an object with its own external id exists', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    addObject(world, 'other', 'room_A');
    await addRooms(world, 'A');
    await world.sync();
    expect(await linksOf(world)).toEqual([]);
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'Room A' });
  });

  it('is created if it has no value in one of the fields', async () => {
    const world = await open(matching({ match: ['room.name', 'room.seats'] }));
    addObject(world, 'Room A', 'hand_7');
    addObject(world, 'Room B', 'hand_8', { seats: '4' });
    await addRooms(world, 'A', 'B');
    await world.sql`UPDATE rooms SET seats = 4 WHERE code = 'B'`;
    await world.sync();
    expect(objectNames(world)).toEqual(['hand_7', 'hand_8', 'room_A']);
  });

  it('is given up if it matches several objects, and linked once unique and retried', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    addObject(world, 'Room A', 'hand_8', { active: false });
    const { id } = addObject(world, 'Room A', null);
    await addRooms(world, 'A', 'B');
    expect((await world.sync()).run).toMatchObject({
      status: 'partial',
      counts: { rooms: { synced: 1, dead: 1 } },
    });
    const { A } = await world.recordsOf('rooms');
    expect(A).toMatchObject({ status: 'dead', error_code: 'match_ambiguous' });
    expect(A?.error_message).toContain(
      `3 objects have the row's values of room.name: 'hand_7', 'hand_8' (inactive), number ${id}`,
    );
    expect(objectNames(world)).toEqual(['hand_7', 'hand_8', 'room_B']);
    world.sandbox.removeObject(id);
    world.sandbox.removeObject('hand_8');
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await world.sync();
    expect(await linksOf(world)).toMatchObject([{ local_key: 'A', external_id: 'hand_7' }]);
  });

  it.each([
    ['in one batch', 100],
    ['in two batches', 1],
  ])(
    'is given up if it shares its object with another row %s, and nothing is created',
    async (_, batchSize) => {
      const world = await open(matching({ batchSize }));
      addObject(world, 'Twin', 'hand_7');
      await world.sql`INSERT INTO rooms (code, name) VALUES ('A', 'Twin'), ('B', 'Twin')`;
      await world.sync();
      const records = Object.values(await world.recordsOf('rooms'));
      const dead = records.filter(({ status }) => status === 'dead');
      expect(dead.length).toBe(batchSize === 1 ? 1 : 2);
      for (const { error_code, error_message, local_key } of dead) {
        expect(error_code).toBe('match_ambiguous');
        expect(error_message).toContain(local_key === 'A' ? "'B'" : "'A'");
      }
      expect(objectNames(world)).toEqual(['hand_7']);
      await expectNothingToSend(world);
    },
  );

  it('matches no object that belongs to another row, record or link', async () => {
    const world = await open({
      streams: {
        rooms: MATCHED,
        halls: { ...MATCHED, from: 'halls', externalId: 'hall_{code}', match: undefined },
      },
    });
    await world.sql`CREATE TABLE halls (code text PRIMARY KEY, name text, seats integer)`;
    await world.sql`INSERT INTO halls VALUES ('accepted', 'Record'), ('new', 'Row')`;
    await world.sync('halls');
    await world.sql`DELETE FROM slotsync.records WHERE local_key = 'new'`;
    await world.sql`INSERT INTO rooms (code, name) VALUES ('A', 'Record'), ('B', 'Row')`;
    await world.sync('rooms');
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced' });
    expect(await linksOf(world)).toEqual([]);
    expect(objectNames(world)).toEqual(['hall_accepted', 'hall_new', 'room_A', 'room_B']);
  });

  it('is linked in only one of two streams that match its object at once', async () => {
    const world = await open({
      streams: { rooms: MATCHED, halls: { ...MATCHED, externalId: 'hall_{code}' } },
    });
    addObject(world, 'Room A', 'hand_7');
    await addRooms(world, 'A');
    const { queue, runId } = await world.plan();
    world.sandbox.setLatency(50);
    await Promise.allSettled(queue.map((id) => world.apply(id)));
    const batches = await Promise.all(queue.map((id) => readBatch(world.state.db, id)));
    await world.finish(
      runId,
      batches.flatMap((batch) => (batch?.state === 'queued' ? [batch.id] : [])),
    );
    expect(await linksOf(world)).toHaveLength(1);
    expect(objectNames(world)).toEqual(['hand_7']);
    const records = [
      ...Object.values(await world.recordsOf('rooms')),
      ...Object.values(await world.recordsOf('halls')),
    ];
    expect(records.map(({ status }) => status).toSorted()).not.toEqual(['synced', 'synced']);
  });

  it('is held with other rows when more objects than the limit would be overwritten', async () => {
    const world = await open(matching());
    const keys = codes(12);
    for (const code of keys) addObject(world, `Room ${code}`, `hand_${code}`);
    await addRooms(world, ...keys);
    await world.sql`UPDATE rooms SET seats = 5`;
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'held', holds: { rooms: { overwrite: { count: 12 } } } });
    expect(run.holds['rooms']?.overwrite?.samples?.[0]).toMatchObject({
      externalId: 'hand_r000',
      changes: [{ field: 'room.seats', old: [], new: ['5'] }],
    });
    expect(world.writes()).toEqual([]);
    expect(await linksOf(world)).toEqual([]);
    await world.sql`UPDATE slotsync.runs SET status = 'partial', finished_at = now()`;
    await world.sql`UPDATE rooms SET seats = NULL`;
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(await linksOf(world)).toHaveLength(12);
    expect(world.writes()).toEqual([]);
  });

  it('is previewed with its object, or with the reason why it has no certain object', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    for (const extId of ['twin_1', 'twin_2']) addObject(world, 'Room B', extId);
    await addRooms(world, 'A', 'B', 'C');
    await world.sql`UPDATE rooms SET seats = 5`;
    const { samples } = await previewStream(world.deps(), world.stream('rooms'));
    expect(samples.toSorted((a, b) => (a.key < b.key ? -1 : 1))).toMatchObject([
      { key: 'A', externalId: 'hand_7', changes: [{ field: 'room.seats', old: [], new: ['5'] }] },
      {
        key: 'B',
        problem: expect.stringContaining("2 objects have the row's values of room.name: 'twin_1', 'twin_2'"),
      },
      {
        key: 'C',
        externalId: 'room_C',
        changes: [{ field: 'active' }, { field: 'room.name' }, { field: 'room.seats' }],
      },
    ]);
    expect(world.writes()).toEqual([]);
    expect(await linksOf(world)).toEqual([]);
  });

  it('compares a reference by its external id', async () => {
    const world = await open({
      streams: { rooms: ROOMS, courses: { ...COURSES, match: ['course.room', 'course.name'] } },
    });
    const course = (extId: string, room: string) =>
      world.sandbox.addObject({
        extId,
        typeId: 'course',
        fields: [
          { fieldId: 'course.name', values: ['One'] },
          { fieldId: 'course.room', values: [room] },
        ],
      });
    course('hand_A', 'room_A');
    course('hand_B', 'room_B');
    await addRooms(world, 'A', 'B');
    await world.sql`INSERT INTO courses VALUES ('1', 'One', 'B')`;
    await world.sync();
    expect(await linksOf(world)).toMatchObject([{ local_key: '1', external_id: 'hand_B' }]);
  });

  it('is compared by slotsync, so that the service need not search', async () => {
    const world = await open(matching({}, { service: { searchByFields: false } }), {
      sandbox: { searchesFields: false },
    });
    addObject(world, 'Room A', 'hand_7');
    addObject(world, 'Room', 'hand_8');
    await addRooms(world, 'A');
    await world.sync();
    expect(await linksOf(world)).toMatchObject([{ local_key: 'A', external_id: 'hand_7' }]);
  });

  it('goes on with the linked object when its worker dies between the link and the write', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    await addRooms(world, 'A');
    await world.sql`UPDATE rooms SET seats = 3`;
    world.sandbox.failNext({ path: '/objects', method: 'PUT', fault: 'reset', times: 'always' });
    await world.sync();
    expect(await linksOf(world)).toHaveLength(1);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'hand_7', in_doubt: true } });
    world.sandbox.clearFailures();
    await world.passLateWrites();
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
    expect(world.sandbox.objects()).toHaveLength(1);
    expect(world.fieldsOf('hand_7')).toMatchObject({ 'room.seats': '3' });
  });

  it('is matched after its worker died before the link, once no late write can land', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    await addRooms(world, 'A');
    await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status, claimed_by, claimed_until)
      VALUES ('rooms', 'A', 'room_A', 'pending', 'dead', now() - interval '1 minute')`;
    const { runId, queue } = await world.plan();
    await expect(world.apply(queue[0] ?? 0)).rejects.toMatchObject({ code: 'claimed' });
    await world.passLateWrites();
    await world.finish(runId, queue);
    expect(objectNames(world)).toEqual(['hand_7']);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
  });

  it('is created anew when it lets go of its former object, and is not linked to that object', async () => {
    const world = await open(matching({ externalId: 'room_{number}' }));
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1')`;
    await world.sync();
    await world.sql`UPDATE rooms SET number = '2'`;
    await world.sync();
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['A'] });
    await world.sync();
    expect(objectNames(world)).toEqual(['room_1', 'room_2']);
  });
});

describe('a matched object without an external id', () => {
  const assigning: WorldOptions = { sandbox: { assignsExternalIds: true } };
  const assigned = (changes: Partial<typeof MATCHED> = {}) =>
    matching(changes, { service: { assignExternalIds: true } });

  /** A change of the row reaches the object with this number under its external id. */
  async function expectChangeArrives(world: World, id: number): Promise<void> {
    await world.sql`UPDATE rooms SET name = 'Hall'`;
    await world.sync();
    const fields = [{ fieldId: 'room.name', values: ['Hall'] }];
    expect(world.sandbox.object('room_A')).toMatchObject({ id, fields });
    expect(world.sandbox.unnamedObjects()).toEqual([]);
  }

  it('is left alone unless slotsync may assign external ids', async () => {
    const world = await open(matching(), assigning);
    const { id } = addObject(world, 'Room A', null);
    await addRooms(world, 'A');
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: {
        status: 'dead',
        error_code: 'match_unassignable',
        error_message: expect.stringContaining(`number ${id}`),
      },
    });
    expect(objectNames(world)).toEqual([]);
  });

  it.each(['fields', 'object'] as const)(
    'gets the external id of its row by its number when the mapping owns %s',
    async (owns) => {
      const world = await open(assigned({ owns }), assigning);
      const { id } = addObject(world, 'Room A', null, { seats: '9' });
      await addRooms(world, 'A');
      await world.sync();
      expect(world.sandbox.object('room_A')).toMatchObject({ id });
      expect(await linksOf(world)).toMatchObject([
        { external_id: 'room_A', assigns_id: false, destination_id: String(id) },
      ]);
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'synced', destination_id: String(id) },
      });
      await expectNothingToSend(world);
      await expectChangeArrives(world, id);
    },
  );

  it('gets a lost external id back with the next change of its row', async () => {
    const world = await open(assigned(), { ...assigning, synced: ['A'] });
    const { id } = world.sandbox.changeObject('room_A', { extId: null });
    await expectChangeArrives(world, id);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: { status: 'synced' } });
  });

  it.each([
    ['without an external id', { extId: null }],
    ['with another external id', { extId: 'by_hand' }],
    ['of another type', { extId: null, typeId: 'hall' }],
  ])('is never written if made by hand %s, with a number of ours after a restore', async (_, given) => {
    const world = await open(assigned({ retire: 'deactivate' }), assigning);
    world.sandbox.defineSchema({
      types: [{ extId: 'room' }, { extId: 'hall' }],
      fields: [{ extId: 'room.name' }, { extId: 'room.seats' }],
    });
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.passLateWrites();
    const fields = [{ fieldId: 'room.name', values: ['of others'] }];
    for (const extId of ['room_A', 'room_B']) {
      const { id } = world.sandbox.object(extId) ?? {};
      world.sandbox.removeObject(extId);
      world.sandbox.addObject({
        typeId: 'room',
        fields,
        ...given,
        ...(extId === 'room_B' && { extId: null }),
        id,
      });
    }
    await world.sql`UPDATE rooms SET name = 'anew' WHERE code = 'A'`;
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    for (let runs = 0; runs < 2; runs++) await world.sync();
    const others = [...world.sandbox.objects(), ...world.sandbox.unnamedObjects()];
    expect(others.filter(({ id }) => id < 1003)).toMatchObject([
      { active: true, fields },
      { active: true, fields },
    ]);
  });

  it('is not written by its number again after a lost answer to the write of its id', async () => {
    const world = await open(assigned(), assigning);
    const { id } = addObject(world, 'Room A', null);
    await addRooms(world, 'A');
    await world.sql`UPDATE rooms SET seats = 3`;
    world.sandbox.failNext({ path: '/objects', method: 'PUT', fault: 'loseAnswer', times: 'always' });
    await world.sync();
    expect(world.sandbox.object('room_A')).toMatchObject({ id });
    expect(await linksOf(world)).toMatchObject([{ assigns_id: true }]);
    world.sandbox.clearFailures();
    await world.sql`UPDATE rooms SET seats = 4`;
    world.sandbox.clearArrivals();
    await world.sync();
    expect(await linksOf(world)).toMatchObject([{ assigns_id: false }]);
    await world.passLateWrites();
    await world.sync();
    expect(world.sandbox.objects()).toMatchObject([{ id, extId: 'room_A' }]);
    expect(await world.statusesOf('rooms')).toEqual({ A: 'synced' });
  });
});

describe('a linked object', () => {
  it.each(['fields', 'object'] as const)(
    'is not created again after its deletion when the mapping owns %s',
    async (owns) => {
      const world = await open(matching({ owns }));
      addObject(world, 'Room A', 'hand_7');
      await addRooms(world, 'A', 'B');
      await world.sync();
      world.sandbox.removeObject('hand_7');
      world.sandbox.removeObject('room_B');
      await world.sql`UPDATE rooms SET seats = 5`;
      await world.sync();
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'dead', error_code: 'link_broken', error_message: expect.stringContaining("'hand_7'") },
        B: { status: 'synced' },
      });
      expect(objectNames(world)).toEqual(['room_B']);
      const { broken } = await previewStream(world.deps(), world.stream('rooms'));
      expect(broken).toMatchObject([{ localKey: 'A', errorMessage: expect.stringContaining("'hand_7'") }]);
    },
  );

  it('is written again when it is back, and created anew when its link is undone', async () => {
    const world = await open(matching());
    addObject(world, 'Room A', 'hand_7');
    addObject(world, 'Room B', 'hand_8');
    await addRooms(world, 'A', 'B');
    await world.sync();
    world.sandbox.changeObject('hand_7', { extId: 'elsewhere' });
    world.sandbox.changeObject('hand_8', { extId: 'elsewhere too' });
    await world.sql`UPDATE rooms SET name = 'Hall ' || code, seats = 5`;
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'dead', B: 'dead' });
    world.sandbox.changeObject('elsewhere', { extId: 'hand_7' });
    await deleteLinks(world.state.db, 'rooms', ['B']);
    await retryRecords(world.state.db, { stream: 'rooms', keys: [] });
    await world.sync();
    await retryRecords(world.state.db, { stream: 'rooms', keys: ['B'] });
    await world.sync();
    expect(await world.statusesOf('rooms')).toMatchObject({ A: 'synced', B: 'synced' });
    expect(objectNames(world).toSorted()).toEqual(['elsewhere too', 'hand_7', 'room_B']);
    expect(world.fieldsOf('hand_7')).toMatchObject({ 'room.seats': '5' });
  });

  it('is retired when its row goes', async () => {
    const world = await open(matching({ retire: 'deactivate' }));
    addObject(world, 'Room A', 'hand_7');
    await addRooms(world, 'A', 'B');
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sync();
    expect(world.sandbox.object('hand_7')).toMatchObject({ active: false });
    await addRooms(world, 'A');
    await world.sync();
    expect(world.sandbox.object('hand_7')).toMatchObject({ active: true });
    expect(objectNames(world)).toEqual(['hand_7', 'room_B']);
  });
});

describe('an external id that two rows could have', () => {
  const byKey = { streams: { rooms: MATCHED } };
  const byNumber = { streams: { rooms: { ...MATCHED, externalId: 'room_{number}' } } };

  it.each([
    ['its key', byKey],
    ['another column', byNumber],
  ])(
    'stays with the linked row, and is refused to the row of the template, made from %s',
    async (_, config) => {
      const world = await open(config);
      addObject(world, 'Room A', 'room_1');
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '9')`;
      await world.sync();
      await world.sql`INSERT INTO rooms (code, name, number) VALUES ('1', 'other', '1')`;
      await world.sql`UPDATE rooms SET seats = 5 WHERE code = 'A'`;
      await world.sync();
      expect(await world.recordsOf('rooms')).toMatchObject({
        A: { status: 'synced', external_id: 'room_1' },
        1: {
          status: 'failed',
          error_code: 'external_id_shared',
          error_message: expect.stringMatching(/is linked to rooms 'A'; .*slotsync rename/),
        },
      });
      expect(world.fieldsOf('room_1')).toEqual({ 'room.name': 'Room A', 'room.seats': '5' });
    },
  );

  it.each([
    ['its key', byKey],
    ['another column', byNumber],
  ])('stays with the linked row, even if both rows are new in one batch, made from %s', async (_, config) => {
    const world = await open(config);
    addObject(world, 'Room A', 'room_1');
    await world.sql`INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'A', 'room_1', 'match')`;
    await world.sql`
      INSERT INTO rooms (code, name, number) VALUES ('A', 'linked', '9'), ('1', 'other', '1'), ('B', 'b', '3')`;
    const { run } = await world.sync();
    expect(run.counts['rooms']).toMatchObject({ synced: 2, failed: 1 });
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'room_1' },
      1: { status: 'failed', error_code: 'external_id_shared', external_id: null, row_external_id: 'room_1' },
    });
    expect(world.fieldsOf('room_1')).toMatchObject({ 'room.name': 'linked' });
  });

  it('belongs to the second row when the first row is linked to another object', async () => {
    const world = await open(byNumber);
    addObject(world, 'Room A', 'hand_7');
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'Room A', '1')`;
    await world.sync();
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('B', 'b', '1')`;
    expect((await world.sync()).run.status).toBe('succeeded');
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('C', 'c', '1')`;
    await world.sql`UPDATE rooms SET seats = 5 WHERE code = 'A'`;
    await world.sync();
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'hand_7' },
      C: { status: 'failed', error_code: 'external_id_shared' },
    });
    expect(world.fieldsOf('hand_7')).toMatchObject({ 'room.seats': '5' });
    expect(objectNames(world)).toEqual(['hand_7', 'room_1']);
  });
});

describe('a match by a field that the service derives', () => {
  const derived = { fields: [{ extId: 'room.name', derived: true }, { extId: 'room.seats' }] };
  const schema = { types: [{ extId: 'room' }], ...derived };

  it.each([
    [true, true, ['hand_7']],
    [true, false, ['hand_7']],
    [false, true, ['hand_7', 'room_A']],
    [false, false, ['hand_7', 'room_A']],
  ])(
    'finds the object if derived fields are asked for: %s; searched: %s',
    async (asks, searches, expected) => {
      const service = { derivedFields: asks, searchByFields: searches };
      const world = await open(matching({}, { service }), { sandbox: { schema } });
      addObject(world, 'Room A', 'hand_7');
      await addRooms(world, 'A');
      await world.sync();
      expect(objectNames(world)).toEqual(expected);
    },
  );
});
