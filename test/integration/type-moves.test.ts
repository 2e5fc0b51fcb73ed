// Guarantee 6
// A row moves to a stream of another type with the same external id: a teacher becomes a student.
import { describe, expect, it } from 'vitest';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { retryRecords } from '../../src/state/records/retry-records.js';
import type { DialectDefinition } from '../../src/dialect/dialect.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { verify } from '../../src/sync/verify/verify.js';
import type { Declaration } from '../support/campus.js';
import { keepWorlds } from '../support/worlds.js';
import type { World, WorldOptions } from '../support/world.js';

const openWorld = keepWorlds();

const PERSON = { key: 'id', externalId: 'person_{id}', retire: 'deactivate' } as const;
const STAFF: Declaration = {
  ...PERSON,
  from: 'staff',
  type: 'staff',
  fields: { 'person.name': 'name', 'staff.room': 'room' },
};
const STUDENTS: Declaration = {
  ...PERSON,
  from: 'students',
  type: 'student',
  fields: { 'person.name': 'name', 'student.year': 'year' },
};
const SCHEMA = {
  types: [{ extId: 'staff' }, { extId: 'student' }, { extId: 'tutor', parent: 'student' }],
  fields: [
    { extId: 'person.name' },
    { extId: 'staff.room', type: 'staff' },
    { extId: 'student.year', type: 'student' },
    { extId: 'comment' },
  ],
};

/** A service that keeps what is not sent. */
const PATCHING: DialectDefinition = (base) => ({
  write: {
    method: 'POST',
    path: '/objects/upsert',
    body: (objects) => ({ ...(base.write.body(objects) as object), importMode: 'PATCH' }),
    patches: true,
  },
});

const config = (
  canChangeTypes = false,
  changes: { staff?: Partial<Declaration>; students?: Partial<Declaration> } = {},
): SlotsyncConfig => ({
  streams: { staff: { ...STAFF, ...changes.staff }, students: { ...STUDENTS, ...changes.students } },
  service: { canChangeTypes },
});

/** Opens a world in which twenty persons are staff. */
async function open(
  declared = config(),
  sandbox: WorldOptions['sandbox'] = {},
  options: WorldOptions = {},
): Promise<World> {
  const world = await openWorld(declared, { ...options, sandbox: { schema: SCHEMA, ...sandbox } });
  await world.sql`CREATE TABLE staff_archive (id int PRIMARY KEY, name text, room text)`;
  await world.sql`CREATE TABLE staff (id int PRIMARY KEY, name text, room text)`;
  await world.sql`CREATE TABLE students (id int PRIMARY KEY, name text, year int)`;
  await world.sql`INSERT INTO staff SELECT i, 'Person ' || i, 'N1' FROM generate_series(1, 20) AS i`;
  await world.sync();
  world.sandbox.clearArrivals();
  return world;
}

/** Moves these persons from staff to students. */
const move = ({ sql }: World, ...ids: number[]) => sql`
  WITH moved AS (DELETE FROM staff WHERE id = ANY (${ids}) RETURNING id, name)
  INSERT INTO students SELECT id, name, 1 FROM moved`;
/** Opens the world after person 7 has become a student and a sync has seen it. */
async function openMoved(...how: Parameters<typeof open>): Promise<World> {
  const world = await open(...how);
  await move(world, 7);
  await world.sync();
  return world;
}
const person = (world: World, id: number) => world.sandbox.object(`person_${id}`);
const student = async (world: World, id = 7) => (await world.recordsOf('students'))[String(id)];
const retry = (world: World) => retryRecords(world.state.db, { stream: 'students', keys: ['7'] });

describe('a row that moves to a stream of another type', () => {
  it('has its former object deactivated, and its new record names the reason', async () => {
    const world = await open();
    await move(world, 7);
    const { run } = await world.sync();
    expect(run).toMatchObject({
      status: 'partial',
      plan: { staff: { retire: 1, moved: 0 }, students: { create: 1, moved: 0 } },
    });
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: false });
    expect(await world.statusesOf('staff')).toMatchObject({ 7: 'retired' });
    expect(await student(world)).toMatchObject({
      status: 'dead',
      error_code: 'external_id_taken',
      error_message: "'person_7' exists at the service as a staff, not a student; it is that of staff '7'",
      external_id: null,
      row_external_id: 'person_7',
    });
    expect(world.writes()).toHaveLength(1);
    expect((await world.sync()).run).toMatchObject({ plan: { staff: { retire: 0 } } });
    // It gets its object back when it moves back.
    await world.sql`DELETE FROM students`;
    await world.sql`INSERT INTO staff VALUES (7, 'Person 7', 'N2')`;
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: true });
    expect(await world.recordsOf('students')).toEqual({});
    // Rows that move both ways have both objects deactivated.
    await world.sql`INSERT INTO students VALUES (99, 'Person 99', 1)`;
    await world.sync();
    await move(world, 7);
    await world.sql`DELETE FROM students WHERE id = 99`;
    await world.sql`INSERT INTO staff VALUES (99, 'Person 99', 'N1')`;
    await world.sync();
    expect([person(world, 7)?.active, person(world, 99)?.active]).toEqual([false, false]);
  });

  it('has its former object deactivated within the limits only', async () => {
    const world = await open(config(false, { staff: { limits: { retire: { count: 1, percent: 0 } } } }));
    await move(world, 7, 8);
    const { run } = await world.sync();
    expect(run).toMatchObject({ holds: { staff: { retire: { count: 2 } } } });
    expect([person(world, 7)?.active, person(world, 8)?.active]).toEqual([true, true]);
    await world.approve(run.id, { stream: 'staff' });
    expect([person(world, 7)?.active, person(world, 8)?.active]).toEqual([false, false]);
  });

  it('has its former object deactivated by the sync after incremental runs', async () => {
    const world = await open();
    await move(world, 7);
    await addChanges(world.state.db, 'staff', ['7']);
    await addChanges(world.state.db, 'students', ['7']);
    await world.drainInbox();
    expect(await student(world)).toMatchObject({ error_code: 'external_id_taken' });
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: true });
    await world.sync();
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: false });
  });

  it('is sent by the retry once its former object is out of the way at the service', async () => {
    const world = await open();
    const ways: [id: number, act: (extId: string) => unknown][] = [
      [4, (extId) => world.sandbox.removeObject(extId)],
      [5, (extId) => world.sandbox.changeObject(extId, { extId: 'former' })],
      [6, (extId) => world.sandbox.changeObject(extId, { extId: null })],
      [7, (extId) => world.sandbox.putObject({ extId, typeId: 'student', active: false })],
    ];
    const retryAll = () => retryRecords(world.state.db, { stream: 'students', keys: [] });
    await move(world, ...ways.map(([id]) => id));
    await world.sync();
    await retryAll();
    await world.sync();
    for (const [id] of ways) expect(await student(world, id)).toMatchObject({ status: 'dead' });
    for (const [id, act] of ways) act(`person_${id}`);
    await retryAll();
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    for (const [id] of ways) {
      expect(person(world, id)).toMatchObject({ typeId: 'student', active: true });
      expect(await student(world, id)).toMatchObject({ status: 'synced', external_id: `person_${id}` });
      expect(Object.keys(await world.recordsOf('staff'))).not.toContain(String(id));
    }
    expect(await verify(world.verifying())).toMatchObject({ drifting: 0 });
  });

  it('is sent by the retry once `subtypes` name the former type, which it keeps', async () => {
    const world = await openMoved();
    world.configure(config(false, { students: { subtypes: ['staff'], fields: { 'person.name': 'name' } } }));
    await retry(world);
    await world.sync();
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: true });
    expect(await student(world)).toMatchObject({ status: 'synced' });
  });

  it('keeps an object of a type that both streams may have', async () => {
    const both = { staff: { subtypes: ['tutor'] }, students: { subtypes: ['tutor'] } };
    const world = await open(config(false, both));
    await world.sql`INSERT INTO staff VALUES (21, 'Person 21', NULL), (22, 'Person 22', NULL)`;
    world.sandbox.addObject({ extId: 'person_21', typeId: 'tutor', fields: [] });
    await world.sync();
    await move(world, 21, 22);
    await world.sync();
    expect(person(world, 21)).toMatchObject({ typeId: 'tutor', active: true });
    expect(await student(world, 21)).toMatchObject({ status: 'synced' });
    expect(person(world, 22)).toMatchObject({ typeId: 'staff', active: false });
    expect(await student(world, 22)).toMatchObject({ error_code: 'external_id_taken' });
  });
});

describe('a moved row where the service can change types', () => {
  it('takes its object along, with the values that people keep there', async () => {
    const world = await open(config(true), { changeTypes: true });
    world.sandbox.changeObject('person_7', { fields: [{ fieldId: 'comment', values: ['kept'] }] });
    const number = person(world, 7)?.id;
    await move(world, 7);
    const { run } = await world.sync();
    expect(run).toMatchObject({ status: 'succeeded', plan: { staff: { retire: 0 } } });
    expect(person(world, 7)).toMatchObject({ id: number, typeId: 'student', active: true });
    expect(world.fieldsOf('person_7')).toEqual({
      'person.name': 'Person 7',
      'student.year': '1',
      comment: 'kept',
    });
    expect(world.writes()).toHaveLength(1);
    expect(Object.keys(await world.recordsOf('staff'))).not.toContain('7');
    world.sandbox.clearArrivals();
    await world.sync();
    expect(world.writes()).toEqual([]);
  });

  it('asks for the new type once, and the next run deactivates a refused object', async () => {
    const world = await openMoved(config(true));
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: true });
    expect(await student(world)).toMatchObject({
      status: 'dead',
      error_code: 'external_id_taken',
      error_message: expect.stringMatching(
        /as a staff, not a student, and the service does not change the type: .* its type cannot be changed$/,
      ),
    });
    expect((await world.sync()).run).toMatchObject({ plan: { staff: { retire: 1 } } });
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: false });
    await retry(world);
    await world.sync();
    await world.sync();
    expect(world.writes()).toHaveLength(2);
    expect(await student(world)).toMatchObject({ error_code: 'external_id_taken' });
    world.sandbox.removeObject('person_7');
    await retry(world);
    await world.sync();
    expect(person(world, 7)).toMatchObject({ typeId: 'student', active: true });
    expect(await student(world)).toMatchObject({ status: 'synced' });
  });

  it.each<[string, Partial<WorldOptions>, Partial<Declaration>]>([
    ['that patches', { dialect: PATCHING }, {}],
    ['whose objects are owned whole', {}, { owns: 'object' }],
  ])('asks for the new type in a service %s', async (_, options, changes) => {
    const streams = { staff: { ...changes, fields: { 'person.name': 'name' } }, students: changes };
    const world = await openMoved(config(true, streams), {}, options);
    expect(await student(world)).toMatchObject({ status: 'dead', error_code: 'external_id_taken' });
    await world.sync();
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: false });
  });

  it('leaves a refused object to the stream whose template makes its external id', async () => {
    const archive: Declaration = {
      ...STAFF,
      from: 'staff_archive',
      externalId: 'former_{id}',
      retire: 'keep',
    };
    const declared = config(true);
    const world = await openMoved({ ...declared, streams: { archive, ...declared.streams } });
    await world.sync();
    expect(person(world, 7)).toMatchObject({ typeId: 'staff', active: false });
  });

  it('asks for the new type by the retry once the service is configured for it', async () => {
    const world = await openMoved(config(false), { changeTypes: true });
    Object.assign(world.destination, { canChangeTypes: true }); // as of the next configuration
    await retry(world);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(person(world, 7)).toMatchObject({ typeId: 'student', active: true });
  });

  it('leaves an object of another type alone that no record has had', async () => {
    const world = await open(config(true), { changeTypes: true });
    world.sandbox.addObject({ extId: 'person_30', typeId: 'staff', fields: [] });
    await world.sql`INSERT INTO students VALUES (30, 'Person 30', 1)`;
    await world.sync();
    expect(person(world, 30)).toMatchObject({ typeId: 'staff' });
    expect(await student(world, 30)).toMatchObject({ error_code: 'external_id_taken' });
  });
});
