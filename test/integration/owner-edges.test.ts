// Guarantees 3, 4, 7, 10
// Objects that change hands or have no certain owner: the records that wait for them do not circle through the inbox, and one
// bad key, link or id stops only itself.
import { describe, expect, it } from 'vitest';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { addDueChecks, takeChanges } from '../../src/state/inbox/take-changes.js';
import { letGo, transferObjects } from '../../src/state/records/transfer-objects.js';
import { linkRecords, unlinkRecords } from '../../src/state/records/links.js';
import type { RecordKey } from '../../src/state/records/outcome-types.js';
import { codes, DESKS, keepPlaces, keepRooms, rooms, until, type PlaceWorld } from '../support/steps.js';

const openPlaces = keepPlaces();
const openRooms = keepRooms();

const LINK = { assignsId: false, linkedBy: 'match', destinationId: null } as const;

/** Returns how many runs empty the inbox, or Infinity if twelve do not. */
async function drain(world: PlaceWorld): Promise<number> {
  const names = ['places', 'desks'];
  for (let runs = 0; runs < 12; runs++) {
    await addDueChecks(world.state.db, names);
    const taken = await takeChanges(world.state.db, names);
    if (typeof taken === 'string') return runs;
    const { queue } = await world.planRun(taken.runId);
    await world.finish(taken.runId, queue);
  }
  return Infinity;
}

/** Opens two places with a desk in each. */
async function openWithDesks(prepare?: (world: PlaceWorld) => Promise<unknown>): Promise<PlaceWorld> {
  const world = await openPlaces({}, { desks: DESKS });
  await prepare?.(world);
  await world.insert(1, 'A', 'n1');
  await world.insert(2, 'B', 'n2');
  await world.sql`INSERT INTO desks VALUES (1, 'd', 1), (2, 'd', 2)`;
  await world.sync();
  return world;
}

describe('a child of a parent that waits for an operator', () => {
  it('does not circle through the inbox after the code of its parent changed', async () => {
    const world = await openWithDesks();
    const expectWaiting = async () => {
      expect(await drain(world)).toBeLessThan(6);
      expect(await world.statusesOf('desks')).toMatchObject({ 1: 'deferred', 2: 'synced' });
    };
    await world.setCode(1, 'C');
    await addChanges(world.state.db, 'places', ['1']);
    await expectWaiting();
    await world.setCode(1, 'D');
    await world.sync();
    await expectWaiting();
    await world.sql`INSERT INTO desks VALUES (3, 'd', 1)`;
    await addChanges(world.state.db, 'desks', ['3']);
    await expectWaiting();
    expect(await world.recordOf('3', 'desks')).toMatchObject({ status: 'deferred' });
  });

  it('does not circle through the inbox after the link of its parent was undone', async () => {
    const world = await openWithDesks(async (opened) => {
      opened.addObject('hand_1', { 'place.name': 'n1' });
      const link = { ...LINK, stream: 'places', localKey: '1', externalId: 'hand_1', fields: ['place.name'] };
      await linkRecords(opened.state, [link]);
    });
    await unlinkRecords(world.state.db, 'places', ['1']);
    expect(await drain(world)).toBeLessThan(6);
  });

  it('waits while its parent is renamed at the service, and follows the parent', async () => {
    const world = await openWithDesks();
    world.sandbox.changeObject('y_B', { extId: 'by_hand' });
    await world.rename(2, 'bb');
    await world.sql`UPDATE desks SET place = 2 WHERE id = 1`;
    await world.sync();
    expect(await world.recordsOf('places')).toMatchObject({ 2: { error_code: 'external_id_changed_there' } });
    expect(await world.recordsOf('desks')).toMatchObject({ 1: { error_code: 'reference_missing' } });
    expect(await drain(world)).toBeLessThan(6);
    world.sandbox.changeObject('by_hand', { extId: 'y_B' });
    await world.retry('2');
    await world.comeToRest();
    expect(world.fieldsOf('desk_1')).toEqual({ 'desk.name': 'd', 'desk.place': 'y_B' });
  });
});

it('a link to the object of another row of the batch is broken if the object is missing, and stops no other record', async () => {
  const world = await openRooms(rooms());
  const link = { ...LINK, stream: 'rooms', localKey: 'B', externalId: 'room_A', fields: ['room.name'] };
  await linkRecords(world.state, [link]);
  await world.addRooms('A', 'B', ...codes(20));
  const { errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { error_code: 'external_id_shared' },
    B: { error_code: 'link_broken' },
    r001: { status: 'synced' },
    r019: { status: 'synced' },
  });
});

describe('a former object', () => {
  it.each([1016, 1024])('stops no check that is due if its external id has %i bytes', async (bytes) => {
    const world = await openPlaces();
    await world.insert(1, 'Q7'.repeat(600).slice(0, bytes - 2), 'a');
    await world.syncPlaces([2, 'B', 'b']);
    // As after a lost answer. Row 1 takes the object of row 2, which is gone, and lets go of its own.
    await world.sql`
      UPDATE slotsync.records SET in_doubt = true, check_after = now() + interval '1 minute' WHERE local_key = '1'`;
    await world.sql`DELETE FROM places WHERE id = 2`;
    await world.setCode(1, 'B');
    await world.send('places', '1');
    await world.passLateWrites();
    expect(await drain(world)).toBeLessThan(6);
    expect(await world.statusesOf('places')).toMatchObject({ 1: 'synced' });
  });
});

it('a record that another batch is writing keeps its object when the first batch ends', async () => {
  const world = await openRooms(rooms({ externalId: 'room_{number}', retire: 'deactivate' }));
  await world.sql`INSERT INTO rooms (code, name, number) VALUES ('A', 'a', '1'), ('Z', 'z', '9')`;
  await world.sync();
  await world.sql`UPDATE rooms SET name = 'b' WHERE code = 'A'`;
  const { runId, queue } = await world.plan();
  world.sandbox.closeGate({ method: 'PUT' });
  const done = world.finish(runId, queue);
  await until(() => world.sandbox.gate().held, { describe: 'the write of A' });
  const frozen = { token: 'frozen', lateSeconds: 10 };
  const lettingGo = letGo({ stream: 'rooms', localKey: 'A', externalId: 'room_1' });
  expect(await world.state.db.transaction((tx) => transferObjects(tx, [lettingGo], frozen))).toEqual([]);
  world.sandbox.openGate();
  await done;
  expect(await world.recordsOf('rooms')).toMatchObject({ A: { external_id: 'room_1', status: 'synced' } });
});

describe('a batch without the claim on a record that is to take an object', () => {
  const late = { token: 'late', lateSeconds: 10 };
  const [A, B, C] = ['A', 'B', 'C'].map((localKey) => ({ stream: 'rooms', localKey })) as [
    RecordKey,
    RecordKey,
    RecordKey,
  ];
  const OWNERS = Object.fromEntries(
    ['A', 'B', 'C'].map((key) => [key, { external_id: `room_${key}`, object_hash: expect.any(String) }]),
  );

  it.each([
    ['alone', []],
    ['in a chain', [{ ...A, externalId: 'room_D' }]],
    [
      'in a chain of three',
      [
        { ...A, externalId: 'room_C', from: C },
        { ...C, externalId: 'room_D' },
      ],
    ],
  ])('%s, leaves each object with its owner, and what is known of the object', async (_, more) => {
    const world = await openRooms(rooms());
    await world.addRooms('A', 'B', 'C');
    await world.sync();
    await world.sql`
      UPDATE slotsync.records SET claimed_by = 'other', claimed_until = now() + interval '1 minute' WHERE local_key = 'B'`;
    const transfers = [{ ...B, externalId: 'room_A', from: A }, ...more];
    expect(await world.state.db.transaction((tx) => transferObjects(tx, transfers, late))).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject(OWNERS);
  });

  it('leaves a record the object that another batch has sent for it meanwhile', async () => {
    const world = await openRooms(rooms());
    await world.addRooms('A', 'B');
    await world.sync();
    await world.sql`
      UPDATE slotsync.records SET in_doubt = true, object_hash = NULL WHERE local_key = 'B'`;
    const transfers = [A, B].map((record) => ({ ...record, externalId: `room_${record.localKey}_2` }));
    expect(await world.state.db.transaction((tx) => transferObjects(tx, transfers, late))).toEqual([]);
    expect(await world.recordsOf('rooms')).toMatchObject({ A: OWNERS['A'], B: { external_id: 'room_B' } });
  });
});
