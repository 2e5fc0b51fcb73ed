// Every failure of the state database is a SlotsyncError `state_…`, without the statement and its values.
import { eq, sql } from 'drizzle-orm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SlotsyncError } from '../../src/errors/errors.js';
import { openState, query, type Queries, type State } from '../../src/state/database.js';
import { runs, watermarks } from '../../src/state/schema.js';
import { createDatabase, type TestDatabase } from '../support/services.js';
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
        .from(watermarks)
        .where(sql`${SECRET}::text = (1 / 0)::text`),
  ],
  ['an insert', (db) => db.insert(runs).values(badRow)],
  ['an update', (db) => db.update(watermarks).set({ cursor: sql`${SECRET}::text || (1 / 0)::text` })],
  ['a delete', (db) => db.delete(watermarks).where(sql`${SECRET}::text = (1 / 0)::text`)],
  ['a count', (db) => db.$count(watermarks, sql`${SECRET}::text = (1 / 0)::text`)],
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
  ['alone', (run: (db: Queries) => PromiseLike<unknown>) => run(state.db)],
  [
    'in a transaction',
    (run: (db: Queries) => PromiseLike<unknown>) => state.db.transaction(async (tx) => run(tx)),
  ],
  [
    'in a transaction in a transaction',
    (run: (db: Queries) => PromiseLike<unknown>) =>
      state.db.transaction((tx) => tx.transaction(async (inner) => run(inner))),
  ],
])('%s', (_, within) => {
  it.each(failures)('%s that fails is named', async (_name, run) => {
    await state.db
      .insert(watermarks)
      .values({ stream: 'rooms', cursor: '', localKey: '' })
      .onConflictDoNothing();
    const error = await errorOf(() => within(run));
    expect(error).toBeInstanceOf(SlotsyncError);
    const { code, message, facts, stack } = error as SlotsyncError;
    expect(code).toBe('state_failed');
    expect(facts['sqlstate']).toMatch(/^2/);
    expect(JSON.stringify({ message, facts, stack })).not.toMatch(/Ragnhild|SELECT|insert into|delete from/i);
  });
});

describe('a transaction', () => {
  it.each([
    ['an error of ours', new SlotsyncError('claimed', 'another batch is writing some of these records')],
    ['any other error', new Error('the worker is stopping')],
  ])('lets %s pass that its work throws, and writes nothing', async (_, thrown) => {
    const work = state.db.transaction((tx) =>
      tx.transaction(async (inner) => {
        await inner.insert(watermarks).values({ stream: 'halls', cursor: '', localKey: '' });
        throw thrown;
      }),
    );
    expect(await errorOf(() => work)).toBe(thrown);
    expect(await state.db.$count(watermarks, eq(watermarks.stream, 'halls'))).toBe(0);
  });

  it.each([
    ['a query', (db: Queries) => query(db)`SELECT 1`],
    ['a transaction', (db: Queries) => db.transaction(async () => undefined)],
  ])('%s without a database is named', async (_, work) => {
    const nowhere = openState({ url: 'postgres://nobody:wrong@127.0.0.1:1/none' });
    try {
      const error = await errorOf(() => work(nowhere.db));
      expect(error).toMatchObject({ code: 'state_unreachable', disposition: 'retry' });
    } finally {
      await nowhere.close();
    }
  });
});

it('status: a state that is read-only is said, before the runs that wait for it', async () => {
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
  } finally {
    await later.close();
    await set('off');
  }
});
