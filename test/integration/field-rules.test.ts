// Values that people edit at the service: the rule of a field decides in plans, writes and verify whether they stay.
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { takeFields } from '../../src/state/records/retry-records.js';
import type { FieldRuleConfig } from '../../src/streams/config-schema.js';
import { takeText } from '../../src/streams/field-rules.js';
import { explainRecord } from '../../src/sync/operator/explain.js';
import { renameKey } from '../../src/sync/operator/rename-key.js';
import { previewStream } from '../../src/sync/plan/preview.js';
import { adopt, startRepairRun, verify } from '../../src/sync/verify/verify.js';
import {
  ROOMS,
  expectNothingToSend,
  keepRoomWorlds,
  nameAtService,
  rename,
  rooms,
  roomsAndCourses,
} from '../support/room-worlds.js';
import type { World, WorldOptions } from '../support/world.js';

const openWorld = keepRoomWorlds();

const ruled = (rule: FieldRuleConfig) =>
  rooms({ fields: { 'room.name': { from: 'name', ...rule }, 'room.seats': 'seats' } });
const KEEPING = ruled({ write: 'changed' });

/** Opens a world in which room A was synced an hour ago. */
async function open(config = KEEPING, options: WorldOptions = {}): Promise<World> {
  const world = await openWorld(config, { ...options, synced: ['A'] });
  await settle(world);
  return world;
}
const settle = (world: World) =>
  world.sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour', synced_at = now() - interval '1 hour'`;
const edit = (world: World, name: string | undefined, code = 'A') =>
  world.sandbox.changeObject(`room_${code}`, {
    fields: [
      ...(name === undefined ? [] : [{ fieldId: 'room.name', values: [name] }]),
      { fieldId: 'room.note', values: ['by hand'] },
    ],
  });
const seat = (world: World, seats: number) => world.sql`UPDATE rooms SET seats = ${seats}`;
const seatsAtService = (world: World) => world.fieldsOf('room_A')?.['room.seats'];
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
const driftOf = ({ sql }: World) => sql`SELECT local_key, kind, fields FROM slotsync.drift`;

describe('a field with `write: changed`', () => {
  it('keeps a value that was entered at the service until its own column changes', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    await seat(world, 40);
    await world.sync();
    expect([nameAtService(world, 'A'), seatsAtService(world)]).toEqual(['Aula', '40']);
    expect(world.fieldsOf('room_A')?.['room.note']).toBe('by hand');
    await rename(world, 'A', 'Hall');
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Hall');
    await expectNothingToSend(world);
  });

  it('costs no request while its row is unchanged', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.sandbox.arrivals()).toEqual([]);
  });

  it('is named by plan, with both values and the rule', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    await seat(world, 40);
    const [stream] = world.deps().streams.values();
    if (!stream) throw new Error('there is no stream');
    const { samples } = await previewStream(world.deps(), stream);
    expect(samples).toMatchObject([
      {
        changes: [{ field: 'room.seats', new: ['40'] }],
        kept: [{ field: 'room.name', here: ['Room A'], there: ['Aula'], rule: { write: 'changed' } }],
      },
    ]);
    expect(await explainRecord(world.deps(), stream, 'A')).toMatchObject({
      changes: [{ field: 'room.seats' }],
      kept: [{ field: 'room.name', there: ['Aula'] }],
    });
  });

  it('counts in verify as kept and not as drift, and a repair leaves its value alone', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    const result = await verify(world.verifying());
    expect(result).toMatchObject({ drifting: 0, kept: 1 });
    const fields = { 'room.name': { here: ['Room A'], there: ['Aula'] } };
    expect(await driftOf(world)).toEqual([{ local_key: 'A', kind: 'kept', fields }]);
    world.sandbox.clearArrivals();
    const run = await startRepairRun(world.state.db, { streams: ['rooms'], startedBy: 'command' });
    if (run) {
      const { queue } = await world.planRun(run.id);
      await world.finish(run.id, queue);
    }
    expect(world.writes()).toEqual([]);
    // Seen again after other values were written, it is not taken for a value that the service stores otherwise.
    await seat(world, 41);
    await world.sync();
    await settle(world);
    await verify(world.verifying());
    expect(await driftOf(world)).toMatchObject([{ kind: 'kept' }]);
  });

  it('stays while a repair corrects another field of the object', async () => {
    const world = await open(KEEPING, NOTED);
    await seat(world, 40);
    await world.sync();
    await settle(world);
    edit(world, 'Aula');
    world.sandbox.changeObject('room_A', { fields: [{ fieldId: 'room.seats', values: ['1'] }] });
    expect(await verify(world.verifying())).toMatchObject({ drifting: 1, kept: 0 });
    const run = await startRepairRun(world.state.db, { streams: ['rooms'], startedBy: 'command' });
    const { queue } = await world.planRun(run?.id ?? 0);
    await world.finish(run?.id ?? 0, queue);
    expect([nameAtService(world, 'A'), seatsAtService(world)]).toEqual(['Aula', '40']);
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
    expect(nameAtService(world, 'A')).toBe('Aula');
  });

  it('keeps values that are entered after its record was adopted', async () => {
    const world = await open(KEEPING, NOTED);
    await world.sql`DELETE FROM slotsync.records`;
    await adopt(world.verifying());
    edit(world, 'Aula');
    await seat(world, 40);
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Aula');
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
    expect(nameAtService(world, 'A')).toBe('Aula');
    expect(await world.statusesOf('rooms')).toEqual({ 2: 'synced' });
  });

  it('is not sent to a service that keeps what is not sent', async () => {
    const bodies: string[] = [];
    const world = await open(KEEPING, { ...NOTED, ...patching(bodies) });
    edit(world, 'Aula');
    await seat(world, 40);
    await world.sync();
    expect([nameAtService(world, 'A'), seatsAtService(world)]).toEqual(['Aula', '40']);
    expect(bodies.at(-1)).toContain('room.seats');
    expect(bodies.at(-1)).not.toContain('room.name');
  });
});

it('`add` of a column with one value is a fault of the source', async () => {
  const world = await openWorld(ruled({ add: true }), NOTED);
  const [stream] = world.deps().streams.values();
  if (!stream) throw new Error('there is no stream');
  expect(await world.mirror.checkStream(stream)).toEqual([
    "fields['room.name']: `add` needs a list, but column name is text; make it a list in a query, or use `write`",
  ]);
});

describe('a value that a person entered at the service', () => {
  it('stays when the key of its record is renamed', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    await world.sql`UPDATE rooms SET code = 'B'`;
    await renameKey(world.deps(), world.stream('rooms'), { from: 'A', to: 'B' });
    await world.drainInbox();
    expect(await world.statusesOf('rooms')).toEqual({ B: 'synced' });
    expect(nameAtService(world, 'A')).toBe('Aula');
  });

  it('stays when verify could not read its object', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    const garbled = { fieldId: 'room.note', values: [null] } as unknown as {
      fieldId: string;
      values: string[];
    };
    const standing = world.sandbox.object('room_A')?.fields ?? [];
    await world.sql`INSERT INTO rooms (code, name) VALUES ('B', 'Room B')`;
    await world.sync();
    world.sandbox.changeObject('room_A', { fields: [...standing, garbled] });
    await settle(world);
    await verify(world.verifying());
    world.sandbox.changeObject('room_A', { fields: standing });
    await world.drainInbox();
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Aula');
  });

  it('stays when the referenced record gets another object', async () => {
    const { streams } = roomsAndCourses({ fields: { 'course.name': { from: 'name', write: 'changed' } } });
    const world = await openWorld({
      streams: { ...streams, rooms: { ...ROOMS, externalId: 'room_{number}' } },
    });
    await world.sql`INSERT INTO rooms (code, name, number) VALUES ('k1', 'One', '1'), ('k2', 'Two', '2')`;
    await world.sql`INSERT INTO courses VALUES ('c1', 'Algebra', 'k1')`;
    await world.sync();
    await settle(world);
    const fields = world.sandbox.object('course_c1')?.fields ?? [];
    world.sandbox.changeObject('course_c1', {
      fields: fields.map((one) => (one.fieldId === 'course.name' ? { ...one, values: ['by hand'] } : one)),
    });
    await world.sql`UPDATE rooms SET number = (3 - number::int)::text`;
    for (let rounds = 0; rounds < 2; rounds++) {
      await world.sync();
      await world.drainInbox();
    }
    expect(world.fieldsOf('course_c1')).toEqual({ 'course.name': 'by hand', 'course.room': 'room_2' });
  });

  it('stays when an acceptance follows a refusal', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    world.sandbox.refuseObject('room_A', { status: 422, message: 'no' });
    await seat(world, -1);
    await world.sync();
    world.sandbox.allowObject('room_A');
    await seat(world, 40);
    await world.sync();
    await world.passLateWrites();
    await world.drainInbox();
    expect([nameAtService(world, 'A'), seatsAtService(world)]).toEqual(['Aula', '40']);
  });
});

describe('taking a field from the mirror', () => {
  it('lets the mirror win once', async () => {
    const world = await open(KEEPING, NOTED);
    edit(world, 'Aula');
    const record = { stream: 'rooms', localKey: 'A' };
    expect(await world.state.db.transaction((tx) => takeFields(tx, record, takeText(['room.name'])))).toBe(
      'taken',
    );
    await world.drainInbox();
    expect(nameAtService(world, 'A')).toBe('Room A');
    edit(world, 'Aula again');
    await seat(world, 40);
    await world.sync();
    expect(nameAtService(world, 'A')).toBe('Aula again');
  });

  it('waits for the end of a batch, and refuses a record that was never accepted', async () => {
    const world = await open();
    const takeOf = (localKey: string) =>
      world.state.db.transaction((tx) =>
        takeFields(tx, { stream: 'rooms', localKey }, takeText(['room.name'])),
      );
    expect(await takeOf('B')).toBe('not accepted');
    await world.sql`UPDATE slotsync.records SET claimed_by = 'another', claimed_until = now() + interval '1 minute'`;
    expect(await takeOf('A')).toBe('being written');
  });
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
const stepsOf = (values: typeof VALUES) =>
  fc.array(
    fc.oneof(
      fc.record({ act: fc.constant('row' as const), values }),
      fc.record({ act: fc.constant('edit' as const), values }),
      fc.record({ act: fc.constant('other column' as const), values }),
      fc.record({ act: fc.constantFrom('sync' as const, 'verify' as const), values }),
    ),
    { minLength: 4, maxLength: 14 },
  );

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
            await settle(world);
            await verify(world.verifying());
            break;
          default:
            await settle(world);
            await world.sync();
            if (isWritten) {
              there = next(accepted, mapped, there);
              accepted = mapped;
            }
            isWritten = false;
        }
        expect([...valuesOf(code)]).toEqual(there);
      }
      await settle(world);
      const { drifting } = await verify(world.verifying());
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
