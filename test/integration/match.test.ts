// The comparison of objects at the service with rows of the mirror, and the links that an operator makes from it.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openCsvFile, readCsvFile, type CsvRow } from '../../src/files/csv-file.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { unlinkRecords } from '../../src/state/records/links.js';
import { applyLinks } from '../../src/sync/match/apply-links.js';
import { MATCH_COLUMNS, NEEDED_COLUMNS, toCsvRow } from '../../src/sync/match/match-file.js';
import { matchStreams, type MatchLine, type MatchRequest } from '../../src/sync/match/match-streams.js';
import { COURSES, ROOMS } from '../support/campus.js';
import type { World, WorldOptions } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const open = keepWorlds();
const CONFIG: SlotsyncConfig = {
  streams: { rooms: ROOMS, courses: COURSES },
  service: { assignExternalIds: true },
};

async function campus(
  rooms: Record<string, string | null>,
  config = CONFIG,
  options: WorldOptions = {},
): Promise<World> {
  const world = await open(config, options);
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
  for (const [code, name] of Object.entries(rooms))
    await world.sql`INSERT INTO rooms VALUES (${code}, ${name})`;
  return world;
}

const named = (name: string) => [{ fieldId: 'room.name', values: [name] }];
const room = (world: World, extId: string | null, name: string) =>
  world.sandbox.addObject({ extId, typeId: 'room', fields: named(name) });

async function find(world: World, request: Partial<MatchRequest> = {}) {
  const lines: MatchLine[] = [];
  const types = await matchStreams(world.deps(), {
    names: ['rooms'],
    by: ['room.name'],
    samples: 3,
    write: async (found) => void lines.push(...found),
    ...request,
  });
  const [type] = types;
  const [stream] = type?.streams ?? [];
  if (!type || !stream) throw new Error('a type has a stream');
  return {
    types,
    type,
    stream,
    lines: lines.map((line) => [line.class, line.key, line.externalId, line.number]),
  };
}

/** Returns the lines of a file, from the second on. */
const csv = (...rows: Record<string, string | number>[]): CsvRow[] =>
  rows.map((row, at) => ({
    line: at + 2,
    values: {
      class: 'match',
      stream: 'rooms',
      external_id: '',
      ...Object.fromEntries(Object.entries(row).map(([column, value]) => [column, String(value)])),
    },
  }));

const links = (world: World) =>
  world.sql`SELECT stream, local_key, external_id, assigns_id FROM slotsync.links ORDER BY stream, local_key`;

/** Returns the faults for which nothing was linked. */
async function refused(world: World, rows: CsvRow[]): Promise<readonly string[]> {
  const error = await applyLinks(world.deps(), rows).then(
    () => undefined,
    (thrown: unknown) => thrown as { faults: string[] },
  );
  expect(await links(world)).toEqual([]);
  return error?.faults ?? ['it was linked'];
}

describe('rows and objects in match', () => {
  it('are sorted by external id, then by values, and each counts once', async () => {
    const world = await campus({ A: 'Aula', B: 'Bio', C: 'Chem', D: 'Twin', E: 'Twin', F: 'Far', G: null });
    room(world, 'room_A', 'Aula');
    const differing = room(world, 'room_B', 'Old name');
    const byHand = room(world, 'hand', 'Chem');
    const twin = room(world, null, 'Twin');
    const cellar = room(world, 'cellar', 'Cellar');
    const attic = room(world, null, 'Attic');
    const { type, stream, lines } = await find(world);
    expect(stream).toMatchObject({
      rows: 7,
      counts: { equal: 1, differs: 1, match: 1, ambiguous: 2, only_here: 2, not_comparable: 0 },
      fields: { 'room.name': 1 },
      unnamed: 0,
    });
    expect(type).toMatchObject({ objects: 6, nobodys: { only_there: 1, without_id: 1, ambiguous: 1 } });
    expect(lines).toEqual([
      ['match', 'C', 'hand', String(byHand.id)],
      ['ambiguous', 'D', undefined, String(twin.id)],
      ['ambiguous', 'E', undefined, String(twin.id)],
      ['only_here', 'F', undefined, undefined],
      ['only_here', 'G', undefined, undefined],
      ['without_id', undefined, undefined, String(attic.id)],
      ['only_there', undefined, 'cellar', String(cellar.id)],
      ['differs', 'B', 'room_B', String(differing.id)],
    ]);
  });

  it.each([
    ['by external id only if the stream has no fields', undefined, { match: 0, only_here: 1 }, 1],
    ['by the fields of the stream unless other fields are named', ['room.name'], { match: 1 }, 0],
  ])('are compared %s', async (_, match, counts, onlyThere) => {
    const world = await campus({ A: 'Aula' }, { ...CONFIG, streams: { rooms: { ...ROOMS, match } } });
    room(world, 'hand', 'Aula');
    const { stream, type } = await find(world, { by: undefined });
    expect(stream).toMatchObject({ by: match ?? [], counts });
    expect(type.nobodys).toMatchObject({ only_there: onlyThere });
  });

  it('are not listed when the mirror and the service are empty', async () => {
    const { stream, type, lines } = await find(await campus({}));
    expect(stream).toMatchObject({ rows: 0, counts: { equal: 0, only_here: 0 } });
    expect({ type, lines }).toMatchObject({ type: { objects: 0, samples: [] }, lines: [] });
  });

  it('are ambiguous when two streams match one object, whichever stream was asked for', async () => {
    const both: SlotsyncConfig = {
      streams: {
        rooms: { ...ROOMS, match: ['room.name'] },
        halls: { ...ROOMS, from: 'halls', externalId: 'hall_{code}', match: ['room.name'] },
      },
    };
    const world = await campus({ A: 'Aula', B: 'Bio' }, both);
    await world.sql`CREATE TABLE halls (code text PRIMARY KEY, name text)`;
    await world.sql`INSERT INTO halls VALUES ('H', 'Aula'), ('A', 'Own')`;
    room(world, null, 'Aula');
    room(world, null, 'Bio');
    room(world, 'hall_A', 'Own');
    const found = await find(world, { by: undefined });
    expect(found.types.flatMap(({ streams }) => streams.map(({ stream }) => stream))).toEqual(['rooms']);
    expect(found.stream.counts).toMatchObject({ match: 1, ambiguous: 1, only_here: 0 });
    expect(found.type.samples.find((line) => line.class === 'ambiguous')).toMatchObject({
      key: 'A',
      note: 'rows of two streams match this object',
    });
    const halls = await find(world, { names: ['halls'], by: undefined });
    expect(halls.stream.counts).toMatchObject({ equal: 1, ambiguous: 1 });
  });

  it('are listed alone, and not as pairs, if they have the same values too often', async () => {
    const many = Array.from({ length: 11 }, (_, i) => `R${10 + i}`);
    const world = await campus(Object.fromEntries(many.map((code) => [code, 'Same'])));
    for (let i = 0; i < 11; i++) room(world, null, 'Same');
    const { stream, type, lines } = await find(world);
    expect(stream.counts.ambiguous).toBe(11);
    expect(type.nobodys.ambiguous).toBe(11);
    expect(lines).toHaveLength(22);
  });

  it('include records whose row is gone, and rows that cannot be mapped', async () => {
    const broken: SlotsyncConfig = {
      streams: {
        rooms: {
          ...ROOMS,
          fields: {
            'room.name': ({ name }) => {
              if (name === 'bad') throw new Error('no name');
              return name as string;
            },
          },
        },
      },
    };
    const world = await campus({ A: 'Aula', B: 'Bio' }, broken);
    await world.sync();
    await world.sql`DELETE FROM rooms WHERE code = 'A'`;
    await world.sql`UPDATE rooms SET name = 'bad' WHERE code = 'B'`;
    await world.sql`INSERT INTO rooms VALUES ('C', 'bad')`;
    const { stream, type } = await find(world);
    expect(stream).toMatchObject({ rowGone: 1, counts: { not_comparable: 2, only_here: 0 } });
    expect(
      type.samples.filter((line) => line.class === 'not_comparable').map(({ key, note }) => [key, note]),
    ).toEqual([
      ['B', "rooms.fields['room.name']: no name"],
      ['C', "rooms.fields['room.name']: no name"],
    ]);
  });

  it('are compared without references to objects that do not exist yet', async () => {
    const world = await campus({ A: 'Aula' });
    await world.sql`INSERT INTO courses VALUES ('K', 'Kurs', 'A'), ('L', 'Lab', NULL)`;
    const fields = [{ fieldId: 'course.name', values: ['Kurs'] }];
    world.sandbox.addObject({ extId: 'course_K', typeId: 'course', fields });
    const lab = [{ fieldId: 'course.name', values: ['Lab'] }];
    world.sandbox.addObject({ extId: null, typeId: 'course', fields: lab });
    const { stream } = await find(world, { names: ['courses'], by: ['course.name'] });
    expect(stream).toMatchObject({ incomplete: 1, counts: { equal: 1, match: 1 } });
    const byReference = await find(world, { names: ['courses'], by: ['course.room'] });
    expect(byReference.stream.counts).toMatchObject({ equal: 1, match: 0, only_here: 1 });
  });

  it('are read again when the service moves its pages, and are counted once', async () => {
    const world = await campus({ A: 'Aula' }, { ...CONFIG, service: { pageSize: 1 } });
    room(world, 'x', 'X');
    room(world, 'room_A', 'Aula');
    room(world, 'y', 'Y');
    let asked = 0;
    const { type } = await find(world, {
      pace: async () => {
        if (++asked === 3) room(world, 'z', 'Z');
      },
    });
    expect(type).toMatchObject({ objects: 4, nobodys: { only_there: 3 } });
  });

  it('are found and linked with a composite key and a template of several columns', async () => {
    const world = await open({
      streams: {
        rooms: {
          ...ROOMS,
          key: ['campus', 'code'],
          externalId: '{campus}/{code}',
          fields: { 'room.name': 'name', 'room.campus': 'campus' },
        },
      },
    });
    await world.sql`CREATE TABLE rooms (campus text, code text, name text, PRIMARY KEY (campus, code))`;
    await world.sql`INSERT INTO rooms VALUES ('N', '1', 'Aula'), ('S|x', '1', 'Aula'), ('S|x', '2', 'Bio')`;
    const at = (campus: string) => ({ fieldId: 'room.campus', values: [campus] });
    world.sandbox.addObject({ extId: 'N/1', typeId: 'room', fields: [...named('Aula'), at('N')] });
    const fields = [...named('Aula'), at('S|x')];
    const { id } = world.sandbox.addObject({ extId: 'hand', typeId: 'room', fields });
    const { stream, lines } = await find(world, { by: ['room.name', 'room.campus'] });
    expect(stream.counts).toMatchObject({ equal: 1, match: 1, only_here: 1 });
    expect(lines[0]).toEqual(['match', String.raw`S\|x|1`, 'hand', String(id)]);
    await applyLinks(world.deps(), csv({ key: String.raw`S\|x|1`, number: id }));
    expect((await find(world)).stream.counts).toMatchObject({ equal: 2, match: 0, only_here: 1 });
  });

  it('have no results when the service has fewer pages than it promised', async () => {
    const world = await campus({ A: 'Aula' }, { ...CONFIG, service: { pageSize: 1 } });
    for (const extId of ['a', 'b', 'c']) room(world, extId, extId);
    world.sandbox.setMissingPages(1);
    await expect(find(world)).rejects.toMatchObject({
      code: 'answer_invalid',
      message: expect.stringContaining('its pages were inconsistent in 3 attempts'),
    });
  });

  it('come back from the file unchanged with keys of any text', async () => {
    const keys = ['007', '=1+1', 'a,"b"\nc', "'quoted", '-5', 'Å|\\'];
    const world = await campus(Object.fromEntries(keys.map((key) => [key, `name ${key}`])));
    for (const key of keys) room(world, null, `name ${key}`);
    const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-match-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = path.join(folder, 'match.csv');
    const out = await openCsvFile(file, MATCH_COLUMNS);
    await find(world, { write: (found) => out.write(found.map(toCsvRow)) });
    await out.close();
    const { linked } = await applyLinks(world.deps(), readCsvFile(file, NEEDED_COLUMNS));
    expect(linked.map(({ key }) => key).toSorted()).toEqual(keys.toSorted());
  });
});

it('match lists an object whose external id the state cannot hold', async () => {
  const world = await campus({ A: 'Room A' });
  room(world, 'room_\0', 'Room A');
  room(world, 'room_\uD800', 'Room B');
  expect((await find(world)).lines).toEqual([
    ['match', 'A', 'room_', '1001'],
    ['only_there', undefined, 'room_\uFFFD', '1002'],
  ]);
});

describe('a file of links that is applied', () => {
  it('links rows to objects with and without an external id, once', async () => {
    const world = await campus({ A: 'Aula', B: 'Bio' });
    const [a, b] = [room(world, 'hand', 'Aula'), room(world, null, 'Bio')];
    const rows = csv(
      { key: 'A', external_id: 'hand', number: a.id },
      { key: 'B', number: b.id },
      { key: 'B', number: b.id, class: 'ambiguous' },
    );
    expect(await applyLinks(world.deps(), rows)).toMatchObject({
      linked: [
        { key: 'A', externalId: 'hand', assignsId: false },
        { key: 'B', externalId: 'room_B', assignsId: true },
      ],
      already: 0,
      others: 1,
    });
    expect(await links(world)).toEqual([
      { stream: 'rooms', local_key: 'A', external_id: 'hand', assigns_id: false },
      { stream: 'rooms', local_key: 'B', external_id: 'room_B', assigns_id: true },
    ]);
    expect(await applyLinks(world.deps(), rows)).toMatchObject({ linked: [], already: 2 });
    expect(world.writes()).toHaveLength(0);
  });

  it('finds an object by its external id only', async () => {
    const world = await campus({ A: 'Aula' });
    const { id } = room(world, 'hand', 'x');
    await applyLinks(world.deps(), csv({ key: 'A', external_id: 'hand', number: '' }));
    expect(await world.sql`SELECT destination_id::int AS id FROM slotsync.links`).toEqual([{ id }]);
  });

  it('links nothing when one line has a fault, and names each faulty line', async () => {
    const world = await campus({ A: 'Aula', B: 'Bio', C: 'Chem', D: 'Den' });
    await world.sync('rooms');
    await world.sql`INSERT INTO rooms VALUES ('E', 'Ed'), ('F', 'Far')`;
    const free = room(world, 'hand', 'Ed');
    const given = room(world, 'room_F', 'Far');
    const course = world.sandbox.addObject({ extId: 'c', typeId: 'course', fields: [] });
    const ours = world.sandbox.object('room_A');
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    const gone = world.sandbox.object('room_B');
    expect(
      await refused(
        world,
        csv(
          { key: 'E', number: free.id },
          { key: 'E', number: free.id },
          { key: '7', number: free.id },
          { key: 'E', number: 999_999, stream: 'room' },
          { key: 'D', number: 999_999 },
          { key: 'F', number: free.id },
          { key: 'C', number: course.id },
          { key: '', number: 1 },
          { key: 'x', number: '' },
          { key: 'A', number: '1.5' },
          { key: 'z', number: '1', class: 'mach' },
        ),
      ),
    ).toEqual([
      `line 3: rooms 'E' is in line 2 already`,
      expect.stringContaining(`line 4: there is no row '7' in rooms; a spreadsheet may have changed the key`),
      `line 5: there is no stream 'room'; did you mean rooms?`,
      'line 6: there is no object with the number 999999 at the service',
      `line 7: object ${free.id} is in line 2 already`,
      `line 8: the object with the number ${course.id} is of type course, and those of rooms are of type room`,
      'line 9: the key is empty: name the row that is to be linked',
      'line 10: number and external_id are empty: name the object',
      expect.stringMatching(/^line 11: POST \/v1\/objects\/find answered 400; the service failed each time/),
      `line 12: there is no class 'mach'; a line is linked whose class is match`,
    ]);
    expect(
      await refused(
        world,
        csv(
          { key: 'E', number: ours?.id ?? 0 },
          { key: 'F', number: gone?.id ?? 0 },
          { key: 'D', number: given.id },
          { key: 'C', number: free.id, external_id: 'other' },
        ),
      ),
    ).toEqual([
      `line 2: object ${ours?.id} ('room_A') is the object of the record rooms 'A'`,
      `line 3: object ${gone?.id} ('room_B') is the object of the record rooms 'B', whose row is gone; if its key has changed: slotsync rename`,
      `line 4: object ${given.id} ('room_F') is the object of the row rooms 'F', by its template or a link`,
      `line 5: the object with the number ${free.id} has the external id 'hand', not 'other'`,
    ]);
    const twice = csv({ key: 'E', number: free.id }, { key: 'F', number: '', external_id: 'hand' });
    expect(await refused(world, twice)).toEqual([`line 3: object ${free.id} is in line 2 already`]);
    expect(await refused(world, csv({ key: 'E', number: free.id }, { key: 'C', number: free.id }))).toEqual([
      `line 3: rooms 'C' has the object 'room_C' already`,
    ]);
  });

  it('makes a link again that was undone, even after a run has seen that', async () => {
    const world = await campus({ A: 'Room A' });
    const { id } = room(world, 'hand', 'Room A');
    const file = csv({ key: 'A', number: id });
    await applyLinks(world.deps(), file);
    await world.sync();
    await unlinkRecords(world.state.db, 'rooms', ['A']);
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ A: 'dead' });
    expect(await applyLinks(world.deps(), file)).toMatchObject({ linked: [{ key: 'A' }], already: 0 });
    expect((await world.sync()).run.status).toBe('succeeded');
    expect(await world.recordsOf('rooms')).toMatchObject({
      A: { status: 'synced', external_id: 'hand' },
    });
    expect(world.sandbox.objects()).toHaveLength(1);
    expect(await applyLinks(world.deps(), file)).toMatchObject({ linked: [], already: 1 });
  });

  it('assigns no external id when that is switched off, or when another object has the id', async () => {
    const world = await campus({ A: 'Aula', B: 'Bio' });
    const { id } = room(world, null, 'Aula');
    room(world, 'room_B', 'Bio');
    expect(await refused(world, csv({ key: 'B', number: id }))).toEqual([
      `line 2: object ${id} would get the external id 'room_B', which another object has`,
    ]);
    const off = await campus({ A: 'Aula' }, { streams: CONFIG.streams });
    const other = room(off, null, 'Aula');
    expect(await refused(off, csv({ key: 'A', number: other.id }))).toEqual([
      `line 2: object ${other.id} has no external id; give it one at the service, or set service.assignExternalIds`,
    ]);
  });

  it('does not move a link', async () => {
    const world = await campus({ A: 'Aula', B: 'Bio' });
    const [one, other] = [room(world, 'one', 'x'), room(world, 'other', 'y')];
    await applyLinks(world.deps(), csv({ key: 'A', number: one.id }));
    await expect(
      applyLinks(world.deps(), csv({ key: 'A', number: other.id }, { key: 'B', number: one.id })),
    ).rejects.toMatchObject({
      faults: [
        `line 2: rooms 'A' is linked to 'one' already; undo that link first: slotsync match --unlink`,
        `line 3: object ${one.id} ('one') is the object of the row rooms 'A', by its template or a link`,
      ],
    });
    expect(await links(world)).toHaveLength(1);
  });
});

describe('match by a field that the service derives', () => {
  it.each([
    [true, 1],
    [false, 0],
  ])('finds rows and objects if derived fields are asked for: %s', async (derivedFields, matches) => {
    const schema = {
      types: [{ extId: 'room' }, { extId: 'course' }],
      fields: [{ extId: 'room.name', derived: true }, { extId: 'course.name' }, { extId: 'course.room' }],
    };
    const world = await campus(
      { A: 'Aula' },
      { ...CONFIG, service: { derivedFields } },
      { sandbox: { schema } },
    );
    room(world, 'hand_7', 'Aula');
    expect((await find(world)).stream.counts.match).toBe(matches);
  });
});
