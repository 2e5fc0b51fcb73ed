// The removal of a person from the state: nothing names the person afterwards, and what is stored of others stays.
import type postgres from 'postgres';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { forgetKey } from '../../src/state/records/forget-key.js';
import { createSharedDatabase, type SharedDatabase } from '../support/world.js';

const PERSON = { key: "o'Hara 4711", id: `person_"o'Hara" 4711` };
const OTHER = { key: '12', id: 'person_12' };

let database: SharedDatabase;
let sql: postgres.Sql;
beforeAll(async () => {
  database = await createSharedDatabase();
  ({ sql } = database);
});
afterAll(() => database.drop());

const forget = (stream: string, localKey: string) => forgetKey(database.state.db, { stream, localKey });
const quote = (text: string) => `'${text.replaceAll("'", "''")}'`;
const json = (value: object) => `${quote(JSON.stringify(value))}::jsonb`;

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

/** Names a person by key and external id in the rows of the person, and of records that have to do with the person. */
function tracesOf({ key, id }: typeof PERSON): string {
  const number = key.length;
  const [own, object] = [`'staff', ${quote(key)}`, quote(id)];
  const booking = json({ objects: [{ stream: 'staff', externalId: id }], fields: {} });
  const said = (text: string) => quote(`${text} ${key} ${id}`);
  return `
    INSERT INTO slotsync.records (stream, local_key, external_id, former_key, status, waits_for, error_message)
    VALUES (${own}, ${object}, NULL, 'failed', NULL, ${said('no room for')}),
      ('staff', ${quote(`#former ${id} x`)}, ${quote(`${id} x`)}, ${quote(key)}, 'synced', NULL, NULL),
      ('courses', 'of ${number}', NULL, NULL, 'deferred', ${quote(JSON.stringify(['staff', key]))}, ${said('waits for')});
    INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES (${own}, ${object}, 'match');
    INSERT INTO slotsync.changes (stream, local_key) VALUES (${own});
    INSERT INTO slotsync.drift (stream, local_key, external_id, kind, seen_at) VALUES (${own}, ${object}, 'missing', now());
    INSERT INTO slotsync.drift_events (stream, local_key, to_kind) VALUES (${own}, 'missing');
    INSERT INTO slotsync.held (stream, local_key, operation, gate, reason) VALUES (${own}, 'overwrite', 'overwrite', 'limit');
    INSERT INTO slotsync.object_claims (external_id, claimed_by, claimed_until) VALUES (${object}, 'batch', now());
    WITH run AS (
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status, range, finished_at)
      VALUES ('backfill', 'backfill', 'command', '{staff}', 'succeeded', ${json({ keys: [key, 'x'] })}, now()) RETURNING id)
    INSERT INTO slotsync.batches (run_id, stream, level, keys, state, error_message)
    SELECT id, 'staff', 0, ARRAY[${quote(key)}, 'x'], 'done', ${said('the batch of')} FROM run;
    INSERT INTO slotsync.reservations (key, destination_id, verdict, here, there, seen_at)
    VALUES ('b${number}', ${number}, 'agrees', ${booking}, ${booking}, now());
    INSERT INTO slotsync.reservation_events (key, to_verdict, differs)
    VALUES ('b${number}', 'agrees', ${json({ objects: { here: [id], there: [] } })});
    INSERT INTO slotsync.cancellations (destination_id, reservation) VALUES (${number + 100}, ${number});`;
}

/** Names the person without quotes in messages, also in JSON and addresses, and in fields of other records. */
function mentionsOf({ key, id }: typeof PERSON): string {
  const text = `no seat is left for ${key}, see /objects/${encodeURIComponent(id)}`;
  const message = quote(text);
  const samples = [
    { key: 'R1', externalId: 'room_R1', changes: [{ field: 'x', old: [key], new: [] }] },
    { key: 'R2', externalId: 'room_R2', changes: [{ field: 'x', old: ['red'], new: ['blue'] }] },
  ];
  const facts = { accepted: 1, message: text, refused: { records: 1, sent: 1, code: 'x', message: text } };
  const hold = { operation: 'overwrite', reason: 'limit', count: 2, facts, samples };
  return `
    INSERT INTO slotsync.records (stream, local_key, status, error_message) VALUES ('courses', '1', 'failed', ${message});
    INSERT INTO slotsync.drift (stream, local_key, external_id, kind, fields, seen_at)
    VALUES ('courses', '1', 'course_1', 'changed', ${json({ 'course.host': { here: [key], there: [] } })}, now());
    INSERT INTO slotsync.processes (id, command, host, pid, error_code, error_message)
    VALUES ('a', 'worker', 'north', 1, 'service_failed', ${message});
    INSERT INTO slotsync.gates (stream, operation, reason, run_id, count, digest, facts, samples, answer_reason)
    VALUES ('staff', 'overwrite', 'limit', 1, 2, '', ${json(facts)}, ${json(samples)}, ${message});
    INSERT INTO slotsync.streams (stream, cursor, cursor_key, refused_message, problem)
    VALUES ('staff', '2026', ${quote(key)}, ${message}, ${json({ status: 'failed', code: 'x', message: text })});
    INSERT INTO slotsync.freezes (streams, begins_at, ends_at, reason)
    VALUES ('{courses}', now() - interval '2 days', now() - interval '1 day', ${message});
    INSERT INTO slotsync.actions (by, via, action, subject, reason) VALUES ('ada', 'command', 'retry', ${message}, ${message});
    UPDATE slotsync.runs SET error_message = ${message}, holds = ${json({ staff: { overwrite: hold } })} WHERE id = 1;
    INSERT INTO slotsync.batches (run_id, stream, level, keys, state, error_message)
    VALUES (1, 'staff', 0, '{x}', 'done', ${message});`;
}

it('removing a person deletes every trace of the person, and nothing of another person', async () => {
  await sql.unsafe(tracesOf(PERSON) + tracesOf(OTHER) + mentionsOf(PERSON));
  const before = await readAll();
  const names = (row: string) =>
    [PERSON.key, PERSON.id, encodeURIComponent(PERSON.id)].some((name) =>
      row.includes(JSON.stringify(name).slice(1, -1)),
    );
  expect(before.filter(names).length).toBeGreaterThan(20);

  await forget('staff', PERSON.key);
  const after = await readAll();
  expect(after.filter(names)).toEqual([]);
  const ofOthers = (rows: string[]) =>
    rows.filter((row) => row.includes('person_12') || row.includes('"12"'));
  expect(ofOthers(after)).toEqual(ofOthers(before));
  expect(await sql`SELECT key FROM slotsync.reservations`).toEqual([{ key: 'b2' }]);
  expect(await sql`SELECT stream, deleted FROM slotsync.removals`).toMatchObject([
    { stream: 'staff', deleted: { records: 4, links: 1, held: 1, drift: 2, drift_events: 1 } },
  ]);
  // The gate and the run keep what they say of other keys.
  expect(await sql`SELECT count, samples FROM slotsync.gates`).toMatchObject([
    { count: 1, samples: [{ key: 'R2' }] },
  ]);
  const [run] =
    await sql`SELECT holds #> '{staff,overwrite,samples}' AS samples FROM slotsync.runs WHERE id = 1`;
  expect(run).toMatchObject({ samples: [{ key: 'R2' }] });
});

it('removing a key keeps a message that names a longer key which contains the removed key', async () => {
  await sql`INSERT INTO slotsync.records (stream, local_key, status, error_message)
    VALUES ('rooms', 'R1', 'failed', ''), ('rooms', 'R2', 'failed', 'R11 is full'), ('rooms', 'R3', 'failed', 'as is R1')`;
  await forget('rooms', 'R1');
  expect(
    await sql`SELECT local_key, error_message FROM slotsync.records WHERE stream = 'rooms' ORDER BY local_key`,
  ).toEqual([
    { local_key: 'R2', error_message: 'R11 is full' },
    { local_key: 'R3', error_message: 'removed: this text named a deleted key' },
  ]);
});
