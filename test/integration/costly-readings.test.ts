// Whether a batch reads its rows alone or the whole source, and what would help: the statements that are named are run, and
// must help.
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config-file.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import type { Stream } from '../../src/streams/stream.js';
import type { Declaration } from '../support/campus.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

let database: TestDatabase;
let sql: postgres.Sql;
let mirror: Mirror;

const ROWS = 20_000;
/** Of so many rows an index finds so few. */
const KEYS_AT_ONCE = 20;
/** A thousand readings of 20 keys cost half of it with an index, and three times as much without. */
const COSTLY = { share: 0.2, cost: 100_000 };

beforeAll(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  mirror = createMirror({ url: database.url, costly: COSTLY });
  await sql.unsafe(`
    CREATE SCHEMA campus;
    CREATE TABLE campus.rooms AS
      SELECT 'R' || i AS code, 'Room ' || i AS name, i % 100 AS building, i AS number, date '2026-01-01' + i % 300 AS since
      FROM generate_series(1, ${ROWS}) AS i;
    CREATE TABLE campus.indexed AS TABLE campus.rooms;
    ALTER TABLE campus.indexed ADD PRIMARY KEY (code);
    CREATE INDEX ON campus.indexed (building);
    CREATE TABLE campus.programmes (year integer, code varchar(20), name text);
    INSERT INTO campus.programmes SELECT i % 4, 'P' || i / 4, 'Programme ' || i FROM generate_series(1, ${ROWS}) AS i;
    CREATE TABLE campus.parts (code text, year integer) PARTITION BY RANGE (year);
    CREATE TABLE campus.parts_1 PARTITION OF campus.parts FOR VALUES FROM (0) TO (1);
    CREATE TABLE campus.parts_2 PARTITION OF campus.parts FOR VALUES FROM (1) TO (2);
    INSERT INTO campus.parts SELECT 'R' || i, i % 2 FROM generate_series(1, ${ROWS}) AS i;
    CREATE TABLE campus."Odd ""Names""" ("Code, = ANY (" text, kind text);
    INSERT INTO campus."Odd ""Names""" SELECT 'it''s \\ ' || i, 'a' FROM generate_series(1, ${ROWS}) AS i`);
  await sql`VACUUM ANALYZE`;
});
afterAll(async () => {
  await mirror.close();
  await sql.end();
  await database.drop();
});

function streamOf(from: Declaration['from'], ...key: string[]): Stream {
  const externalId = key.map((column) => `{${column}}`).join('_');
  const declaration: Declaration = { from, key, type: 'room', externalId, fields: {} };
  const [stream] = checkConfiguration({ streams: { rooms: declaration } }).streams;
  if (!stream) throw new Error('no stream');
  return stream;
}

const query = (text: string) => ({ query: text });
const find = (stream: Stream) => mirror.findCostlyReading(stream, { keysAtOnce: KEYS_AT_ONCE });

describe('a reading by keys is narrow', () => {
  it.each<[string, Declaration['from'], string]>([
    ['of a table with an index', 'campus.indexed', 'code'],
    ['of a query', query('SELECT code, upper(name) AS name FROM campus.indexed WHERE number > 0'), 'code'],
    ['of groups by the key', query('SELECT code, count(*) AS n FROM campus.indexed GROUP BY code'), 'code'],
    [
      'of the latest row of each key',
      query('SELECT DISTINCT ON (code) * FROM campus.indexed ORDER BY code, since'),
      'code',
    ],
    [
      'of both parts of a union',
      query('SELECT code FROM campus.indexed UNION ALL SELECT code FROM campus.indexed'),
      'code',
    ],
    ['of a small source', query('SELECT * FROM campus.rooms LIMIT 100'), 'code'],
  ])('%s', async (_, from, key) => {
    expect(await find(streamOf(from, key))).toBeUndefined();
  });

  it('of a table with an index and without statistics, whose cost is a guess', async () => {
    await sql.unsafe(`
      CREATE TABLE campus.loaded (code text PRIMARY KEY, name text) WITH (autovacuum_enabled = false);
      CREATE INDEX ON campus.loaded (name);
      INSERT INTO campus.loaded SELECT code, name FROM campus.indexed`);
    expect(await find(streamOf('campus.loaded', 'code'))).toBeUndefined();
    expect(await find(streamOf('campus.loaded', 'name'))).toBeUndefined();
  });

  it('of a large source beside which the few keys do not matter', async () => {
    const other = createMirror({ url: database.url });
    expect(
      await other.findCostlyReading(streamOf('campus.rooms', 'code'), { keysAtOnce: 20 }),
    ).toBeUndefined();
    await other.close();
  });
});

describe('a missing index is named', () => {
  it.each<[string, Declaration['from'], string[], string]>([
    ['of a table', 'campus.rooms', ['code'], 'CREATE INDEX ON campus.rooms (code);'],
    ['of an integer', 'campus.rooms', ['number'], 'CREATE INDEX ON campus.rooms (number);'],
    [
      'of an expression',
      query("SELECT lower(r.code) || '-x' AS id, r.name FROM campus.rooms AS r"),
      ['id'],
      "CREATE INDEX ON campus.rooms ((lower(code) || '-x'::text));",
    ],
    [
      'of a cast',
      query('SELECT number::text AS id FROM campus.rooms'),
      ['id'],
      'CREATE INDEX ON campus.rooms (((number)::text));',
    ],
    [
      'of a composite key: the column with more values comes first',
      'campus.programmes',
      ['year', 'code'],
      'CREATE INDEX ON campus.programmes (code, year);',
    ],
    ['of a partitioned table', 'campus.parts', ['code'], 'CREATE INDEX ON campus.parts (code);'],
    [
      'beside a list of the query itself, and names that look like SQL',
      query(`SELECT "Code, = ANY (" AS id FROM campus."Odd ""Names""" WHERE kind IN ('a', '{b}')`),
      ['id'],
      'CREATE INDEX ON campus."Odd ""Names""" ("Code, = ANY (");',
    ],
    [
      'of one part of a union',
      query('SELECT code, name FROM campus.indexed UNION SELECT code, name FROM campus.rooms'),
      ['code'],
      'CREATE INDEX ON campus.rooms (code);',
    ],
  ])('%s, and helps', async (_, from, key, index) => {
    await sql.unsafe('DROP INDEX IF EXISTS campus.rooms_code_idx');
    const stream = streamOf(from, ...key);
    const found = await find(stream);
    expect(found).toMatchObject({ keys: KEYS_AT_ONCE, indexes: [index], isComputed: false });
    expect(found?.scan).toMatchObject({ node: 'Seq Scan', rows: ROWS });
    await sql.unsafe(index);
    await sql`ANALYZE`;
    expect(await find(stream)).toBeUndefined();
  });
});

describe('a query that no index narrows', () => {
  it.each<[string, string, string]>([
    ['with a DISTINCT ON of another column', 'SELECT DISTINCT ON (name) * FROM campus.indexed', 'code'],
    [
      'with groups by another column',
      'SELECT max(code) AS code, name FROM campus.indexed GROUP BY name',
      'code',
    ],
    [
      'with a window',
      'SELECT code, row_number() OVER (PARTITION BY building ORDER BY code) AS place FROM campus.indexed',
      'code',
    ],
    [
      'with a key of two tables',
      `SELECT a.code || '-' || b.code AS id FROM campus.indexed AS a JOIN campus.indexed AS b USING (number)`,
      'id',
    ],
    ['with a LIMIT', `SELECT * FROM campus.indexed LIMIT ${ROWS}`, 'code'],
  ])('%s is run whole, whatever is indexed', async (_, text, key) => {
    expect(await find(streamOf(query(text), key))).toMatchObject({
      indexes: [],
      isComputed: true,
      scan: { relation: 'campus.indexed', rows: ROWS },
    });
  });
});

it('a relation that is joined to the keys is named, where it has no index', async () => {
  await sql`CREATE TABLE campus.details AS SELECT code AS room, name FROM campus.indexed`;
  await sql`ANALYZE campus.details`;
  const text = 'SELECT a.code, b.name FROM campus.indexed AS a JOIN campus.details AS b ON b.room = a.code';
  expect(await find(streamOf(query(text), 'code'))).toMatchObject({
    indexes: [],
    isComputed: false,
    scan: { relation: 'campus.details' },
  });
});

it('with keys given nothing is read, and no key is in what is found', async () => {
  await sql`CREATE TABLE campus.people AS SELECT 'anna.berg' || i AS login FROM generate_series(1, ${ROWS}) AS i`;
  await sql`ANALYZE campus.people`;
  const scans = async () => {
    await sql`SELECT pg_stat_clear_snapshot()`;
    const [row] = await sql<{ scans: number }[]>`
      SELECT seq_scan::int AS scans FROM pg_stat_user_tables WHERE relname = 'people'`;
    return row?.scans;
  };
  const before = await scans();
  const other = createMirror({ url: database.url, costly: COSTLY });
  const keys = Array.from({ length: 100 }, (_, at) => `anna.berg${at}`);
  const found = await other.findCostlyReading(streamOf('campus.people', 'login'), {
    keysAtOnce: KEYS_AT_ONCE,
    keys,
  });
  // What a session has counted is flushed when it ends.
  await other.close();
  expect(found?.indexes).toEqual(['CREATE INDEX ON campus.people (login);']);
  expect(JSON.stringify(found)).not.toContain('anna');
  expect(await scans()).toBe(before);
});
