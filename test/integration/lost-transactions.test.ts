// Guarantee 3
// Transactions whose connection is lost: they fail with a code of their own, and nothing else fails.
import type postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectPostgres, inTransaction } from '../../src/connections/postgres-connection.js';
import { startHop, type Hop } from '../support/hop.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

let database: TestDatabase;
beforeAll(async () => {
  database = await createDatabase();
});
afterAll(() => database.drop());

/** Times that find a lost connection within two seconds although nobody closed it. */
const TIMES = { lookMs: 200, answerWithinMs: 1000 };
const LOST = { code: 'CONNECTION_CLOSED' };

async function overHop(
  work: (client: postgres.Sql, hop: Hop) => Promise<unknown>,
  options: postgres.Options<Record<string, never>> = {},
): Promise<void> {
  const hop = await startHop(database.url);
  const client = connectPostgres(hop.through(database.url), 'lost', options, TIMES);
  try {
    await work(client, hop);
    expect(await client`SELECT 7 AS seven`).toMatchObject([{ seven: 7 }]);
  } finally {
    await client.end({ timeout: 0 });
    await hop.close();
  }
}

const lose: [what: string, how: (hop: Hop) => void][] = [
  ['forgotten', (hop) => hop.forget()],
  ['reset', (hop) => hop.dropAll()],
  ['cut amid an answer', (hop) => hop.cutAfter(5)],
];

describe.each(lose)('a transaction whose connection is %s', (_, loseIt) => {
  it('fails in a savepoint', () =>
    overHop(async (client, hop) => {
      const done = inTransaction(client, (tx) =>
        tx.savepoint(async (inner) => {
          await inner.send((sql) => sql`SELECT 1`);
          loseIt(hop);
          await inner.send((sql) => sql`SELECT 2`);
        }),
      );
      await expect(done).rejects.toMatchObject(LOST);
    }));

  it('fails in its statement, and in the next one if its work goes on', () =>
    overHop(async (client, hop) => {
      const codes: unknown[] = [];
      const note = ({ code }: NodeJS.ErrnoException) => void codes.push(code);
      const done = inTransaction(client, async (tx) => {
        await tx.send((sql) => sql`SELECT 1`);
        loseIt(hop);
        await tx.send((sql) => sql`SELECT 2`).catch(note);
        await tx.send((sql) => sql`SELECT 3`).catch(note);
      });
      await expect(done).rejects.toMatchObject(LOST);
      expect(codes).toEqual([LOST.code, LOST.code]);
    }));
});

it('a resting transaction whose connection is reset fails, and its next statement is refused', () =>
  overHop(async (client, hop) => {
    let over: Promise<unknown> = Promise.resolve();
    const done = inTransaction(client, async (tx) => {
      await tx.send((sql) => sql`SELECT 1`);
      hop.dropAll();
      await new Promise((resolve) => void (over = done.catch(resolve)));
      await tx.send((sql) => sql`SELECT 2`);
    });
    await expect(done).rejects.toMatchObject(LOST);
    await over;
  }));

it('a transaction that hears of another lost connection does not spoil the next transaction', () =>
  overHop(
    async (client, hop) => {
      await Promise.all([1, 2].map(() => client`SELECT pg_sleep(0.1)`));
      const done = inTransaction(client, async (tx) => {
        await tx.send((sql) => sql`SELECT 1`);
        hop.forget();
        await client`SELECT 2`;
      });
      await expect(done).rejects.toMatchObject(LOST);
    },
    { max: 2 },
  ));
