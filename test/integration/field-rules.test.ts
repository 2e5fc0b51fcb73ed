// Values that people edit at the service: the rule of a field decides in plans, writes and verify whether they stay.
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { takeFields } from '../../src/state/records/retry-records.js';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { takeText } from '../../src/streams/field-rules.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import { adopt } from '../../src/sync/verify/verify.js';
import type { WorldOptions } from '../support/world.js';
import { keepRooms, ROOMS, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const openWorld = keepRooms();

const ruled = (rule: FieldRuleConfig) =>
  rooms({ fields: { 'room.name': { from: 'name', ...rule }, 'room.seats': 'seats' } });
const KEEPING = ruled({ write: 'changed' });

/** Opens a world in which room A was synced an hour ago. */
async function open(config = KEEPING, options: WorldOptions = {}): Promise<RoomWorld> {
  const world = await openWorld(config, { ...options, synced: ['A'] });
  await world.passHour();
  return world;
}
const edit = (world: RoomWorld, name: string) =>
  world.edit('room_A', { 'room.name': name, 'room.note': 'by hand' });
const seat = (world: RoomWorld, seats: number) => world.sql`UPDATE rooms SET seats = ${seats}`;
const seatsAtService = (world: RoomWorld) => world.fieldsOf('room_A')?.['room.seats'];
const NOTED: WorldOptions = {
  sandbox: {
    schema: {
      types: [{ extId: 'room' }],
      fields: ['room.name', 'room.seats', 'room.note'].map((extId) => ({ extId })),
    },
  },
};
/** A service that keeps what is not sent. `bodies` collects the writes, as JSON. */
const patching = (bodies: string[]): WorldOptions => ({
  dialect: (base) => ({
    write: {
      method: 'POST',
      path: '/objects/upsert',
      body: (objects) => {
        const body = { ...(base.write.body(objects) as object), importMode: 'PATCH' };
        bodies.push(JSON.stringify(body));
        return body;
      },
      patches: true,
    },
  }),
});
const driftOf = ({ sql }: RoomWorld) => sql`SELECT local_key, kind, fields FROM slotsync.drift`;

describe('a field with `write: changed`', () => {
  it('keeps a value that was entered at the service until its own column changes, as plan says', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.sandbox.arrivals()).toEqual([]);
    await seat(world, 40);
    expect((await world.preview()).samples).toMatchObject([
      {
        changes: [{ field: 'room.seats', new: ['40'] }],
        kept: [{ field: 'room.name', here: ['Room A'], there: ['Aula'], rule: { write: 'changed' } }],
      },
    ]);
    expect(await world.explain('A')).toMatchObject({
      changes: [{ field: 'room.seats' }],
      kept: [{ field: 'room.name', there: ['Aula'] }],
    });
    await world.sync();
    expect([world.nameOf('A'), seatsAtService(world)]).toEqual(['Aula', '40']);
    expect(world.fieldsOf('room_A')?.['room.note']).toBe('by hand');
    await world.rename('A', 'Hall');
    await world.sync();
    expect(world.nameOf('A')).toBe('Hall');
    await world.expectNothingToSend();
  });

  it('counts in verify as kept and not as drift, and a repair leaves its value alone', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    expect(await world.verify()).toMatchObject({ drifting: 0, kept: 1 });
    const fields = { 'room.name': { here: ['Room A'], there: ['Aula'] } };
    expect(await driftOf(world)).toEqual([{ local_key: 'A', kind: 'kept', fields }]);
    world.sandbox.clearArrivals();
    await world.repair();
    expect(world.writes()).toEqual([]);
    // Seen again after other values were written, it is not taken for a value that the service stores otherwise.
    await seat(world, 41);
    await world.sync();
    await world.passHour();
    await world.verify();
    expect(await driftOf(world)).toMatchObject([{ kind: 'kept' }]);
    // It stays while a repair corrects another field of the object.
    world.edit('room_A', { 'room.seats': '1' });
    expect(await world.verify()).toMatchObject({ drifting: 1, kept: 0 });
    await world.repair();
    expect([world.nameOf('A'), seatsAtService(world)]).toEqual(['Aula', '41']);
  });

  it('is known after one sync without a write when the rule is added later', async () => {
    const world = await open(rooms(), NOTED);
    world.configure(KEEPING);
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
    edit(world, 'Aula');
    await seat(world, 40);
    await world.sync();
    expect(world.nameOf('A')).toBe('Aula');
    // So it is after the record was adopted, and after its key was renamed.
    await world.passHour();
    edit(world, 'Room A');
    await world.sql`DELETE FROM slotsync.records`;
    await adopt(world.verifying());
    edit(world, 'Aula');
    await seat(world, 41);
    await world.sync();
    expect(world.nameOf('A')).toBe('Aula');
    await world.passHour();
    await world.sql`UPDATE rooms SET code = 'B'`;
    await renameKey(world.deps(), world.stream('rooms'), { from: 'A', to: 'B' });
    await world.drainInbox();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced' });
    expect(world.nameOf('A')).toBe('Aula');
  });

  it('keeps its value when another row takes over the object', async () => {
    const config = rooms({
      externalId: 'room_{number}',
      fields: { 'room.name': { from: 'name', write: 'changed' } },
    });
    const world = await openWorld(config, NOTED);
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('1', 'Room A', 'A')`;
    await world.sync();
    edit(world, 'Aula');
    await world.sql`UPDATE rooms SET code = '2'`;
    await world.sync();
    expect(world.nameOf('A')).toBe('Aula');
    expect(await world.statusesOf('rooms')).toEqual({ 2: 'synced' });
  });

  it('is not sent to a service that keeps what is not sent', async () => {
    const bodies: string[] = [];
    const world = await open(KEEPING, { ...NOTED, ...patching(bodies) });
    edit(world, 'Aula');
    await seat(world, 40);
    await world.sync();
    expect([world.nameOf('A'), seatsAtService(world)]).toEqual(['Aula', '40']);
    expect(bodies.at(-1)).toContain('room.seats');
    expect(bodies.at(-1)).not.toContain('room.name');
  });
});

it('`add` of a column with one value is a fault of the source', async () => {
  const world = await openWorld(ruled({ add: true }), NOTED);
  expect(await world.mirror.checkStream(world.stream('rooms'))).toEqual([
    "fields['room.name']: `add` needs a list, but column name is text; make it a list in a query, or use `write`",
  ]);
});

describe('a value that a person entered at the service', () => {
  it('stays when verify could not read its object', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    const garbled = { fieldId: 'room.note', values: [null as unknown as string] };
    const standing = world.sandbox.object('room_A')?.fields ?? [];
    await world.sql`INSERT INTO rooms (code, name) VALUES ('B', 'Room B')`;
    await world.sync();
    world.sandbox.changeObject('room_A', { fields: [...standing, garbled] });
    await world.passHour();
    await world.verify();
    world.sandbox.changeObject('room_A', { fields: standing });
    await world.drainInbox();
    await world.sync();
    expect(world.nameOf('A')).toBe('Aula');
  });

  it('stays when the referenced record gets another object', async () => {
    const { streams } = roomsAndCourses({ fields: { 'course.name': { from: 'name', write: 'changed' } } });
    const world = await openWorld({
      streams: { ...streams, rooms: { ...ROOMS, externalId: 'room_{number}' } },
    });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k1', 'One', '1'), ('k2', 'Two', '2')`;
    await world.sql`INSERT INTO courses VALUES ('c1', 'Algebra', 'k1')`;
    await world.sync();
    await world.passHour();
    world.edit('course_c1', { 'course.name': 'by hand' });
    await world.sql`UPDATE rooms SET number = (3 - number::int)::text`;
    await world.rounds(2);
    expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'by hand', 'course.room': 'room_2' });
  });

  it('stays when an acceptance follows a refusal', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    world.refuse('room_A', 422);
    await seat(world, -1);
    await world.sync();
    world.sandbox.allowObject('room_A');
    await seat(world, 40);
    await world.sync();
    await world.passLateWrites();
    await world.drainInbox();
    expect([world.nameOf('A'), seatsAtService(world)]).toEqual(['Aula', '40']);
  });
});

it('taking a field from the mirror lets the mirror win once, after the end of a batch', async () => {
  const world = await open(KEEPING, NOTED);
  const takeOf = (localKey: string) =>
    world.state.db.transaction((tx) =>
      takeFields(tx, { stream: 'rooms', localKey }, takeText(['room.name'])),
    );
  edit(world, 'Aula');
  expect(await takeOf('B')).toBe('not accepted');
  await world.sql`UPDATE slotsync.records SET claimed_by = 'another', claimed_until = now() + interval '1 minute'`;
  expect(await takeOf('A')).toBe('being written');
  await world.sql`UPDATE slotsync.records SET claimed_by = NULL, claimed_until = NULL`;
  expect(await takeOf('A')).toBe('taken');
  await world.drainInbox();
  expect(world.nameOf('A')).toBe('Room A');
  edit(world, 'Aula again');
  await seat(world, 40);
  await world.sync();
  expect(world.nameOf('A')).toBe('Aula again');
});

/**
 * The expected result of each rule, from values instead of hashes. `accepted`: the mapped values when the service accepted the
 * object last.
 */
const MODELS: {
  rule: FieldRuleConfig;
  next: (accepted: string[], mapped: string[], there: string[]) => string[];
}[] = [
  { rule: {}, next: (_, mapped) => mapped },
  {
    rule: { write: 'changed' },
    next: (accepted, mapped, there) => (isDeepStrictEqual(accepted, mapped) ? there : mapped),
  },
  { rule: { write: 'onCreate' }, next: (_, __, there) => there },
  { rule: { write: 'whenEmpty' }, next: (_, mapped, there) => (there.length > 0 ? there : mapped) },
  { rule: { ifNull: 'keep' }, next: (_, mapped, there) => (mapped.length > 0 ? mapped : there) },
  {
    rule: { add: true },
    next: (accepted, mapped, there) => [
      ...there.filter((value) => mapped.includes(value) || !accepted.includes(value)),
      ...mapped.filter((value) => !there.includes(value)),
    ],
  },
];

const VALUES: fc.Arbitrary<string[]> = fc.constantFrom<string[]>([], ['a'], ['b'], ['c']);
const LISTS: fc.Arbitrary<string[]> = fc.constantFrom<string[]>([], ['a'], ['b'], ['a', 'b'], ['b', 'c']);
/** As often as they are to be drawn. */
const ACTS = ['row', 'row', 'edit', 'edit', 'other column', 'other column', 'sync', 'verify'];
const stepsOf = (values: typeof VALUES) =>
  fc.array(fc.record({ act: fc.constantFrom(...ACTS), values }), { minLength: 4, maxLength: 14 });

describe('random edits on both sides', () => {
  it.each(MODELS)('leave each value as the rule $rule says', async ({ rule, next }) => {
    const config = rooms({
      fields: { 'room.name': { from: (row) => row['tags'] as string[], ...rule }, 'room.seats': 'seats' },
    });
    const world = await openWorld(config, NOTED);
    await world.sql`ALTER TABLE rooms ADD tags text[] NOT NULL DEFAULT '{}'`;
    const values = rule.add ? LISTS : VALUES;
    const valuesOf = (code: string) =>
      world.sandbox.object(`room_${code}`)?.fields.find(({ fieldId }) => fieldId === 'room.name')?.values ??
      [];
    let opened = 0;
    const play = async (first: string[], steps: { act: string; values: string[] }[]) => {
      const code = `r${opened++}`;
      await world.sql`INSERT INTO rooms (code, tags, seats) VALUES (${code}, ${first}, 0)`;
      await world.sync();
      let [mapped, accepted, there] = [first, first, first];
      let isWritten = false;
      for (const step of [...steps, { act: 'sync', values: [] }, { act: 'sync', values: [] }]) {
        switch (step.act) {
          case 'row':
            mapped = step.values;
            await world.sql`UPDATE rooms SET tags = ${mapped}, seats = seats + 1 WHERE code = ${code}`;
            isWritten = true;
            break;
          case 'other column':
            await world.sql`UPDATE rooms SET seats = seats + 1 WHERE code = ${code}`;
            isWritten = true;
            break;
          case 'edit':
            there = step.values;
            world.sandbox.changeObject(`room_${code}`, { fields: [{ fieldId: 'room.name', values: there }] });
            break;
          case 'verify':
            await world.passHour();
            await world.verify();
            break;
          default:
            await world.passHour();
            await world.sync();
            if (isWritten) {
              there = next(accepted, mapped, there);
              accepted = mapped;
            }
            isWritten = false;
        }
        expect([...valuesOf(code)]).toEqual(there);
      }
      await world.passHour();
      const { drifting } = await world.verify();
      // Verify reports drift exactly where a write would change the object.
      const isDrifting = !isDeepStrictEqual(next(accepted, mapped, there), there);
      expect(drifting).toBe(Number(isDrifting));
      await world.sql`DELETE FROM rooms`;
      await world.sql`DELETE FROM slotsync.records`;
      await world.sql`DELETE FROM slotsync.drift`;
    };
    await fc.assert(fc.asyncProperty(values, stepsOf(values), play), { numRuns: 2 });
  });
});
