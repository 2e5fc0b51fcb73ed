// The search for the rows that have an external id, or refer to a record: SQL finds exactly what the mapping would make.
import { randomUUID } from 'node:crypto';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import { renderExternalId } from '../../src/streams/external-id.js';
import { mapRow } from '../../src/streams/map-row.js';
import type { Stream } from '../../src/streams/stream.js';
import type { Declaration } from '../support/campus.js';
import { readRows } from '../support/read-rows.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

let database: TestDatabase;
let sql: postgres.Sql;
let mirror: Mirror;

beforeAll(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  mirror = createMirror({ url: database.url });
});
afterAll(async () => {
  await mirror.close();
  await sql.end();
  await database.drop();
});

/** Values as SQL writes them. Some make no id, and some print otherwise than in JavaScript. */
const VALUES: Record<string, readonly string[]> = {
  text: ["'a'", "' a '", "''", "'NaN'", "'infinity'", "'é_x'", 'NULL', String.raw`'\|{}"'`],
  'char(6)': ["'AB'", "'ABC123'", "''"],
  smallint: ['7', '-7'],
  integer: ['0', '2147483647', 'NULL'],
  bigint: ['-9223372036854775808', '9007199254740993'],
  numeric: ['1.0', '1.00', '12345678901234567890.5', "'NaN'"],
  real: ['0.1', '16777216', "'NaN'", "'-Infinity'"],
  'double precision': [
    '0.1',
    '1e15',
    '1.5e16',
    '1e21',
    '1e-5',
    '1e-6',
    '1.5e-7',
    '1e-10',
    "'-0'",
    "'Infinity'",
  ],
  boolean: ['true', 'false'],
  uuid: ["'00000000-0000-4000-8000-00000000000a'"],
  date: ["'2026-03-29'", "'0099-01-01'", "'infinity'", "'0044-03-15 BC'", "'12026-03-29'"],
  timestamptz: ["'-infinity'", "'2026-03-29 01:30:00.000001+00'"],
  interval: ["'1 day 2 hours'"],
  bytea: [String.raw`'\x00ff'`],
  jsonb: [`'"a"'`, "'1.50'", "'true'", `'{"a": 1}'`, "'null'"],
  'text[]': ["'{a}'", "'{a,b}'", "'{a,NULL}'", "'{}'", "'{NULL}'", "'{{a},{b}}'", `'{""}'`],
  'integer[]': ["'{5}'", "'{5,6}'"],
  'double precision[]': ["'{1e15}'", "'{NaN}'"],
};

function streamsOf(streams: Record<string, Partial<Declaration> & Pick<Declaration, 'from' | 'key'>>) {
  const whole = Object.entries(streams).map(([name, declaration]) => [
    name,
    { type: 'room', externalId: `${name}_{id}`, fields: {}, ...declaration },
  ]);
  const found = checkConfiguration({ streams: Object.fromEntries(whole) as never }).streams;
  return Object.fromEntries(found.map((stream) => [stream.name, stream])) as Record<string, Stream>;
}

function streamOf(declaration: Partial<Declaration> & Pick<Declaration, 'from' | 'key'>): Stream {
  const { s } = streamsOf({ s: declaration });
  if (!s) throw new Error('no stream');
  return s;
}

const tableName = () => `t_${randomUUID().replaceAll('-', '')}`;

/** Returns the number of rows that sequential scans of a table have read. Statistics are flushed at the end of a session. */
async function scansOf(table: string): Promise<number> {
  const [{ isNew } = { isNew: true }] = await sql<{ isNew: boolean }[]>`
    SELECT to_regproc('pg_stat_force_next_flush') IS NOT NULL AS "isNew"`;
  // Before release 15 a collector gets them, at most half a second later.
  await (isNew ? sql`SELECT pg_stat_force_next_flush()` : sql`SELECT pg_sleep(1.5)`);
  await sql`SELECT pg_stat_clear_snapshot()`;
  const [row] = await sql<{ scans: number }[]>`
    SELECT seq_scan::int AS scans FROM pg_stat_user_tables WHERE relname = ${table}`;
  return row?.scans ?? 0;
}

/** Runs with a mirror of its own. Returns how often the whole table was read. */
async function countScans(table: string, run: (mirror: Mirror) => Promise<void>): Promise<number> {
  const before = await scansOf(table);
  const other = createMirror({ url: database.url });
  await run(other);
  await other.close();
  return (await scansOf(table)) - before;
}

describe('the search for rows by external ids', () => {
  it.each(Object.entries(VALUES))(
    'finds rows in a column %s by the text that the mapping makes',
    async (type, values) => {
      const table = tableName();
      await sql.unsafe(`CREATE TABLE ${table} (id integer PRIMARY KEY, value ${type})`);
      for (const [id, value] of values.entries())
        await sql.unsafe(`INSERT INTO ${table} VALUES (${id}, ${value})`);
      // A single column, whose index serves, and two, which are compared as a whole.
      for (const externalId of ['x_{value}', 'x_{id}-{value}']) {
        const stream = streamOf({ from: table, key: 'id', externalId });
        const given = new Map<string, string[]>();
        for (const [key, { row }] of await readRows(
          mirror,
          stream,
          values.map((_, id) => String(id)),
        )) {
          try {
            const extId = renderExternalId(stream.externalId, row);
            given.set(extId, [...(given.get(extId) ?? []), key].toSorted());
          } catch {
            // No external id is made.
          }
        }
        const strangers = [
          'x_',
          'x_none',
          'x_NaN',
          'x_Infinity',
          'x_1e+15',
          'x_-0',
          'x_{a}',
          'x_{5}',
          'x_0-{5}',
          'y_a',
        ];
        const asked = [...new Set([...given.keys(), ...strangers])];
        expect(await mirror.findKeysByExternalId(stream, asked)).toEqual(given);
      }
    },
  );

  it('uses an index of the column, even beside texts that are no value of its type', async () => {
    await sql`CREATE TABLE numbered AS SELECT i AS id, i AS number, 'c' || i AS code FROM generate_series(1, 20000) AS i`;
    await sql`CREATE INDEX ON numbered (number)`;
    await sql`CREATE INDEX ON numbered (code)`;
    await sql`ANALYZE numbered`;
    for (const [externalId, asked, found] of [
      ['n_{number}_x', ['n_17_x', 'n_room_x', 'n_017_x', 'n_99999999999_x', 'n_18', 'm_19_x'], ['n_17_x']],
      ['n_{code}', ['n_c17', 'n_d', 'c17'], ['n_c17']],
    ] as const) {
      const stream = streamOf({ from: 'numbered', key: 'id', externalId });
      const scans = await countScans('numbered', async (other) => {
        expect([...(await other.findKeysByExternalId(stream, asked))]).toEqual([[found[0], ['17']]]);
      });
      expect(scans).toBe(0);
    }
  });

  it('answers an external id of many rows with six of their keys', async () => {
    await sql`CREATE TABLE repeated AS SELECT i AS id, 'x' AS code FROM generate_series(1, 3000) AS i`;
    const stream = streamOf({ from: 'repeated', key: 'id', externalId: 'r_{code}' });
    const found = await mirror.findKeysByExternalId(stream, ['r_x', 'r_y']);
    expect([...found]).toEqual([['r_x', ['1', '10', '100', '1000', '1001', '1002']]]);
  });

  it('asks for no external id that the template cannot make', async () => {
    const stream = streamOf({ from: 'no_such_table', key: 'id', externalId: 'room_{id}' });
    expect(await mirror.findKeysByExternalId(stream, ['course_1', 'room_', 'room_\0'])).toEqual(new Map());
    await expect(mirror.findKeysByExternalId(stream, ['room_1'])).rejects.toMatchObject({
      code: 'mirror_source',
    });
  });

  it('compares bytes, whatever the collation of the column', async () => {
    await sql`CREATE COLLATION blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`;
    await sql`CREATE TABLE blurs (id integer, code text COLLATE blurred)`;
    await sql`INSERT INTO blurs VALUES (1, 'a'), (2, 'A')`;
    const stream = streamOf({ from: 'blurs', key: 'id', externalId: 'b_{code}' });
    expect([...(await mirror.findKeysByExternalId(stream, ['b_A']))]).toEqual([['b_A', ['2']]]);
  });
});

describe('the search for rows by references', () => {
  const referringBy = (from: string, column: string | string[], parentKey: string | string[] = 'id') => {
    const { child } = streamsOf({
      parent: { from: 'parents', key: parentKey },
      other: { from: 'parents', key: parentKey },
      child: {
        from,
        key: 'id',
        references: { 'r.one': { stream: 'parent', key: column } },
      },
    });
    if (!child) throw new Error('no stream');
    return child;
  };

  it.each(Object.entries(VALUES))(
    'finds references in a column %s as the mapping reads them',
    async (type, values) => {
      const table = tableName();
      await sql.unsafe(`CREATE TABLE ${table} (id integer PRIMARY KEY, value ${type})`);
      for (const [id, value] of values.entries())
        await sql.unsafe(`INSERT INTO ${table} VALUES (${id}, ${value})`);
      for (const [columns, parentKey] of [
        ['value', 'id'],
        [
          ['value', 'id'],
          ['a', 'b'],
        ],
      ] as const) {
        const child = referringBy(table, columns as string, parentKey as string);
        const referrers = new Map<string, string[]>();
        for (const [key, { row }] of await readRows(
          mirror,
          child,
          values.map((_, id) => String(id)),
        )) {
          try {
            const named = mapRow(
              { ...child, externalId: { parts: [{ literal: 'x' }], rule: undefined } },
              row,
            ).references;
            for (const { localKey } of named)
              referrers.set(localKey, [...(referrers.get(localKey) ?? []), key]);
          } catch {
            // It refers to none.
          }
        }
        for (const [parent, keys] of referrers)
          expect((await mirror.findReferrers(child, 'parent', [parent])).toSorted()).toEqual(
            [...new Set(keys)].toSorted(),
          );
        const all = [...referrers.keys(), 'none', '', '1e+15', 'NaN', '{a}'].filter(
          (key) => referrers.has(key) || key !== '',
        );
        expect((await mirror.findReferrers(child, 'parent', all)).toSorted()).toEqual(
          [...new Set([...referrers.values()].flat())].toSorted(),
        );
      }
    },
  );

  it('uses the indexes of all references to the stream, and finds no other reference', async () => {
    await sql`
      CREATE TABLE linked AS SELECT i AS id, i AS one, 'k' || i AS two, ARRAY[i, -i] AS three, i AS part FROM generate_series(1, 20000) AS i`;
    await sql`ALTER TABLE linked ADD PRIMARY KEY (id)`;
    for (const index of ['(one)', '(two)', 'USING gin (three)', '(part, two)'])
      await sql.unsafe(`CREATE INDEX ON linked ${index}`);
    await sql`ANALYZE linked`;
    const { child } = streamsOf({
      plain: { from: 'linked', key: 'id' },
      other: { from: 'linked', key: 'id' },
      pairs: { from: 'linked', key: ['id', 'two'] },
      child: {
        from: 'linked',
        key: 'id',
        references: {
          'r.one': { stream: 'plain', key: 'one' },
          'r.two': { stream: 'other', key: 'two' },
          'r.three': { stream: 'plain', key: 'three' },
          'r.four': { stream: 'pairs', key: ['part', 'two'] },
        },
      },
    });
    if (!child) throw new Error('no stream');
    const scans = await countScans('linked', async (other) => {
      expect(await other.findReferrers(child, 'other', ['k5', '7'])).toEqual(['5']);
      expect((await other.findReferrers(child, 'plain', ['6', '-8', 'k9'])).toSorted()).toEqual(['6', '8']);
      expect(await other.findReferrers(child, 'pairs', ['3|k3', '4|k5', 'x|k6', '3'])).toEqual(['3']);
      expect(await other.findReferrers(child, 'child', ['1'])).toEqual([]);
    });
    expect(scans).toBe(0);
  });
});
