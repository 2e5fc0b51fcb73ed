// The SQL of the documents: every statement over the state runs as it is printed, and each question of docs/state-tables.md
// has at least one row as its answer.
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { reconcile } from '../../src/sync/reconcile/reconcile.js';
import { verify } from '../../src/sync/verify/verify.js';
import type { Row, SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS } from '../support/campus.js';
import { openWorld, type World } from '../support/world.js';

const DOCS = new URL('../../docs/', import.meta.url);
const QUESTIONS = '## Questions and ready SQL';

/** Returns the statements of a text's SQL blocks, without those that create roles, indexes and schemas. */
function statementsOf(text: string): string[] {
  return [...text.matchAll(/^ *```sql\n([^]*?)^ *```/gm)]
    .flatMap(([, block = '']) =>
      block.startsWith('DO ') ? block : block.replaceAll(/ *--.*$/gm, '').split(';'),
    )
    .map((statement) => statement.trim())
    .filter((statement) => /^(SELECT|WITH|UPDATE|DELETE|DO)\b/.test(statement));
}

const pages = readdirSync(DOCS)
  // That of mirror.md is over the tables of a mirror: mirror-page.test.ts.
  .filter((file) => file.endsWith('.md') && file !== 'mirror.md')
  .map((page) => ({ page, text: readFileSync(new URL(page, DOCS), 'utf8') }));
const statements = pages.flatMap(({ page, text }) =>
  statementsOf(text).map((statement) => ({ page, statement })),
);
const questions = (
  pages.find(({ page }) => page === 'state-tables.md')?.text.split(`\n${QUESTIONS}\n`)[1] ?? ''
)
  .split('\n### ')
  .slice(1)
  .map((question) => ({ question: question.split('\n')[0] ?? '', answers: statementsOf(question) }));

function nameOf({ name }: Row): string {
  if (name === 'refused') throw new Error('the name is not allowed');
  return String(name);
}

const CONFIG: SlotsyncConfig = {
  streams: {
    rooms: {
      ...ROOMS,
      externalId: 'room_{number}',
      fields: { 'room.name': nameOf },
      retire: 'deactivate',
      unlessReserved: false,
      limits: { retire: { count: 1, percent: 0 } },
    },
    courses: COURSES,
    lessons: { ...COURSES, from: 'lessons', type: 'lesson', externalId: 'lesson_{code}' },
  },
  reservations: {
    from: 'bookings',
    key: 'id',
    externalId: 'res_{id}',
    begin: 'begins',
    end: 'ends',
    objects: [{ stream: 'rooms', key: 'room' }],
  },
};

let world: World;
beforeAll(async () => {
  world = await openWorld(CONFIG);
  const { sql, sandbox } = world;
  const insert = (text: string) => sql.unsafe(text);
  await insert(`
    CREATE TABLE rooms (code text PRIMARY KEY, number text, name text);
    CREATE TABLE courses (code text PRIMARY KEY, name text, room text);
    CREATE TABLE lessons (code text PRIMARY KEY, name text, room text);
    CREATE TABLE bookings (id int PRIMARY KEY, begins timestamptz, ends timestamptz, room text);
    INSERT INTO rooms SELECT code, code, 'Room ' || code FROM unnest('{N201,N202,N203,N204,N205}'::text[]) AS code`);
  await insert(`
    INSERT INTO courses VALUES ('C1', 'Course 1', 'N201'), ('C3', 'Course 3', 'nowhere');
    INSERT INTO bookings VALUES (6062, now() + interval '1 day', now() + interval '25 hours', 'N201'),
      (6063, now() + interval '2 days', now() + interval '49 hours', 'N202');`);
  await world.sync();

  // At the service: a room is changed, a booking moved.
  sandbox.changeObject('room_N202', { fields: [{ fieldId: 'room.name', values: ['Great Hall'] }] });
  await sql`UPDATE slotsync.records SET updated_at = now() - interval '1 hour'`;
  await verify(world.verifying(), {});
  await reconcile(world.reconciling(), {});
  const begin = Math.floor(Date.now() / 1000) + 3 * 86_400;
  sandbox.addReservation({ extId: 'res_6062', begin, end: begin + 3600 });
  await reconcile(world.reconciling(), {});

  // In the mirror: one room is gone, one has another number, then two more are gone.
  await insert(`DELETE FROM rooms WHERE code = 'N205'`);
  await world.sync();
  await insert(`UPDATE rooms SET number = 'N-2-03' WHERE code = 'N203'`);
  await world.sync();
  // A record that is given up keeps retirements back.
  await insert(`INSERT INTO rooms VALUES ('bad', 'bad', 'refused');
    INSERT INTO courses VALUES ('C2', 'Course 2', 'bad')`);
  await world.sync();
  await insert(
    `DELETE FROM rooms WHERE code IN ('N202', 'N204'); UPDATE courses SET name = 'Course one' WHERE code = 'C1'`,
  );
  await world.sync('rooms');

  // Rows that other processes and people have left.
  await insert(`
    INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'N209', 'room_old', 'rename');
    INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
      VALUES ('sync', 'sync', 'command', '{rooms}', 'planning');
    INSERT INTO slotsync.gates (stream, operation, reason, run_id, count, digest, facts, allowed, approved_at, expires_at)
      VALUES ('rooms', 'retire', 'limit', 1, 1, '', '{"accepted": 2}', 2, now(), now() + interval '1 day') ON CONFLICT DO NOTHING;
    INSERT INTO slotsync.held (stream, local_key, operation, gate, reason)
      VALUES ('rooms', 'N202', 'retire', 'retire', 'limit') ON CONFLICT DO NOTHING;
    INSERT INTO slotsync.processes (id, command, host, pid) VALUES ('p1', 'worker', 'host-a', 4711);
    INSERT INTO slotsync.request_seconds VALUES (date_trunc('second', now()), 20, 1);
    INSERT INTO slotsync.destination (base_url, organization_id, region) VALUES ('https://service.example', '4711', 'EU_EES');
    INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'N201');
    UPDATE slotsync.streams SET cursor = '2026-01-01', cursor_key = 'N201' WHERE stream = 'rooms';`);
  await world.plan('courses'); // under way, and not sent yet
  await insert(`UPDATE slotsync.records SET in_doubt = true WHERE local_key = 'C1'`);
});
afterAll(() => world.close());

describe('the SQL of the documents', () => {
  it('has more than 16 statements', () => {
    expect(statements.length).toBeGreaterThan(16);
    expect(questions.length).toBeGreaterThan(10);
  });

  it.each(statements)('runs in $page: $statement', async ({ statement }) => {
    await world.sql
      .begin(async (sql) => {
        await sql.unsafe(statement);
        throw new Undone();
      })
      .catch((error) => expect(error).toBeInstanceOf(Undone));
  });
});

describe('docs/state-tables.md', () => {
  it.each(questions)('answers: $question', async ({ answers }) => {
    expect(answers.length).toBeGreaterThan(0);
    for (const answer of answers) expect((await world.sql.unsafe(answer)).length, answer).toBeGreaterThan(0);
  });
});

/** Error that rolls back the transaction of a statement that succeeded. */
class Undone extends Error {}
