// Every failure of the state database is a SlotsyncError `state_…`, without the statement and its values.
import { eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import { openState, query, queryTogether, type Queries, type State } from '../../src/state/database.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { migrate, requireMigrated } from '../../src/state/migrate.js';
import { runs, streams } from '../../src/state/schema.js';
import { requireWriter } from '../../src/state/state-role.js';
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/services.js';
import { statusOf } from '../support/status.js';

const SECRET = 'Ragnhild Exempelsson';

let database: TestDatabase;
let state: State;
beforeAll(async () => {
  database = await createDatabase();
  state = openState({ url: database.url, connections: 2 });
});
afterAll(async () => {
  await state.close();
  await database.drop();
});

const badRow: typeof runs.$inferInsert = {
  kind: 'sync',
  lane: SECRET,
  startedBy: SECRET as never,
  streams: [],
  status: 'running',
};
const failures: [name: string, run: (db: Queries) => PromiseLike<unknown>][] = [
  ['a statement', (db) => query(db)`SELECT 1 / 0, ${SECRET}::text`],
  [
    'a select',
    (db) =>
      db
        .select()
        .from(streams)
        .where(sql`${SECRET}::text = (1 / 0)::text`),
  ],
  ['an insert', (db) => db.insert(runs).values(badRow)],
  ['an update', (db) => db.update(streams).set({ cursor: sql`${SECRET}::text || (1 / 0)::text` })],
  ['a delete', (db) => db.delete(streams).where(sql`${SECRET}::text = (1 / 0)::text`)],
  ['a count', (db) => db.$count(streams, sql`${SECRET}::text = (1 / 0)::text`)],
];

async function errorOf(work: () => PromiseLike<unknown>): Promise<unknown> {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error('it did not fail');
}

describe.each([
  ['outside a transaction', (run: (db: Queries) => PromiseLike<unknown>) => run(state.db)],
  [
    'in a transaction',
    (run: (db: Queries) => PromiseLike<unknown>) => state.db.transaction(async (tx) => run(tx)),
  ],
  [
    'in a transaction in a transaction',
    (run: (db: Queries) => PromiseLike<unknown>) =>
      state.db.transaction((tx) => tx.transaction(async (inner) => run(inner))),
  ],
])('the state %s', (_, within) => {
  it.each(failures)('names %s that fails', async (_name, run) => {
    await state.db.insert(streams).values({ stream: 'rooms', cursor: '' }).onConflictDoNothing();
    const error = await errorOf(() => within(run));
    expect(error).toBeInstanceOf(SlotsyncError);
    const { code, message, facts, stack } = error as SlotsyncError;
    expect(code).toBe('state_failed');
    expect(facts['sqlstate']).toMatch(/^2/);
    expect(JSON.stringify({ message, facts, stack })).not.toMatch(/Ragnhild|SELECT|insert into|delete from/i);
  });
});

describe('an error of the state', () => {
  it('names the kind and the tables of a statement that takes too long', async () => {
    const work = state.db.transaction(async (tx) => {
      await tx.execute(`SET LOCAL statement_timeout = '50ms'`);
      await query(tx)`UPDATE slotsync.streams SET cursor = ${SECRET} WHERE (SELECT pg_sleep(5)) IS NOT NULL`;
    });
    const error = await errorOf(() => work);
    expect(error).toMatchObject({
      code: 'state_timeout',
      disposition: 'retry',
      message: expect.stringContaining('ended a statement (UPDATE of streams)'),
    });
    expect(JSON.stringify(error)).not.toMatch(/Ragnhild/);
  });

  it.each([
    ['an error of ours', new SlotsyncError('claimed', 'another batch is writing some of these records')],
    ['any other error', new Error('the worker is stopping')],
  ])('does not replace %s of a transaction, which writes nothing', async (_, thrown) => {
    const work = state.db.transaction((tx) =>
      tx.transaction(async (inner) => {
        await inner.insert(streams).values({ stream: 'halls', cursor: '' });
        throw thrown;
      }),
    );
    expect(await errorOf(() => work)).toBe(thrown);
    expect(await state.db.$count(streams, eq(streams.stream, 'halls'))).toBe(0);
  });

  it.each([
    ['a query', (db: Queries) => query(db)`SELECT 1`],
    ['a transaction', (db: Queries) => db.transaction(async () => undefined)],
  ])('names %s without a database', async (_, work) => {
    const nowhere = openState({ url: 'postgres://nobody:wrong@127.0.0.1:1/none' });
    try {
      const error = await errorOf(() => work(nowhere.db));
      expect(error).toMatchObject({ code: 'state_unreachable', disposition: 'retry' });
    } finally {
      await nowhere.close();
    }
  });
});

it.each(['LATIN1', 'SQL_ASCII'])('a state or a mirror in %s is refused with a remedy', async (encoding) => {
  const other = await createEmptyDatabase({ encoding });
  const [elsewhere, mirror] = [openState({ url: other.url }), createMirror({ url: other.url })];
  try {
    const refusal = (name: string) => ({
      message: `the ${name} is encoded in ${encoding}, but must be encoded in UTF8, which has every character`,
      remedy: expect.stringContaining('createdb -E UTF8 -T template0'),
      disposition: 'dead',
    });
    await expect(migrate(other.url)).rejects.toMatchObject(refusal('state database'));
    await expect(requireMigrated(elsewhere)).rejects.toMatchObject(refusal('state database'));
    for (let time = 1; time <= 2; time++)
      await expect(mirror.ping()).rejects.toMatchObject(refusal('mirror'));
  } finally {
    await Promise.all([mirror.close(), elsewhere.close()]);
    await other.drop();
  }
});

it('status reports a read-only state before the runs that wait for it', async () => {
  const name = new URL(database.url).pathname.slice(1);
  const set = (value: 'on' | 'off') =>
    state.db.execute(sql.raw(`ALTER DATABASE ${name} SET default_transaction_read_only = ${value}`));
  await state.db
    .insert(runs)
    .values({ kind: 'sync', lane: 'sync', startedBy: 'command', streams: ['rooms'], status: 'running' });
  expect(await statusOf(state)).not.toContain('read-only');
  await set('on');
  const later = openState({ url: database.url });
  try {
    const said = await statusOf(later);
    expect(said).toContain('The state database is read-only: nothing is sent until it can be written');
    expect(said.indexOf('read-only')).toBeLessThan(said.indexOf('Under way'));
    const refusal = { code: 'state_read_only', remedy: expect.stringContaining('Name the primary') };
    await expect(requireWriter(later)).rejects.toMatchObject(refusal);
    await expect(later.db.insert(runs).values(badRow)).rejects.toMatchObject(refusal);
    await expect(migrate(database.url)).rejects.toMatchObject(refusal);
  } finally {
    await later.close();
    await set('off');
  }
});

describe('a value in a statement', () => {
  const AWKWARD = [
    `it's "quoted"`,
    '\\',
    "\\' OR true --",
    '$1 $$ $tag$',
    '\n\r\t\u2028',
    'Ωß 学生 😀',
    '; DROP SCHEMA slotsync',
    '',
  ];

  it.each(['on', 'off'])(
    'stays unchanged, whatever it holds, with standard_conforming_strings %s',
    async (setting) => {
      const read = await state.db.transaction(async (tx) => {
        await tx.execute(sql`SELECT set_config('standard_conforming_strings', ${setting}, true)`);
        return query<{ text: string; list: string[]; json: unknown }>(tx)`
          SELECT v AS text, ARRAY[v, 'NULL', NULL] AS list, to_jsonb(v) AS json
          FROM jsonb_array_elements_text(${JSON.stringify(AWKWARD)}::jsonb) AS v`;
      });
      expect(read.map(({ text, list, json }) => [text, list, json])).toEqual(
        AWKWARD.map((text) => [text, [text, 'NULL', null], text]),
      );
      for (const text of AWKWARD)
        expect(
          await query(state.db)`SELECT ${text}::text AS text, ${text} || ${'!'}::text AS joined`,
        ).toEqual([{ text, joined: `${text}!` }]);
    },
  );

  it('is refused before anything is sent if no text of PostgreSQL can hold it', async () => {
    const error = await errorOf(() => query(state.db)`SELECT 1, ${'a\0b'}::text`);
    expect(error).toMatchObject({ code: 'state_failed', facts: { sqlstate: '22021' } });
  });

  it('stays unchanged if its type is not text', async () => {
    expect(
      await query(
        state.db,
      )`SELECT ${1.5}::float8 AS number, ${true}::boolean AS yes, ${null}::text AS nothing,
        ARRAY[${1}, 2]::bigint[] AS ids`,
    ).toEqual([{ number: 1.5, yes: true, nothing: null, ids: [1, 2] }]);
  });
});

describe('statements in one message', () => {
  const number = (value: number) => sql`SELECT ${value}::int AS value`;

  it('return the rows of each statement that has rows, in any order of statements', async () => {
    const silent = sql`DELETE FROM slotsync.streams WHERE false`;
    const none = sql`SELECT 1 AS value WHERE false`;
    expect(await queryTogether(state.db, [])).toEqual([]);
    expect(await queryTogether(state.db, [silent, silent])).toEqual([]);
    expect(await queryTogether(state.db, [number(1)])).toEqual([[{ value: 1 }]]);
    expect(
      await queryTogether(state.db, [silent, none, silent, number(1), silent, number(2), silent]),
    ).toEqual([[], [{ value: 1 }], [{ value: 2 }]]);
  });

  it('are carried out as a whole or not at all', async () => {
    const add = sql`INSERT INTO slotsync.streams (stream, cursor) VALUES ('together', '1')`;
    const added = () => query(state.db)`SELECT FROM slotsync.streams WHERE stream = 'together'`;
    await expect(queryTogether(state.db, [add, sql`SELECT 1 / 0`])).rejects.toMatchObject({
      code: 'state_failed',
    });
    expect(await added()).toHaveLength(0);
    await queryTogether(state.db, [add, number(1)]);
    expect(await added()).toHaveLength(1);
  });
});
