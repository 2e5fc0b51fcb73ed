// The removal of a person from the state.
import postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openState, type State } from '../../src/state/database.js';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { createDatabase, type TestDatabase } from '../support/services.js';

const PERSON = { stream: 'staff', key: "o'Hara 4711", id: `person_"o'Hara" 4711` };

let database: TestDatabase;
let sql: postgres.Sql;
let state: State;
beforeAll(async () => {
  database = await createDatabase();
  sql = postgres(database.url, { max: 1, onnotice: () => undefined });
  state = openState({ url: database.url });
});
afterAll(async () => {
  await state.close();
  await sql.end();
  await database.drop();
});

/** Returns every row of every table of the state, as text. */
async function readAll(): Promise<string[]> {
  const tables = await sql<{ name: string }[]>`
    SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables WHERE schemaname = 'slotsync'`;
  const rows = await Promise.all(
    tables.map(({ name }) =>
      sql.unsafe<{ row: string }[]>(`SELECT to_jsonb(t)::text AS row FROM ${name} AS t`),
    ),
  );
  return rows.flat().map(({ row }) => row);
}

it('removing a person deletes every trace of the person, and nothing of another person', async () => {
  const booking = (id: string) => sql.json({ objects: [{ stream: 'staff', externalId: id }], fields: {} });
  for (const { stream, key, id } of [PERSON, { stream: 'staff', key: '12', id: 'person_12' }]) {
    await sql`
      INSERT INTO slotsync.records (stream, local_key, external_id, former_key, status, error_message)
      VALUES (${stream}, ${key}, ${id}, NULL, 'failed', ${`no room for ${id}`}),
        (${stream}, ${`#former ${id} x`}, ${`${id} x`}, ${key}, 'synced', NULL)`;
    await sql`
      INSERT INTO slotsync.records (stream, local_key, external_id, status, waits_for, error_message)
      VALUES ('courses', ${`of ${key.length}`}, ${`course ${key.length}`}, 'deferred',
        ${JSON.stringify([stream, key])}, ${`waits for ${key}`})`;
    await sql`INSERT INTO slotsync.changes (stream, local_key) VALUES (${stream}, ${key})`;
    await sql`
      INSERT INTO slotsync.object_claims (external_id, claimed_by, claimed_until) VALUES (${id}, 'batch', now())`;
    const [run] = await sql<{ id: string }[]>`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, range, finished_at)
      VALUES ('backfill', 'backfill', 'command', ${[stream]}, 'succeeded', ${sql.json({ keys: [key, 'x'] })}, now())
      RETURNING id`;
    await sql`
      INSERT INTO slotsync.batches (run_id, stream, level, keys, state, error_message)
      VALUES (${run?.id ?? ''}, ${stream}, 0, ${[key, 'x']}, 'done', ${`the batch of ${key}`})`;
    const number = key.length;
    await sql`
      INSERT INTO slotsync.reservations (key, destination_id, verdict, here, there, seen_at)
      VALUES (${`b${number}`}, ${number}, 'agrees', ${booking(id)}, ${booking(id)}, now())`;
    await sql`
      INSERT INTO slotsync.reservation_events (key, to_verdict, differs)
      VALUES (${`b${number}`}, 'agrees', ${sql.json({ objects: { here: [id], there: [] } })})`;
    await sql`INSERT INTO slotsync.cancellations (destination_id, reservation) VALUES (${number + 100}, ${number})`;
  }
  await sql`
    INSERT INTO slotsync.streams (stream, cursor, cursor_key) VALUES (${PERSON.stream}, '2026-01-01', ${PERSON.key})`;
  const before = await readAll();
  const names = (row: string) =>
    [PERSON.key, PERSON.id].some((name) => row.includes(JSON.stringify(name).slice(1, -1)));
  expect(before.filter(names).length).toBeGreaterThan(8);

  await forgetKey(state.db, { stream: PERSON.stream, localKey: PERSON.key });
  const after = await readAll();
  expect(after.filter(names)).toEqual([]);
  const ofOthers = (rows: string[]) =>
    rows.filter((row) => row.includes('person_12') || row.includes('"12"'));
  expect(ofOthers(after)).toEqual(ofOthers(before));
  expect(await sql`SELECT key FROM slotsync.reservations`).toEqual([{ key: 'b2' }]);
});
