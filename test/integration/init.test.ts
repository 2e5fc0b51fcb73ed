// Proposals of init from real catalogues and values. The configuration of the demo is the measure.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { checkConfiguration, loadConfiguration } from '../../src/config/config-file.js';
import { universityConfig, universitySchema } from '../../src/demo/sync.config.js';
import { loadUniversity } from '../../src/demo/university.js';
import { renderConfiguration } from '../../src/sync/init/configuration-file.js';
import type { SandboxSchema } from '../../src/sandbox/schema.js';
import type { FieldSource } from '../../src/streams/lookups.js';
import type { Stream } from '../../src/streams/stream.js';
import type { NamedType } from '../../src/sync/init/match-names.js';
import { chooseTables, proposeConfiguration } from '../../src/sync/init/propose-configuration.js';
import { surveyService } from '../../src/sync/run/survey-service.js';
import { ROOMS } from '../support/campus.js';
import { isForMirrorAlone } from '../support/services.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld({ streams: { rooms: ROOMS } });
  // A proposal reads the tables of every schema.
  await world.sql`DROP SCHEMA IF EXISTS campus, archive, "My ""Campus""" CASCADE`;
});

/** Defines these types and fields at the service. */
function define(types: string, fields = ''): void {
  const named = (text: string) =>
    text
      .split(' ')
      .filter(Boolean)
      .map((extId) => ({ extId }));
  world.sandbox.defineSchema({ types: named(types), fields: named(fields) });
}

/** Proposes streams for these tables (`table` or `table=type`), or for all tables that resemble a type. */
async function propose(...names: string[]) {
  const { catalogue } = world.mirror;
  const tables = await catalogue.readTables();
  const survey = await surveyService(world.destination, { isWhole: false });
  const types = survey.types.filter((type): type is NamedType => type.extId !== undefined);
  const named = new Map(
    names
      .map((name) => name.split('='))
      .flatMap(([wanted, typeName]) =>
        tables
          .filter((table) => table.name === wanted)
          .map((table) => [table, types.find(({ extId }) => extId === typeName)] as const),
      ),
  );
  const matched = await chooseTables(catalogue, tables, types, named);
  const chosen = new Set(names.length > 0 ? named.keys() : matched.map(({ table }) => table));
  const proposal = await proposeConfiguration(catalogue, survey, matched, chosen, tables);
  const text = renderConfiguration(proposal, { service: 'service', database: 'db', types: undefined });
  return { ...proposal, text };
}

/** Reads the streams of a text as the program does. */
async function readStreams(text: string): Promise<readonly Stream[]> {
  const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-init-'));
  try {
    await writeFile(path.join(folder, 'sync.config.ts'), text);
    return (await loadConfiguration(undefined, folder)).streams;
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** Returns the column of each field, by type. Columns that a function reads count too. */
function mappedColumns(streams: readonly Stream[]): Set<string> {
  return new Set(
    streams.flatMap(({ type, fields, references }) => [
      ...[...fields].flatMap(([field, from]) =>
        columnsOf(from).map((column) => `${type}: ${field} from ${column}`),
      ),
      ...references.flatMap(({ fieldId, key }) =>
        key.map((column) => `${type}: ${fieldId} refers by ${column}`),
      ),
    ]),
  );
}

function columnsOf(from: FieldSource): string[] {
  if (typeof from === 'string') return [from];
  if (typeof from !== 'function') return [from.column];
  const read = new Set<string>();
  from(new Proxy({}, { get: (_, column) => (read.add(String(column)), '1') }));
  return [...read];
}

const withoutNames = ({ types, fields }: SandboxSchema): SandboxSchema => ({
  types: types.map(({ extId }) => ({ extId })),
  fields: fields.map(({ extId }) => ({ extId })),
});

describe.skipIf(isForMirrorAlone())('init of the sample university', () => {
  const { streams: expected } = checkConfiguration(universityConfig);

  it.each([
    ['with', universitySchema],
    ['without', withoutNames(universitySchema)],
  ])('maps nine columns in ten as the demo does, %s names at the service', async (_, schema) => {
    await loadUniversity(world.sql, { seed: 7 });
    world.sandbox.defineSchema(schema);
    const { text } = await propose();
    const streams = await readStreams(text);
    for (const stream of streams) expect(await world.mirror.checkStream(stream)).toEqual([]);

    const wanted = [...mappedColumns(expected)];
    const mapped = mappedColumns(streams);
    const missing = wanted.filter((one) => !mapped.has(one));
    expect(missing.length, missing.join('\n')).toBeLessThanOrEqual(wanted.length / 10);
    for (const { type, key, cursor } of expected) {
      const own = streams.find((stream) => stream.type === type);
      expect([own?.key, own?.cursor ?? cursor], type).toEqual([key, cursor ?? own?.cursor]);
    }
  });

  it('makes external ids like those at the service', async () => {
    await loadUniversity(world.sql, { seed: 7 });
    world.sandbox.defineSchema(universitySchema);
    for (const number of [1001, 1002, 1010])
      world.sandbox.putObject({ extId: `person_S${number}`, typeId: 'person.staff' });
    const groups = await world.sql<{ extId: string }[]>`
      SELECT 'GRP-' || programme_code || '-' || year_group AS "extId" FROM campus.student_groups LIMIT 20`;
    for (const { extId } of groups) world.sandbox.putObject({ extId, typeId: 'group' });
    world.sandbox.putObject({ extId: 'elsewhere/1', typeId: 'building' });
    const { streams } = await propose();
    const templates = new Map(streams.map(({ type, externalId }) => [type.extId, externalId]));
    expect(templates.get('person.staff')).toEqual({ template: 'person_{staff_number}' });
    expect(templates.get('group')).toEqual({ template: 'GRP-{programme_code}-{year_group}' });
    expect(templates.get('room')).toEqual({ template: 'room_{room_code}' });
    expect(templates.get('building')).toMatchObject({
      template: undefined,
      unsure: expect.stringMatching(
        /no column holds .*, such as elsewhere\/1; tried: \{building_code\} \(0 %\)/,
      ),
    });
  });

  it('adds the tables that the chosen tables refer to', async () => {
    await loadUniversity(world.sql, { seed: 7 });
    world.sandbox.defineSchema(universitySchema);
    const { streams } = await propose('courses');
    expect(streams.map(({ name }) => name).toSorted()).toEqual(['buildings', 'courses', 'rooms', 'staff']);
  });
});

describe('init beside objects at the service', () => {
  it('finds the column that makes their external ids, although all its values begin alike', async () => {
    await world.sql.unsafe(`
      CREATE TABLE persons (id int PRIMARY KEY, hsa_id text, name text);
      INSERT INTO persons SELECT i, 'SE2321-' || i + 1000, 'P' || i FROM generate_series(1, 2000) AS i`);
    define('person', 'person.name');
    for (const number of [1001, 1002, 1003])
      world.sandbox.putObject({ extId: `person_SE2321-${number}`, typeId: 'person' });
    expect((await propose()).streams[0]?.externalId).toEqual({ template: 'person_{hsa_id}' });
  });

  it('takes the table that makes their external ids, although another table fits better', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text);
      CREATE TABLE room_info (nr int PRIMARY KEY, name text);
      INSERT INTO rooms SELECT 'x' || i FROM generate_series(1, 50) AS i;
      INSERT INTO room_info SELECT i FROM generate_series(7, 9) AS i;
      ANALYZE rooms, room_info`);
    define('room', 'room.name');
    const tablesOf = async () => (await propose()).streams.map(({ table, unsure }) => [table.name, unsure]);
    expect(await tablesOf()).toEqual([['rooms', undefined]]);
    for (const nr of [7, 8]) world.sandbox.putObject({ extId: `room_${nr}`, typeId: 'room' });
    expect(await tablesOf()).toEqual([['room_info', undefined]]);
  });

  it('writes a draft when no column makes their external ids, and no reference to the draft', async () => {
    await world.sql.unsafe(`
      CREATE TABLE buildings (id int PRIMARY KEY, name text);
      CREATE TABLE rooms (code text PRIMARY KEY, name text, building int REFERENCES buildings);
      INSERT INTO buildings VALUES (7, 'Main')`);
    define('room building', 'room.name room.building building.name');
    world.sandbox.putObject({ extId: 'by hand', typeId: 'building' });
    const { text } = await propose();
    expect(text).toContain('// draft: complete the externalId of buildings, then remove the comment marks');
    expect(text).toContain("//   externalId: '',");
    expect(text).toContain('// unsure: building refers to buildings; stream buildings is a draft');
    expect((await readStreams(text)).map(({ name }) => name)).toEqual(['rooms']);
    const completed = text
      .replaceAll(/^ *\/\/ (?= |buildings: |\})/gm, '')
      .replace("externalId: ''", "externalId: '{id}'");
    expect((await readStreams(completed)).map(({ name }) => name)).toEqual(['buildings', 'rooms']);
  });
});

describe('init of tables of any design', () => {
  it('takes references from foreign keys of several columns, in any order', async () => {
    await world.sql.unsafe(`
      CREATE TABLE programmes (year int, code text, title text, PRIMARY KEY (code, year));
      CREATE TABLE courses (id int PRIMARY KEY, name text, p_year int, p_code text,
        FOREIGN KEY (p_year, p_code) REFERENCES programmes (year, code));`);
    define('programme course', 'programme.title course.name course.programme');
    const streams = await readStreams((await propose()).text);
    expect(streams.find(({ type }) => type === 'course')?.references).toEqual([
      { fieldId: 'course.programme', stream: 'programmes', key: ['p_code', 'p_year'] },
    ]);
  });

  it('names foreign keys that refer to something else than the key', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (id int PRIMARY KEY, code text NOT NULL UNIQUE);
      CREATE TABLE courses (id int PRIMARY KEY, room text REFERENCES rooms (code));`);
    define('room course', 'course.room');
    const { text } = await propose();
    expect(text).toContain('// unsure: room refers to rooms; it names code, not its key');
    expect(await readStreams(text)).toHaveLength(2);
  });

  it('keeps names with quotes, capitals, dots, spaces and line breaks', async () => {
    await world.sql.unsafe(`
      CREATE SCHEMA "My ""Campus""";
      CREATE TABLE "My ""Campus"""."Rooms.of the 'house'" ("Room's ""code""" text PRIMARY KEY, "Full\\ Name\n2" text, "värde" text);
      INSERT INTO "My ""Campus"""."Rooms.of the 'house'" VALUES ('a', 'b', 'c');`);
    world.sandbox.defineSchema({
      types: [{ extId: "house's rooms", name: 'Rum\n*/ i huset' }],
      fields: [
        { extId: "house's code" },
        { extId: 'house full.name 2', name: 'x' },
        { extId: "house's \\värde" },
      ],
    });
    const { text } = await propose();
    const [stream] = await readStreams(text);
    expect(stream).toMatchObject({
      source: { table: ['My "Campus"', "Rooms.of the 'house'"] },
      key: [`Room's "code"`],
      type: "house's rooms",
    });
    expect(Object.fromEntries(stream?.fields ?? [])).toMatchObject({
      'house full.name 2': 'Full\\ Name\n2',
      "house's \\värde": 'värde',
    });
    if (stream) expect(await world.mirror.checkStream(stream)).toEqual([]);
  });

  it('guesses the key of a view, and says so', async () => {
    await world.sql.unsafe(`
      CREATE VIEW rooms AS SELECT 'house' AS house, 'R' || i AS room_code, 'Sal' AS name FROM generate_series(1, 9) AS i;`);
    const { streams, text } = await propose();
    expect(streams[0]?.key).toMatchObject({ columns: ['room_code'] });
    expect(text).toMatch(/\/\/ unsure: the view declares no key; room_code is unique/);
    expect(await readStreams(text)).toHaveLength(1);
  });

  it('takes a unique index that is not null as the key of a table without a key', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (name text UNIQUE, nr int NOT NULL UNIQUE, id int);`);
    expect((await propose()).streams[0]?.key).toEqual({ columns: ['nr'] });
  });

  it('leaves out a reference that would make a cycle, except from a table to itself', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, part_of text REFERENCES rooms);
      CREATE TABLE courses (code text PRIMARY KEY, room text REFERENCES rooms);
      ALTER TABLE rooms ADD course text REFERENCES courses;`);
    define('room course', 'room.course course.room room.part');
    const { text } = await propose();
    const streams = await readStreams(text);
    const references = streams.flatMap((stream) =>
      stream.references.map((one) => ({ ...one, of: stream.name })),
    );
    expect(references.filter(({ of, stream }) => of !== stream)).toHaveLength(1);
    expect(references).toContainEqual({
      of: 'rooms',
      fieldId: 'room.part',
      stream: 'rooms',
      key: ['part_of'],
    });
    expect(text).toMatch(/unsure: \w+ refers to \w+; as a reference it would make a cycle/);
  });

  it('does not take amounts for references to keys that are counted up', async () => {
    await world.sql.unsafe(`
      CREATE TABLE buildings (id int PRIMARY KEY, name text);
      CREATE TABLE rooms (code text PRIMARY KEY, seats int, name text);
      INSERT INTO buildings SELECT i, 'B' || i FROM generate_series(1, 500) AS i;
      INSERT INTO rooms SELECT 'R' || i, i + 7, 'Sal' FROM generate_series(1, 300) AS i;`);
    define('room building', 'room.seats room.name building.name');
    const rooms = (await readStreams((await propose()).text)).find(({ type }) => type === 'room');
    expect([rooms?.references, rooms?.fields.get('room.seats')]).toEqual([[], 'seats']);
  });

  it('does not take small numbers for references', async () => {
    await world.sql.unsafe(`
      CREATE TABLE buildings (id int PRIMARY KEY, name text);
      CREATE TABLE rooms (code text PRIMARY KEY, floor int, name text);
      INSERT INTO buildings SELECT i, 'B' || i FROM generate_series(1, 50) AS i;
      INSERT INTO rooms SELECT 'R' || i, i % 5 + 1, 'Sal' FROM generate_series(1, 50) AS i;`);
    define('room building', 'room.floor room.name building.name');
    const rooms = (await readStreams((await propose()).text)).find(({ type }) => type === 'room');
    expect([rooms?.references, rooms?.fields.get('room.floor')]).toEqual([[], 'floor']);
  });

  it('leaves out columns that no field can be filled from, and lists the unused columns', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name json, floor int);`);
    const { streams, text } = await propose();
    expect(streams[0]?.fields).toEqual([]);
    expect(text).toContain(
      "// unsure: 'room.name' is like column name, which is json: a function can make text of it, (row) => …",
    );
    expect(text).toContain('// columns that fill nothing: name, floor');
  });

  it('refers from a table to itself by a foreign key, and fills no field with that key', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text, parent_code text REFERENCES rooms);`);
    define('room', 'room.name room.parent room.colour');
    const { streams, text } = await propose();
    expect(streams[0]?.fields.map(({ columns }) => columns)).toEqual([['name']]);
    expect((await readStreams(text))[0]?.references).toEqual([
      { fieldId: 'room.parent', stream: 'rooms', key: ['parent_code'] },
    ]);
    expect(text).toContain("// no column is like 'room.colour'");
  });

  it('offers a column for a field of any type, and names a field without a column once', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text, comment text);
      CREATE TABLE courses (code text PRIMARY KEY, name text, comment text);`);
    define('room course', 'name comment colour room.a room.b');
    const { text } = await propose();
    for (const { fields } of await readStreams(text)) expect([...fields]).toEqual([['name', 'name']]);
    expect(
      text.match(/\/\/ unsure: any type may have 'comment'.*\n +\/\/ comment: 'comment',/g),
    ).toHaveLength(2);
    expect(text.match(/no column is like .*/g)).toEqual([
      "no column is like 'room.a', 'room.b'",
      "no column is like 'colour'",
    ]);
  });

  it('reads only columns that a stream needs, and no secrets, even for a field of that name', async () => {
    await world.sql.unsafe(`
      CREATE TABLE persons ("Id" int PRIMARY KEY, name text, ssn text, "passwordHash" text, shoe_size int, updated_at timestamptz)`);
    define('person', 'person.name person.ssn');
    const { text } = await propose();
    expect(text).toContain('// left out, because they look like secrets: ssn, passwordHash');
    expect(text).toContain(
      'limits: { retire: { count: 10, percent: 10 }, update: { count: 10, percent: 20 } },',
    );
    const [stream] = await readStreams(text);
    expect(stream?.source).toEqual({ table: ['public', 'persons'], columns: ['Id', 'name', 'updated_at'] });
    if (stream) expect(await world.mirror.checkStream(stream)).toEqual([]);
    await world.sql`ALTER TABLE persons DROP CONSTRAINT persons_pkey, ADD PRIMARY KEY (ssn)`;
    expect((await propose()).text).toContain('// unsure: the key or the external id looks like a secret');
  });

  it.each([
    ['a foreign key', 'CREATE TABLE teachers (id int PRIMARY KEY REFERENCES persons, title text)', 'id'],
    ['a key of the same name', 'CREATE TABLE teachers (person_id int PRIMARY KEY, title text)', 'person_id'],
  ])('offers a join with the table that shares the key by %s, to fill the name', async (_, teachers, key) => {
    await world.sql.unsafe(`
      CREATE TABLE persons (person_id int PRIMARY KEY, title text, given_name text, family_name text);
      CREATE TABLE buildings (id int PRIMARY KEY, name text);
      ${teachers};
      INSERT INTO persons VALUES (1, 'Dr', 'Ada', 'Berg');
      INSERT INTO buildings VALUES (1, 'Main');
      INSERT INTO teachers VALUES (1, 'Professor')`);
    define('teacher', 'teacher.name');
    const { text } = await propose();
    expect(text).toContain('// unsure: persons shares the key, and has columns for more fields');
    expect(text).toContain("// 'teacher.name': (row) => [row.given_name, row.family_name]");
    const [, sql = ''] = /\/\/ from: \{ query: '(.*)' \},/.exec(text) ?? [];
    expect(await world.sql.unsafe(sql)).toEqual([{ [key]: 1, given_name: 'Ada', family_name: 'Berg' }]);
    expect((await readStreams(text))[0]?.fields.size).toBe(0);
  });

  it('takes the only text column beside the key as the name', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, designation text, seats int, comment text);
      CREATE TABLE courses (code text PRIMARY KEY, designation text, remark text);`);
    define('room course', 'room.name course.name comment');
    const { streams, text } = await propose();
    expect(Object.fromEntries(streams.map(({ name, fields }) => [name, fields.length]))).toEqual({
      rooms: 1,
      courses: 0,
    });
    expect(text).toMatch(/\/\/ unsure: the only text column beside the key\n +'room.name': 'designation',/);
  });

  it('proposes which rows are current', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY, name text, valid_from date, "validTo" timestamptz, is_active boolean, deleted int);`);
    const { text } = await propose();
    expect(text).toContain(
      '// unsure: valid_from, validTo, is_active, deleted may say which rows are current; ',
    );
    const [, where = ''] = /\/\/ where: (.*)/.exec(text) ?? [];
    await world.sql.unsafe(`
      INSERT INTO rooms VALUES ('now', NULL, '2020-01-01', NULL, true), ('ended', NULL, NULL, '2020-01-01', true),
        ('inactive', NULL, NULL, NULL, false), ('later', NULL, '9020-01-01', NULL, NULL)`);
    expect(await world.sql.unsafe(`SELECT code FROM rooms WHERE ${where}`)).toEqual([{ code: 'now' }]);
  });

  it('warns of a key with a time, and takes another key where there is one', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (since timestamptz, building text, name text, PRIMARY KEY (since, building));`);
    define('room', 'room.name');
    expect((await propose()).text).toMatch(
      /\/\/ unsure: since is a time: a row whose time changes counts as another one.*\n +key: \['since', 'building'\]/,
    );
    await world.sql`ALTER TABLE rooms ADD nr int NOT NULL UNIQUE`;
    expect((await propose()).streams[0]?.key).toEqual({ columns: ['nr'] });
  });

  it('takes no table whose rows belong to another table too, unless the table is named', async () => {
    await world.sql.unsafe(`
      CREATE TABLE people (id int PRIMARY KEY, name text);
      CREATE TABLE students (PRIMARY KEY (id)) INHERITS (people);`);
    define('person student');
    const tablesOf = async (...names: string[]) =>
      (await propose(...names)).streams.map(({ table }) => table.name);
    expect(await tablesOf()).toEqual([]);
    expect(await tablesOf('students')).toEqual(['students']);
  });

  it('takes the table with references, then the one with more rows, if two fit a type alike', async () => {
    await world.sql.unsafe(`
      CREATE SCHEMA archive; CREATE SCHEMA campus;
      CREATE TABLE archive.rooms (code text PRIMARY KEY);
      CREATE TABLE campus.rooms (code text PRIMARY KEY);
      INSERT INTO campus.rooms SELECT i FROM generate_series(1, 20) AS i;
      ANALYZE archive.rooms, campus.rooms`);
    define('room');
    const { streams, text } = await propose();
    expect(streams.map(({ table }) => table.schema)).toEqual(['campus']);
    expect(text).toContain('// unsure: archive.rooms is as much like room\n');
    await world.sql.unsafe('CREATE TABLE lessons (id int PRIMARY KEY, room text REFERENCES archive.rooms)');
    expect((await propose()).streams.map(({ table }) => table.schema)).toEqual(['archive']);
  });

  it('shows no table of slotsync', async () => {
    await world.sql.unsafe(`
      CREATE TABLE rooms (code text PRIMARY KEY);
      CREATE SCHEMA IF NOT EXISTS slotsync_queue; CREATE TABLE slotsync_queue.rooms (code text);`);
    const tables = await world.mirror.catalogue.readTables();
    expect(tables.map(({ schema, name }) => `${schema}.${name}`)).toEqual(['public.rooms']);
  });

  it('finds a table by joined words, and takes a table of any name as the stated type', async () => {
    await world.sql.unsafe(`
      CREATE TABLE meetingroominfo (id int PRIMARY KEY, name text); CREATE TABLE lokaler (id int PRIMARY KEY);
      CREATE TABLE meetingroombookings (id int PRIMARY KEY);`);
    world.sandbox.defineSchema({ types: [{ extId: 'room.mr', name: 'Meeting room' }], fields: [] });
    const { streams } = await propose();
    expect(streams.map(({ name, unsure }) => [name, unsure])).toEqual([
      ['meetingroominfo', 'meetingroominfo and room.mr are only similar'],
    ]);
    const stated = await propose('lokaler=room.mr', 'meetingroominfo=room.mr');
    expect(stated.streams.map(({ name, unsure }) => [name, unsure])).toEqual([
      ['lokaler', undefined],
      ['meetingroominfo', undefined],
    ]);
  });

  it('names the tables and types that have no counterpart', async () => {
    await world.sql.unsafe(`CREATE TABLE rooms (code text PRIMARY KEY); CREATE TABLE invoices (id int);`);
    define('room vehicle');
    const { text, leftOut } = await propose('rooms', 'invoices');
    expect(leftOut).toMatchObject([{ table: { name: 'invoices' } }]);
    expect(text).toContain(
      '// public.invoices: no type of the service is like it; state its type: --tables invoices=<type>',
    );
    expect(text).toContain("// type 'vehicle': no table is chosen for it");
    expect(await readStreams(text)).toHaveLength(1);
  });
});
