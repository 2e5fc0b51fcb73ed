// The search for the rows that have an external id, or refer to a record. `value-types.test.ts` has the values of every type.
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { createMirror, type Mirror } from '../../src/mirror/mirror.js';
import type { Stream } from '../../src/streams/stream.js';
import type { Declaration } from '../support/campus.js';
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
