// Guarantee 8
// Readings of the mirror: keys of every type in the order of their bytes, values as the mapping gets them, and never a
// write.
import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { openReadOnlySessions } from '../../src/mirror/read-only-sessions.js';
import { createReader, describeExcess } from '../../src/mirror/role-rights.js';
import { codeOf } from '../../src/errors/errors.js';
import { readPlanMarks } from '../../src/state/records/read/plan-marks.js';
import type { Stream } from '../../src/streams/stream.js';
import { mergeReadings, type PlanEntry } from '../../src/sync/plan/merge-readings.js';
import { decodeColumn, unescapeColumn } from '../../src/connections/postgres-copy.js';
import type { Declaration } from '../support/campus.js';
import { startHop } from '../support/hop.js';
import { readRows } from '../support/read-rows.js';
import { isForMirrorAlone } from '../support/services.js';
import { until } from '../support/wait.js';
import { createSharedDatabase, type SharedDatabase } from '../support/world.js';

let database: SharedDatabase;
let sql: postgres.Sql;
let mirror: Mirror;
beforeAll(async () => {
  database = await createSharedDatabase();
  ({ sql } = database);
  mirror = createMirror({ url: database.url });
});
afterAll(async () => {
  await mirror.close();
  await database.drop();
});

function createMirrorAs(role: string): Mirror {
  const url = new URL(database.url);
  [url.username, url.password] = [role, 'pw'];
  return createMirror({ url: url.href });
}

/** Declares a stream with a new name, so that no test sees what another has remembered. */
function streamOf(declaration: Partial<Declaration> & Pick<Declaration, 'from' | 'key'>): Stream {
  const [column] = [declaration.key].flat();
  const name = `s${randomUUID().replaceAll('-', '')}`;
  const whole = { type: 'room', externalId: `x_{${column}}`, fields: {}, ...declaration };
  const [stream] = checkConfiguration({ streams: { [name]: whole } }).streams;
  if (!stream) throw new Error('no stream');
  return stream;
}

/** Returns the whole reading, decoded: `[key, hash]` in the order of the source. */
const readAll = (stream: Stream) => readAllOf(mirror, stream);

async function readAllOf(of: Mirror, stream: Stream): Promise<[key: string, hash: string][]> {
  const read: [string, string][] = [];
  for await (const lines of of.readHashes(stream)) {
    for (const line of lines) {
      const [key = '', hash = ''] = line.split('\t');
      read.push([decodeColumn(unescapeColumn(key)), hash]);
    }
  }
  return read;
}

async function planAll(stream: Stream): Promise<PlanEntry[]> {
  const differences: PlanEntry[] = [];
  const add = async (entry: PlanEntry) => void differences.push(entry);
  await mergeReadings(mirror.readHashes(stream), readPlanMarks(database.state, stream.name), add);
  return differences;
}

/** Expects both readings to have every key once, with the same hash. */
async function expectKeys(stream: Stream, keys: readonly string[]): Promise<void> {
  const read = await readAll(stream);
  expect(read.map(([key]) => key).toSorted()).toEqual([...keys].toSorted());
  const rows = await readRows(
    mirror,
    stream,
    read.map(([key]) => key),
  );
  expect(new Map([...rows].map(([key, { hash }]) => [key, hash]))).toEqual(new Map(read));
  expect(await planAll(stream)).toEqual(read.map(([key]) => ({ operation: 'create', key })));
}

const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));

describe('the keys of a source', () => {
  it('come in the order of their bytes, in any script', async () => {
    const keys =
      'a,B,ab,a b,Å,ä,é,e\u0301,ß,Ω,ж,教室,廊,غرفة,חדר,🏫,\u{10FFFF},\uFFFD,ｚ,0,10,9,-,~, ,'.split(',');
    await sql`CREATE TABLE scripts (code text COLLATE "und-x-icu" PRIMARY KEY)`;
    await sql`INSERT INTO scripts SELECT unnest(${keys}::text[])`;
    const read = await readAll(streamOf({ from: 'scripts', key: 'code' }));
    expect(read.map(([key]) => key)).toEqual(keys.toSorted(byBytes));
    await expectKeys(streamOf({ from: 'scripts', key: 'code' }), keys);
  });

  it('keep the characters that COPY escapes and arrays quote', async () => {
    const keys = '\\N \\ \\\\ a\tb a\nb a\r \b\f\v | " \' { } a,b NULL null \u0001 "\\ {} $1 %s \\.'.split(
      ' ',
    );
    await sql`CREATE TABLE escapes (code text PRIMARY KEY)`;
    await sql`INSERT INTO escapes SELECT unnest(${keys}::text[])`;
    await expectKeys(streamOf({ from: 'escapes', key: 'code' }), keys);
  });

  it.each([
    ['integer', ['-5', '0', '7', '10', '2147483647']],
    ['bigint', ['-9223372036854775808', '9007199254740993', '9223372036854775807']],
    ['numeric', ['0.10', '10', '12345678901234567890.5']],
    ['numeric(6,2)', ['0.10', '1.00']],
    ['uuid', ['00000000-0000-4000-8000-00000000000a', 'ffffffff-ffff-4fff-bfff-ffffffffffff']],
    ['varchar(20)', ['Å1', ' padded ']],
    ['char(6)', ['ABC123', 'AB']],
    ['"char"', ['a', 'Z']],
    ['bit(4)', ['0101', '1111']],
    ['date', ['2026-03-29', '0099-01-01']],
    ['timestamp', ['2026-03-29 02:30:00', '2026-03-29 02:30:00.123456']],
    ['timestamptz', ['2026-03-29 01:30:00.000001+00']],
    ['boolean', ['false', 'true']],
    ['inet', ['10.0.0.1', '10.0.0.0/8']],
  ])('may have the type %s', async (type, keys) => {
    const table = `typed_${randomUUID().slice(0, 8)}`;
    await sql.unsafe(`CREATE TABLE ${table} (code ${type} PRIMARY KEY, name text)`);
    await sql.unsafe(`INSERT INTO ${table} SELECT k::${type}, 'x' FROM unnest($1::text[]) AS k`, [keys]);
    await expectKeys(streamOf({ from: table, key: 'code' }), keys);
  });

  it('may have an enum and a domain of another schema as types', async () => {
    await sql`CREATE SCHEMA own`;
    await sql`CREATE TYPE own."Kind of room" AS ENUM ('lab', 'Big hall')`;
    await sql`CREATE DOMAIN own.code AS text CHECK (value <> '')`;
    await sql`CREATE TABLE own.kinds (kind own."Kind of room", code own.code, PRIMARY KEY (kind, code))`;
    await sql`INSERT INTO own.kinds VALUES ('lab', 'a'), ('Big hall', 'a')`;
    await expectKeys(streamOf({ from: 'own.kinds', key: ['kind', 'code'] }), ['lab|a', 'Big hall|a']);
  });

  it('may be composite, whatever characters their parts hold', async () => {
    await sql`CREATE TABLE parts (a text, b text, c integer, PRIMARY KEY (a, b, c))`;
    const stream = streamOf({ from: 'parts', key: ['a', 'b', 'c'] });
    const part = fc.array(fc.constantFrom('|', '\\', 'a', 'é', ' ', '\t', "'"), { maxLength: 4 });
    const text = part.map((chars) => chars.join(''));
    const rows = fc.uniqueArray(fc.tuple(text, text, fc.integer({ min: -9, max: 9 })), {
      selector: ([a, b, c]) => JSON.stringify([a, b, c]),
      minLength: 1,
      maxLength: 20,
    });
    await fc.assert(
      fc.asyncProperty(rows, async (parts) => {
        await sql`TRUNCATE parts`;
        await sql`INSERT INTO parts ${sql(parts.map(([a, b, c]) => ({ a, b, c })))}`;
        const read = await readAll(stream);
        const keys = read.map(([key]) => key);
        expect(new Set(keys).size).toBe(parts.length);
        expect(keys).toEqual(keys.toSorted(byBytes));
        const found = await readRows(mirror, stream, keys);
        expect(keys.map((key) => found.get(key)?.hash)).toEqual(read.map(([, hash]) => hash));
        const values = [...found.values()].map(({ row }) => [row['a'], row['b'], row['c']]);
        expect(values.map(String).toSorted()).toEqual(parts.map(String).toSorted());
      }),
      { numRuns: 25 },
    );
  });

  it('come from tables and columns in mixed case, with dots, quotes and spaces', async () => {
    await sql`CREATE SCHEMA "Campus"`;
    await sql`CREATE TABLE "Campus"."My ""Rooms"" v.2" ("Room Code" text PRIMARY KEY, "naMe" text)`;
    await sql`INSERT INTO "Campus"."My ""Rooms"" v.2" VALUES ('A', 'Aula')`;
    const stream = streamOf({ from: 'Campus."My ""Rooms"" v.2"', key: 'Room Code' });
    await expectKeys(stream, ['A']);
    const rows = await readRows(mirror, stream, ['A']);
    expect(rows.get('A')?.row).toEqual({ 'Room Code': 'A', naMe: 'Aula' });
  });

  it('make the stream fail if they repeat or are null, and are named', async () => {
    await sql`CREATE TABLE repeated (code text, part text)`;
    await sql`INSERT INTO repeated VALUES ('A', '1'), ('A', '2'), ('B', '1'), ('C', '1'), ('C', '2'), (NULL, '1')`;
    await expect(planAll(streamOf({ from: 'repeated', key: 'code' }))).rejects.toMatchObject({
      code: 'key_not_unique',
      disposition: 'dead',
      message: expect.stringMatching(/2 rows repeat.*'A', 'C'/),
    });
    await expect(planAll(streamOf({ from: 'repeated', key: ['code', 'part'] }))).rejects.toMatchObject({
      code: 'key_null',
      disposition: 'dead',
      message: expect.stringContaining('1 row'),
    });
  });

  it('are not null with the text \\N', async () => {
    const source = { query: String.raw`SELECT '\N'::text AS code` };
    expect(await planAll(streamOf({ from: source, key: 'code' }))).toEqual([
      { operation: 'create', key: String.raw`\N` },
    ]);
  });
});

describe('the rows of a source', () => {
  it('arrive as the mapping expects: dates and big numbers as text, nulls, arrays and booleans', async () => {
    await sql`
      CREATE TABLE many AS SELECT 1 AS id, '2026-03-29'::date AS day, '2026-03-29 02:30:00.123456'::timestamp AS moment,
        '2026-03-29 02:30:00.123456+02'::timestamptz AS instant, '08:15'::time AS clock, '1 day 2 hours'::interval AS span,
        9007199254740993::bigint AS big, 1.10::numeric(10,2) AS price, 0.1::float8 AS share, 7::smallint AS small,
        true AS yes, NULL::text AS nothing, ARRAY['a', 'NULL', 'b,c', ''] AS list, ARRAY[]::text[] AS empty,
        ARRAY['2026-03-29'::date] AS days, ARRAY[true, false] AS flags, '{"a": [1]}'::jsonb AS doc`;
    const stream = streamOf({ from: 'many', key: 'id' });
    const rows = await readRows(mirror, stream, ['1']);
    expect(rows.get('1')?.row).toEqual({
      id: 1,
      day: '2026-03-29',
      moment: '2026-03-29 02:30:00.123456',
      instant: '2026-03-29 00:30:00.123456+00',
      clock: '08:15:00',
      span: 'P1DT2H',
      big: '9007199254740993',
      price: '1.10',
      share: 0.1,
      small: 7,
      yes: true,
      nothing: null,
      list: ['a', 'NULL', 'b,c', ''],
      empty: [],
      days: ['2026-03-29'],
      flags: [true, false],
      doc: { a: [1] },
    });
    const [[, hash] = []] = await readAll(stream);
    expect(rows.get('1')?.hash).toBe(hash);
  });

  it('keep a null inside an array apart from the text NULL', async () => {
    const query = "SELECT 1 AS id, ARRAY['a', NULL, 'NULL'] AS list, ARRAY[1, NULL] AS numbers";
    const rows = await readRows(mirror, streamOf({ from: { query }, key: 'id' }), ['1']);
    expect(rows.get('1')?.row).toEqual({ id: 1, list: ['a', null, 'NULL'], numbers: [1, null] });
  });

  it('have the same hash under all settings of the database for dates and numbers', async () => {
    await sql`CREATE TABLE settings AS SELECT 1 AS id, now() AS at, 0.1::float8 + 0.2 AS share, '1 day'::interval AS span`;
    const stream = streamOf({ from: 'settings', key: 'id' });
    const before = await readAll(stream);
    const name = new URL(database.url).pathname.slice(1);
    for (const setting of ["TimeZone = 'Asia/Tokyo'", "DateStyle = 'SQL, DMY'", 'extra_float_digits = -5'])
      await sql.unsafe(`ALTER DATABASE ${name} SET ${setting}`);
    const other = createMirror({ url: database.url });
    expect(await readAll(stream)).toEqual(before);
    expect((await readRows(other, stream, ['1'])).get('1')?.hash).toBe(before[0]?.[1]);
    await other.close();
    await sql.unsafe(`ALTER DATABASE ${name} RESET ALL`);
  });

  it('have another hash when any column or the declaration changes', async () => {
    await sql`CREATE TABLE changing (id integer PRIMARY KEY, name text, note text)`;
    await sql`INSERT INTO changing VALUES (1, 'a', NULL)`;
    const hashOf = async (fields: Declaration['fields']) =>
      (await readAll(streamOf({ from: 'changing', key: 'id', fields })))[0]?.[1];
    const first = await hashOf({ f: 'name' });
    expect(await hashOf({ f: 'name' })).toBe(first);
    expect(await hashOf({ f: (row) => row.name })).not.toBe(first);
    await sql`UPDATE changing SET note = ''`;
    expect(await hashOf({ f: 'name' })).not.toBe(first);
  });

  it('are found by the index of the key’s own type', async () => {
    await sql`CREATE TABLE indexed AS SELECT i AS id, md5(i::text)::uuid AS code FROM generate_series(1, 20000) i`;
    await sql`ALTER TABLE indexed ADD PRIMARY KEY (id)`;
    await sql`CREATE UNIQUE INDEX ON indexed (code)`;
    await sql`ANALYZE indexed`;
    for (const key of ['id', 'code']) {
      const stream = streamOf({ from: 'indexed', key });
      const scansAtFirst = await rowsScanned('indexed');
      const keys = (await readAll(stream)).slice(0, 5).map(([found]) => found);
      // Statistics are kept per transaction and reported when a session is idle: read them until they are there.
      const scansBefore = await until(
        async () => {
          const scans = await rowsScanned('indexed');
          return scans > scansAtFirst && scans;
        },
        { describe: 'the scan of the whole table to be reported' },
      );
      const other = createMirror({ url: database.url });
      expect((await readRows(other, stream, keys)).size).toBe(5);
      await other.close();
      expect((await rowsScanned('indexed')) - scansBefore).toBe(0);
    }
  });

  async function rowsScanned(table: string): Promise<number> {
    const [{ isNew } = { isNew: true }] = await sql<{ isNew: boolean }[]>`
      SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL AS "isNew"`;
    // Before release 15 a collector gets them, at most half a second later.
    await (isNew ? sql`SELECT pg_stat_force_next_flush()` : sql`SELECT pg_sleep(1.5)`);
    await sql`SELECT pg_stat_clear_snapshot()`;
    const [row] = await sql<{ scans: number }[]>`
      SELECT seq_scan::int AS scans FROM pg_stat_user_tables WHERE relname = ${table}`;
    return row?.scans ?? 0;
  }

  it('are found beside keys that are missing or do not fit the type of the key', async () => {
    await sql`CREATE TABLE numbered (id integer PRIMARY KEY, copy integer GENERATED ALWAYS AS (id) STORED)`;
    await sql`INSERT INTO numbered VALUES (1), (2)`;
    const stream = streamOf({ from: 'numbered', key: 'id' });
    const strange = ['1', 'room', '', '99999999999999', '3', '2'];
    expect([...(await readRows(mirror, stream, strange)).keys()].toSorted()).toEqual(['1', '2']);
    expect((await readRows(mirror, stream, [])).size).toBe(0);
    const composite = streamOf({ from: 'numbered', key: ['id', 'copy'] });
    expect([...(await readRows(mirror, composite, ['1|1', '2', 'a|b', '2|2'])).keys()].toSorted()).toEqual([
      '1|1',
      '2|2',
    ]);
  });
});

describe('rows that cannot be read', () => {
  const ids = Array.from({ length: 100 }, (_, at) => String(at + 1));
  const raising = `CREATE FUNCTION check_row(id integer) RETURNS integer LANGUAGE plpgsql AS $$
    BEGIN
      IF id = 17 THEN RAISE EXCEPTION 'row of Ada Lovelace'; END IF;
      IF id = 60 THEN PERFORM 1 / 0; END IF;
      RETURN id;
    END $$`;

  it('are reported alone with their reason, and all other rows are read', async () => {
    await sql.unsafe(raising);
    await sql`CREATE TABLE checked AS SELECT i AS id FROM generate_series(1, 100) AS i`;
    const stream = streamOf({
      from: { query: 'SELECT id, check_row(id) AS x FROM checked' },
      key: 'id',
    });
    const { rows, unreadable } = await mirror.readRows(stream, [...ids, '200', 'none']);
    expect([...rows.keys()].toSorted()).toEqual(ids.filter((id) => !['17', '60'].includes(id)).toSorted());
    expect(rows.get('18')?.row).toEqual({ id: 18, x: 18 });
    expect([...unreadable].map(([key, { code, message }]) => [key, code, message])).toEqual([
      ['17', 'mirror_raised', 'the source raised an error (P0001)'],
      ['60', 'mirror_source', 'the source contains a value that cannot be converted: division by zero'],
    ]);
  });

  it('include rows whose statement exceeds the timeout of the role', async () => {
    const slow =
      'SELECT i AS id, CASE WHEN i = 3 THEN pg_sleep(5)::text END AS x FROM generate_series(1, 4) AS i';
    const name = new URL(database.url).pathname.slice(1);
    await sql.unsafe(`ALTER DATABASE ${name} SET statement_timeout = 150`);
    const impatient = createMirror({ url: database.url });
    const stream = streamOf({ from: { query: slow }, key: 'id' });
    const { rows, unreadable } = await impatient.readRows(stream, ['1', '2', '3', '4']);
    expect([[...rows.keys()], [...unreadable.keys()]]).toEqual([['1', '2', '4'], ['3']]);
    await impatient.close();
    await sql.unsafe(`ALTER DATABASE ${name} RESET ALL`);
  });

  it('fail the source if no row can be read', async () => {
    const stream = streamOf({ from: { query: 'SELECT id, id / 0 AS x FROM numbered_twenty' }, key: 'id' });
    await sql`CREATE TABLE numbered_twenty AS SELECT i AS id FROM generate_series(1, 100) AS i`;
    await expect(mirror.readRows(stream, ids)).rejects.toMatchObject({ code: 'mirror_source' });
    const alone = await mirror.readRows(stream, ['1']);
    expect([...alone.unreadable.keys()]).toEqual(['1']);
  });

  it('are not searched one by one when the mirror cannot be reached', async () => {
    const away = createMirror({ url: database.url.replace(/\/[^/]*$/, '/no_such_database') });
    await expect(away.readRows(streamOf({ from: 'checked', key: 'id' }), ids)).rejects.toMatchObject({
      code: 'mirror_refused',
    });
    await away.close();
  });
});

describe('a source', () => {
  it('may be a query, with a comment and a semicolon at its end', async () => {
    await sql`CREATE TABLE base (id integer PRIMARY KEY, gone boolean)`;
    await sql`INSERT INTO base VALUES (1, false), (2, true)`;
    const query = 'SELECT id, upper(\'a\') AS "Name" FROM base WHERE NOT gone; ';
    const stream = streamOf({ from: { query }, key: 'id' });
    await expectKeys(stream, ['1']);
    expect((await readRows(mirror, stream, ['1', '2'])).get('1')?.row).toEqual({ id: 1, Name: 'A' });
    await expectKeys(streamOf({ from: { query: 'SELECT id FROM base -- all of them' }, key: 'id' }), [
      '1',
      '2',
    ]);
  });

  it('is planned for a full scan when it is read whole, and for its index when read by key', async () => {
    const stream = streamOf({
      from: { query: "SELECT current_setting('random_page_cost') AS cost" },
      key: 'cost',
    });
    const [[ofTheServer] = []] = await readAll(stream);
    expect(ofTheServer).toBe('4');
    expect([...(await readRows(mirror, stream, ['1.1'])).keys()]).toEqual(['1.1']);
  });

  it('is reported with the nearest name if it is missing or lacks a column', async () => {
    await sql`CREATE SCHEMA campus`;
    await sql`CREATE TABLE campus.rooms (room_code text PRIMARY KEY, name text)`;
    const check = (declaration: Partial<Declaration>) =>
      mirror.checkStream(streamOf({ from: 'campus.rooms', key: 'room_code', ...declaration }));
    expect(await check({})).toEqual([]);
    expect(await check({ from: 'campus.room' })).toEqual([
      expect.stringMatching(/^from: .*did you mean campus\.rooms\?$/),
    ]);
    expect(
      await check({ key: 'roomcode', fields: { f: 'nam', g: (row) => row.x }, cursor: 'updated' }),
    ).toEqual([
      expect.stringMatching(/^key: .*roomcode; did you mean room_code\?/),
      expect.stringMatching(/^externalId: .*roomcode/),
      expect.stringMatching(/^fields\['f'\]: .*nam; did you mean name\?/),
      expect.stringMatching(/^cursor: /),
    ]);
    expect(await check({ from: { query: 'SELECT FROM WHERE' } })).toHaveLength(1);

    const times = {
      begin: 'nme',
      end: 'name',
      cancelled: 'name',
      objects: [{ stream: 'rooms', key: 'rom' }],
    };
    const checkBookings = (from: string, changes = {}) => {
      const reservations = { from, key: 'room_code', externalId: 'res_{room_code}', ...times, ...changes };
      const rooms = { from, key: 'room_code', type: 'room', externalId: 'r_{room_code}', fields: {} };
      const { bookings } = checkConfiguration({ streams: { rooms }, reservations }).reservations ?? {};
      return bookings && mirror.bookings.check(bookings);
    };
    expect(await checkBookings('campus.room')).toEqual([
      expect.stringMatching(/^from: .*did you mean campus\.rooms\?$/),
    ]);
    expect(await checkBookings('campus.rooms')).toEqual([
      expect.stringMatching(/^begin: .*nme; did you mean name\?/),
      expect.stringMatching(/^objects\.0\.key: .*rom; /),
    ]);
    expect(await checkBookings('campus.rooms', { begin: 'room_code', objects: [] })).toEqual([
      expect.stringMatching(/^begin: column room_code is text; a timestamp is needed/),
      expect.stringMatching(/^end: column name is text; a timestamp is needed/),
      expect.stringMatching(/^cancelled: column name is text; a boolean, an integer or a time is needed/),
    ]);
  });

  it('is refused with two columns of one name, for the key and for a mapped column', async () => {
    await sql`CREATE TABLE halls (id int PRIMARY KEY, name text)`;
    await sql`INSERT INTO halls VALUES (1, 'Aula')`;
    for (const [query, repeated] of [
      ["SELECT id, name, 'other' AS name FROM halls", 'column name'],
      ['SELECT id, id, name FROM halls', 'column id'],
      ['SELECT * FROM halls AS a JOIN halls AS b ON a.id = b.id', 'column id and column name'],
    ] as const) {
      const stream = streamOf({ from: { query }, key: 'id', fields: { f: 'name' } });
      const fault = `the query has ${repeated} more than once; remove one, or rename it with AS`;
      expect(await mirror.checkStream(stream)).toEqual([`from: ${fault}`]);
      await expect(readRows(mirror, stream, ['1'])).rejects.toThrow(fault);
      await expect(readAll(stream)).rejects.toThrow(fault);
    }
  });

  it.each([
    ['is a materialized view without data', 'unfilled', 'mirror_failed'],
    ['takes locks', { query: 'SELECT code FROM filled FOR SHARE' }, 'mirror_read_only'],
  ])('has its columns, and fails only when it is read, if it %s', async (_, from, code) => {
    await sql`CREATE TABLE IF NOT EXISTS filled (code text PRIMARY KEY)`;
    await sql`CREATE MATERIALIZED VIEW IF NOT EXISTS unfilled AS SELECT code FROM filled WITH NO DATA`;
    const stream = streamOf({ from, key: 'code' });
    expect(await mirror.checkStream(stream)).toEqual([]);
    await expect(readAll(stream)).rejects.toMatchObject({ code });
  });

  it('fails as a whole when it fails in its middle', async () => {
    const query = 'SELECT i AS id, 1 / (200000 - i) AS x FROM generate_series(1, 200000) AS i';
    await expect(planAll(streamOf({ from: { query }, key: 'id' }))).rejects.toMatchObject({
      code: 'mirror_source',
      message: 'the source contains a value that cannot be converted: division by zero',
      disposition: 'dead',
    });
  });

  it('is not taken for complete when its connection breaks off', async () => {
    const query = "SELECT i AS id, repeat('x', 200) AS x FROM generate_series(1, 300000) AS i";
    const stream = streamOf({ from: { query }, key: 'id' });
    const reading = mirror.readHashes(stream);
    expect((await reading.next()).done).toBe(false);
    const [cut] = await sql<{ count: number }[]>`
      SELECT count(pg_terminate_backend(pid))::int AS count FROM pg_stat_activity
      WHERE application_name = 'slotsync mirror' AND datname = current_database() AND query LIKE 'COPY%' AND state = 'active'`;
    expect(cut?.count).toBe(1);
    const drain = async () => {
      while (!(await reading.next()).done);
    };
    // The server's last words, or only the end of the connection: whichever came through.
    await expect(drain()).rejects.toMatchObject({
      code: expect.stringMatching(/^mirror_(unreachable|failed)$/),
      disposition: 'retry',
    });
  });

  it('leaves no connection behind when its reading is abandoned', async () => {
    const query = 'SELECT i AS id FROM generate_series(1, 300000) AS i';
    for await (const lines of mirror.readHashes(streamOf({ from: { query }, key: 'id' }))) {
      expect(lines.length).toBeGreaterThan(0);
      break;
    }
    const open = () => sql`
      SELECT 1 FROM pg_stat_activity WHERE application_name = 'slotsync mirror'
        AND datname = current_database() AND query LIKE 'COPY%' AND state = 'active'`;
    await expect.poll(async () => (await open()).length).toBe(0);
  });

  it('takes the memory of only a few blocks while it is read', async () => {
    const query = "SELECT rpad(i::text, 300, 'x') AS code FROM generate_series(1, 200000) AS i";
    const before = process.memoryUsage();
    let most = 0;
    let rows = 0;
    for await (const lines of mirror.readHashes(streamOf({ from: { query }, key: 'code' }))) {
      rows += lines.length;
      // A reader that is slower than the server: what is not asked for must not pile up here.
      await new Promise((resolve) => setImmediate(resolve));
      const now = process.memoryUsage();
      most = Math.max(most, now.external + now.heapUsed - before.external - before.heapUsed);
    }
    expect(rows).toBe(200_000);
    expect(most / 1024 / 1024).toBeLessThan(60);
  });
});

describe('the read-only session of a mirror', () => {
  beforeAll(async () => {
    await sql`CREATE TABLE touched (at timestamptz)`;
    await sql`CREATE SEQUENCE counted`;
    await sql`
      CREATE FUNCTION touch() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN INSERT INTO touched VALUES (now()); RETURN 1; END $$`;
    await sql`
      CREATE FUNCTION run(statement text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; RETURN 1; END $$`;
  });

  const sources = [
    ['in a function', 'mirror_read_only', 'SELECT touch() AS id'],
    ['by counting', 'mirror_read_only', "SELECT nextval('counted') AS id"],
    ['in its midst', 'mirror_source', 'WITH t AS (DELETE FROM touched RETURNING 1 AS id) SELECT id FROM t'],
  ];

  it('discards the answer of a statement whose BEGIN the server ended early', async () => {
    const hop = await startHop(database.url);
    const sessions = openReadOnlySessions(hop.through(database.url));
    const statement = "SELECT current_setting('transaction_read_only') AS it";
    try {
      expect(await sessions.query(statement)).toEqual([{ it: 'on' }]);
      // As after pg_cancel_backend in that moment: an error, and the statement behind it runs.
      hop.replaceOnce('BEGIN READ ONLY', 'FAILS READ ONLY');
      await expect(sessions.query(statement)).rejects.toMatchObject({ code: '42601' });
      expect(await sessions.query(statement)).toEqual([{ it: 'on' }]);
    } finally {
      await sessions.close();
      await hop.close();
    }
  });

  it('closes amid a statement while the server takes no connection to cancel it', async () => {
    const hop = await startHop(database.url);
    const sessions = openReadOnlySessions(hop.through(database.url));
    const failures: unknown[] = [];
    const note = (error: unknown) => void failures.push(error);
    process.on('unhandledRejection', note);
    try {
      await sessions.query('SELECT 1');
      const slow = sessions.query('SELECT pg_sleep(60)').catch((error: unknown) => codeOf(error));
      await until(
        async () => (await sql`SELECT FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'`).length > 0,
        { describe: 'the statement' },
      );
      hop.refuse();
      await sessions.close();
      expect(await slow).toMatch(/^CONNECTION_/);
      await new Promise((resolve) => setImmediate(resolve));
      expect(failures).toEqual([]);
    } finally {
      process.off('unhandledRejection', note);
      await hop.close();
    }
  });

  // The first row fails already, while the reading is being handed over: nothing may escape as an uncaught error.
  it.each(sources)(
    'refuses the rows of a query that writes %s, and its hashes',
    async (_, code, query = '') => {
      const stream = streamOf({ from: { query }, key: 'id' });
      await expect(readRows(mirror, stream, ['1'])).rejects.toMatchObject({ code, disposition: 'dead' });
      await expect(planAll(stream)).rejects.toMatchObject({ code, disposition: 'dead' });
      await expectUntouched();
    },
  );

  async function expectUntouched(): Promise<void> {
    expect(await sql`SELECT * FROM touched`).toHaveLength(0);
    expect(await sql`SELECT is_called FROM counted`).toEqual([{ is_called: false }]);
  }

  it.each([
    'SET transaction_read_only = off',
    'SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE',
    'SET default_transaction_read_only = off',
  ])('stays read-only after a function has run %s', async (statement) => {
    const other = createMirror({ url: database.url });
    const keys = ['1'];
    const switching = streamOf({ from: { query: execute(statement) }, key: 'id' });
    await Promise.allSettled([readRows(other, switching, keys), planAll(switching)]);
    const writing = streamOf({ from: { query: 'SELECT touch() AS id' }, key: 'id' });
    await expect(readRows(other, writing, keys)).rejects.toMatchObject({ code: 'mirror_read_only' });
    await expect(planAll(writing)).rejects.toMatchObject({ code: 'mirror_read_only' });
    await expectUntouched();
    await other.close();
  });

  // Actions that PostgreSQL permits in a transaction that is read-only; large objects before version 16.
  it.each([
    ['a large object', 'SELECT lo_create(0)'],
    ['a setting of the session', "SELECT set_config('slotsync.left', 'yes', false)"],
    ['a notification', "SELECT pg_notify('left', '')"],
    ['an advisory lock', 'SELECT pg_advisory_lock(4711)'],
    ['a lock of a table', 'LOCK TABLE touched IN ACCESS EXCLUSIVE MODE'],
    ['a cursor', 'DECLARE left_open CURSOR WITH HOLD FOR SELECT 1'],
    ['another role', 'SET ROLE pg_monitor'],
  ])('leaves nothing behind: %s', async (_, statement) => {
    const heard: string[] = [];
    const listening = postgres(database.url, { max: 1 });
    await listening.listen('left', (payload) => void heard.push(payload));
    const leaving = streamOf({ from: { query: execute(statement) }, key: 'id' });
    await readRows(mirror, leaving, ['1']).catch((error: unknown) => {
      expect(error).toMatchObject({ code: 'mirror_read_only' });
    });
    await planAll(leaving).catch(() => undefined);
    const query = `SELECT coalesce(current_setting('slotsync.left', true), '') || (SELECT count(*) FROM pg_cursors WHERE name = 'left_open') ||
      (SELECT count(*) FROM pg_largeobject_metadata) || (current_user = session_user)
      || (SELECT count(*) FROM pg_locks WHERE relation = 'touched'::regclass OR locktype = 'advisory' AND objid = 4711) AS left`;
    expect((await readAll(streamOf({ from: { query }, key: 'left' })))[0]?.[0]).toBe('00true0');
    await sql`SELECT pg_notify('left', 'end')`;
    await expect.poll(() => heard).toEqual(['end']);
    await listening.end();
  });

  it('refuses a second statement behind a query or a condition', async () => {
    const query = 'SELECT 1 AS id) AS x; COMMIT; DELETE FROM kept; SELECT 1 FROM (SELECT 1 AS id';
    const stream = streamOf({ from: { query }, key: 'id' });
    await sql`CREATE TABLE kept AS SELECT 1 AS id`;
    await expect(readRows(mirror, stream, ['1'])).rejects.toMatchObject({ code: 'mirror_source' });
    await expect(planAll(stream)).rejects.toMatchObject({ code: 'mirror_source' });
    const where = 'true) TO STDOUT; COMMIT; DELETE FROM kept; COPY (SELECT 1 WHERE (true';
    const kept = streamOf({ from: 'kept', key: 'id' });
    await expect(mirror.readHashes(kept, { where }).next()).rejects.toMatchObject({ code: 'mirror_source' });
    expect(await mirror.checkCondition(kept, { where })).toBeDefined();
    expect(await sql`SELECT id FROM kept`).toEqual([{ id: 1 }]);
  });

  const execute = (statement: string) => `SELECT run('${statement.replaceAll("'", "''")}') AS id`;

  it('is read-only for every question to the mirror', async () => {
    const query =
      "SELECT current_setting('transaction_read_only') AS mode, current_setting('application_name') AS who";
    const stream = streamOf({ from: { query }, key: 'mode' });
    expect(await planAll(stream)).toEqual([{ operation: 'create', key: 'on' }]);
    expect((await readRows(mirror, stream, ['on'])).get('on')?.row).toEqual({
      mode: 'on',
      who: 'slotsync mirror',
    });
    expect(
      await mirror.findSharedExternalIds(streamOf({ from: 'touched', key: 'at', externalId: 'x{at}y{at}' })),
    ).toEqual([]);
  });
});

// Guarantee 6
describe('a load that is under way', () => {
  it.each([
    ['truncates the table', 'TRUNCATE loaded; INSERT INTO loaded SELECT generate_series(1, 3)'],
    [
      'renames a new table into place',
      `CREATE TABLE new_loaded AS SELECT generate_series(1, 3) AS id; DROP TABLE loaded;
       ALTER TABLE new_loaded RENAME TO loaded`,
    ],
  ])('makes a reading wait, which then finds the new rows, when it %s', async (_, load) => {
    await sql.unsafe('DROP TABLE IF EXISTS loaded; CREATE TABLE loaded AS SELECT 1 AS id');
    const stream = streamOf({ from: 'loaded', key: 'id' });
    expect(await readAll(stream)).toHaveLength(1);
    let reading: ReturnType<typeof readAll> | undefined;
    await sql.begin(async (transaction) => {
      await transaction.unsafe(load);
      reading = readAll(stream);
      await until(
        async () => {
          const waiting = await transaction`
            SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE NOT granted AND datname = current_database() AND application_name = 'slotsync mirror'`;
          return waiting.length > 0;
        },
        { describe: 'the reading to wait' },
      );
    });
    expect(await reading).toHaveLength(3);
  });
});

describe('the connections of a mirror', () => {
  const connectionsOfMirrors = () => sql<{ pid: number }[]>`
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'slotsync mirror'`;

  it('are at most two, of which a reading of a whole source holds one until its end', async () => {
    const query = 'SELECT i AS id FROM generate_series(1, 300000) AS i';
    const stream = streamOf({ from: { query }, key: 'id' });
    const known = (await connectionsOfMirrors()).map(({ pid }) => pid);
    const other = createMirror({ url: database.url });
    const opened = async () => (await connectionsOfMirrors()).filter(({ pid }) => !known.includes(pid));
    const readings = [other.readHashes(stream), other.readHashes(stream, { keys: ['7'] })] as const;
    await readings[0].next();
    expect(await opened()).toHaveLength(1);
    const rows = await Promise.all(
      Array.from({ length: 20 }, (_, at) => readRows(other, stream, [`${at + 1}`])),
    );
    expect(rows.map((found) => found.size)).toEqual(rows.map(() => 1));
    expect((await readings[1].next()).value).toHaveLength(1);
    expect(await opened()).toHaveLength(2);
    await readings[0].return(undefined);
    await other.close();
  });

  it.skipIf(isForMirrorAlone())('are opened again when they were closed while they were idle', async () => {
    const stream = streamOf({ from: { query: 'SELECT pg_backend_pid() AS id' }, key: 'id' });
    const other = createMirror({ url: database.url });
    const pids = new Set<string>();
    for (let round = 0; round < 3; round++) {
      const [[pid] = ['']] = await until(() => readAllOf(other, stream), { describe: 'an answer' });
      pids.add(pid);
      await sql`SELECT pg_terminate_backend(${pid}::int, 5000)`;
    }
    expect(pids.size).toBe(3);
    await other.close();
    await expect(other.ping()).rejects.toMatchObject({ code: 'mirror_unreachable' });
  });
});

describe('the role of a mirror', () => {
  it('reads a source with a right to its columns only, by the statement that check proposes', async () => {
    const role = `slotsync_test_${randomUUID().slice(0, 8)}`;
    await sql.unsafe(`
      CREATE TABLE persons (id integer PRIMARY KEY, name text, ssn text, seen_at timestamptz DEFAULT now());
      INSERT INTO persons VALUES (1, 'Anna', 'secret'), (2, 'Bo', 'secret')`);
    const some = streamOf({ from: { table: 'public.persons', columns: ['id', 'name'] }, key: 'id' });
    const proposed = createReader([some]).replaceAll('slotsync_mirror', role);
    expect(proposed).toContain(`GRANT SELECT ("id", "name") ON "public"."persons" TO ${role}`);
    await sql.unsafe(proposed.replace("'…'", "'pw'"));
    const as = createMirrorAs(role);
    const hashes = async () => {
      const lines: string[] = [];
      for await (const block of as.readHashes(some)) lines.push(...block);
      return lines;
    };
    try {
      expect(await as.checkStream(some)).toEqual([]);
      const before = await hashes();
      await sql`UPDATE persons SET seen_at = 'epoch'`;
      expect(await hashes()).toEqual(before);
      expect([...(await as.readRows(some, ['1'])).rows.values()]).toMatchObject([
        { row: { id: 1, name: 'Anna' } },
      ]);
      expect(await as.checkStream(streamOf({ from: 'public.persons', key: 'id' }))).toEqual([
        expect.stringContaining('permission denied'),
      ]);
    } finally {
      await as.close();
      await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}; DROP TABLE persons`);
    }
  });

  it('is reported to read only, or with what else it may do', async () => {
    const role = `slotsync_test_${randomUUID().slice(0, 8)}`;
    await sql.unsafe(`
      REVOKE CREATE ON SCHEMA public FROM PUBLIC;
      CREATE TABLE owned (id integer, name text);
      CREATE SEQUENCE numbers;
      CREATE ROLE ${role} LOGIN PASSWORD 'pw';
      GRANT SELECT ON owned TO ${role}`);
    const as = createMirrorAs(role);
    const excess = async () => describeExcess(await as.roleRights());
    try {
      expect(await excess()).toBeUndefined();
      await sql.unsafe(`GRANT UPDATE (name) ON owned TO ${role}; GRANT USAGE ON SEQUENCE numbers TO ${role}`);
      await sql.unsafe(
        `GRANT CREATE ON SCHEMA public TO ${role}; GRANT TRUNCATE ON slotsync.records TO ${role}`,
      );
      expect(await excess()).toBe(
        'it may write to public.numbers, public.owned, schema public, slotsync.records',
      );
      await sql.unsafe(`GRANT pg_write_server_files TO ${role}; ALTER ROLE ${role} CREATEDB;
        GRANT DELETE ON ALL TABLES IN SCHEMA slotsync TO ${role}`);
      expect(await excess()).toMatch(
        /^it has CREATEDB, pg_write_server_files, and it may write to .*, .*, .*, .*, .*, \d+ more$/,
      );
      expect(describeExcess(await mirror.roleRights())).toMatch(/^it has SUPERUSER[A-Z, ]*$/);
    } finally {
      await as.close();
      await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });
});

describe('the catalogue', () => {
  /** Others can put these before PostgreSQL's own in a search path: functions and operators that raise an error, tables without a row. */
  const FUNCTIONS = [
    'pg_postmaster_start_time()',
    'current_setting(text)',
    'set_config(text, text, boolean)',
    'format_type(oid, integer)',
    'quote_ident(text)',
    'quote_ident(name)',
    'has_schema_privilege(oid, text)',
    'has_table_privilege(oid, text)',
    'row_security_active(oid)',
    'pg_is_in_recovery()',
    'array_to_json(text[])',
  ];
  const TABLES = ['pg_class', 'pg_namespace', 'pg_type', 'pg_attribute', 'pg_roles', 'pg_database'];
  const OPERATORS = ['= (oid, oid)', '= (name, name)', '<> (name, name)', '< (interval, interval)'];

  it('is read with functions of PostgreSQL, whatever the search path of the role finds first', async () => {
    const role = `slotsync_test_${randomUUID().slice(0, 8)}`;
    const raise = "LANGUAGE plpgsql AS 'BEGIN RAISE ''called''; END'";
    await sql.unsafe(`
      CREATE SCHEMA shadowing; CREATE TABLE public.seen (code text PRIMARY KEY);
      CREATE ROLE ${role} LOGIN PASSWORD 'pw';
      ALTER ROLE ${role} SET search_path = shadowing, pg_catalog, public;
      GRANT USAGE ON SCHEMA shadowing TO ${role}; GRANT SELECT ON public.seen TO ${role};
      CREATE TABLE shadowing.written (); GRANT INSERT ON shadowing.written TO ${role};
      CREATE FUNCTION shadowing.pg_advisory_unlock_all() RETURNS void LANGUAGE sql
        AS 'INSERT INTO shadowing.written DEFAULT VALUES';
      ${FUNCTIONS.map((name) => `CREATE FUNCTION shadowing.${name} RETURNS text ${raise};`).join('\n')}
      ${TABLES.map((name) => `CREATE TABLE shadowing.${name} (); GRANT SELECT ON shadowing.${name} TO ${role};`).join('\n')}`);
    for (const [at, operator] of OPERATORS.entries()) {
      const [, sign = '', left = '', right = ''] = /^(\S+) \((\w+), (\w+)\)$/.exec(operator) ?? [];
      await sql.unsafe(`CREATE FUNCTION shadowing.operator_${at}(${left}, ${right}) RETURNS boolean ${raise};
        CREATE OPERATOR shadowing.${sign} (LEFTARG = ${left}, RIGHTARG = ${right}, FUNCTION = shadowing.operator_${at})`);
    }
    const as = createMirrorAs(role);
    try {
      for (let session = 0; session < 2; session++) {
        expect(await as.ping()).toEqual(await mirror.ping());
        expect(await as.databaseIdentity()).toEqual(await mirror.databaseIdentity());
        expect((await as.facts()).databaseOid).toBe((await mirror.facts()).databaseOid);
        expect(await as.roleRights()).toMatchObject({ role, powers: [], writable: ['shadowing.written'] });
        expect(await as.catalogue.readTables()).toContainEqual(
          expect.objectContaining({ schema: 'public', name: 'seen', primaryKey: ['code'] }),
        );
        expect(await as.checkStream(streamOf({ from: 'seen', key: 'code' }))).toEqual([]);
        expect(await as.checkStream(streamOf({ from: 'public.seem', key: 'code' }))).toEqual([
          expect.stringContaining('did you mean public.seen?'),
        ]);
      }
      // pg_advisory_unlock_all is called behind a reading, outside of its transaction.
      expect(await sql`SELECT FROM shadowing.written`).toHaveLength(0);
    } finally {
      await as.close();
      await sql.unsafe(
        `DROP SCHEMA shadowing CASCADE; DROP TABLE public.seen; DROP OWNED BY ${role}; DROP ROLE ${role}`,
      );
    }
  });
});

describe('a table with row-level security', () => {
  const role = `slotsync_test_${randomUUID().slice(0, 8)}`;
  let as: Mirror;
  beforeAll(async () => {
    await sql.unsafe(`
      CREATE ROLE ${role} LOGIN PASSWORD 'pw';
      CREATE SCHEMA policed;
      CREATE TABLE policed.rooms (code text PRIMARY KEY, kind text, starts timestamptz, ends timestamptz);
      INSERT INTO policed.rooms SELECT 'R' || i, 'kind', now(), now() + interval '1 hour' FROM generate_series(1, 4) AS i;
      ALTER TABLE policed.rooms ENABLE ROW LEVEL SECURITY;
      CREATE POLICY first_two ON policed.rooms FOR SELECT USING (code IN ('R1', 'R2'));
      CREATE TABLE policed.free (code text);
      CREATE VIEW policed.of_owner AS SELECT * FROM policed.rooms;
      GRANT USAGE ON SCHEMA policed TO ${role};
      GRANT SELECT ON ALL TABLES IN SCHEMA policed TO ${role}`);
    as = createMirrorAs(role);
  });
  afterAll(async () => {
    await as.close();
    await sql.unsafe(`DROP OWNED BY ${role}; DROP ROLE ${role}; DROP SCHEMA policed CASCADE`);
  });

  const from = 'policed.rooms';
  /** Every way in which a source is read. */
  const readings = (rowSecurity?: 'filtered') => {
    const source = { from, rowSecurity, key: 'code' };
    const { streams, reservations } = checkConfiguration({
      lookups: { kind: { from, key: 'code', value: 'kind', ...(rowSecurity && { rowSecurity }) } },
      streams: {
        rooms: {
          ...source,
          type: 'room',
          externalId: 'r_{kind}',
          cursor: 'starts',
          fields: { 'room.kind': { column: 'code', lookup: 'kind' } },
        },
      },
      reservations: {
        ...source,
        externalId: 'b_{code}',
        begin: 'starts',
        end: 'ends',
        objects: [{ stream: 'rooms', key: 'code' }],
      },
    });
    const [stream] = streams;
    const lookup = stream?.lookups.tables.get('kind');
    const bookings = reservations?.bookings;
    if (!stream || !lookup || !bookings) throw new Error('the configuration has all three');
    const poll = async () => {
      const range = { watermark: undefined, overlapSeconds: 0, lagSeconds: 0 };
      let count = 0;
      for await (const rows of as.readByCursor(stream, range)) count += rows.length;
      return count;
    };
    const seen: Record<string, () => Promise<number>> = {
      'whole source': async () => (await readAllOf(as, stream)).length,
      keys: async () => (await readRows(as, stream, ['R1', 'R4'])).size * 2,
      'external ids': async () =>
        (await as.findKeysByExternalId(stream, ['r_kind'])).get('r_kind')?.length ?? 0,
      'shared external ids': async () => (await as.findSharedExternalIds(stream))[0]?.count ?? 0,
      emptiness: async () => ((await as.isEmpty(stream)) ? 0 : 2),
      polling: poll,
      bookings: async () => (await as.bookings.readByKeys(bookings, ['R1', 'R2', 'R4'])).length,
      condition: async () => ((await as.checkCondition(stream, { where: 'true' })) === undefined ? 2 : 0),
      lookup: async () => (await as.readLookup('kind', lookup)).size,
    };
    return { seen, check: () => as.checkStream(stream), checkBookings: () => as.bookings.check(bookings) };
  };

  it('is refused by every reading from which a policy would hide rows, with remedies', async () => {
    const { seen, check, checkBookings } = readings();
    for (const [name, read] of Object.entries(seen)) {
      if (name === 'lookup') continue;
      await expect(read(), name).rejects.toMatchObject({
        code: 'mirror_row_security',
        disposition: 'dead',
        message: expect.stringContaining('"rooms"'),
        remedy: expect.stringMatching(/BYPASSRLS.*`rowSecurity: 'filtered'`/),
      });
    }
    const fault = expect.stringMatching(/^from: .*"rooms".*BYPASSRLS.*rowSecurity: 'filtered'/);
    expect([await check(), await checkBookings()]).toEqual([[fault], [fault]]);
    await expect(seen['lookup']?.()).rejects.toMatchObject({
      code: 'mirror_source',
      message: expect.stringMatching(/^lookups\.kind\.from: .*"rooms".*rowSecurity: 'filtered'/),
    });
  });

  it('is read as its policies show it where the declaration says so', async () => {
    const { seen, check, checkBookings } = readings('filtered');
    for (const [name, read] of Object.entries(seen)) expect(await read(), name).toBe(2);
    expect([await check(), await checkBookings()]).toEqual([[], []]);
  });

  it('is read whole through a view of its owner, and by a role that bypasses policies', async () => {
    expect(await readAllOf(as, streamOf({ from: 'policed.of_owner', key: 'code' }))).toHaveLength(4);
    await sql.unsafe(`ALTER ROLE ${role} BYPASSRLS`);
    expect(describeExcess(await as.roleRights())).toBeUndefined();
    expect(await readAllOf(as, streamOf({ from, key: 'code' }))).toHaveLength(4);
    await sql.unsafe(`ALTER ROLE ${role} NOBYPASSRLS`);
  });
});

describe('shared external ids', () => {
  it('are found with the keys of their rows, unless the template rules them out', async () => {
    await sql`CREATE TABLE staff (id integer PRIMARY KEY, number text, branch text)`;
    await sql`
      INSERT INTO staff VALUES (1, 'a', 'x'), (2, 'b', 'x'), (10, 'a', 'x'), (3, 'a', 'y'), (4, NULL, 'x'), (5, NULL, 'x')`;
    const find = (externalId: string) =>
      mirror.findSharedExternalIds(streamOf({ from: 'staff', key: 'id', externalId }));
    expect(await find('p_{id}')).toEqual([]);
    expect(await find("p'_{number}_{branch}")).toEqual([
      { externalId: "p'_a_x", count: 2, keys: ['1', '10'] },
    ]);
    expect(await find('p_{number}')).toEqual([{ externalId: 'p_a', count: 3, keys: ['1', '10', '3'] }]);
  });

  it('make the stream fail if they are many', async () => {
    const query = 'SELECT i AS id, i / 2 AS number FROM generate_series(1, 3000) AS i';
    const stream = streamOf({ from: { query }, key: 'id', externalId: 'p_{number}' });
    await expect(mirror.findSharedExternalIds(stream)).rejects.toMatchObject({
      code: 'external_ids_not_unique',
      message: expect.stringMatching(/^streams\.\w+: more than 1000 .* such as 'p_1'$/),
    });
  });
});
