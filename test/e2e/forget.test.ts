// A person asks for the removal of their data: nothing in the state names them afterwards.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

const PERSON = 'anna.andersson@example.org';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

/** The tables of the state in which a text occurs. */
async function tablesWith(text: string): Promise<string[]> {
  const tables = await world.sql<{ name: string }[]>`
    SELECT c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('slotsync', 'slotsync_queue') AND c.relkind = 'r' ORDER BY name`;
  const found: string[] = [];
  for (const { name } of tables) {
    const schema = await world.sql<{ at: string }[]>`
      SELECT table_schema AS at FROM information_schema.tables
      WHERE table_name = ${name} AND table_schema LIKE 'slotsync%' LIMIT 1`;
    const table = world.sql(`${schema[0]?.at}.${name}`);
    const [row] = await world.sql<{ count: number }[]>`
      SELECT count(*)::int AS count FROM ${table} AS t WHERE position(${text} IN t::text) > 0`;
    if (row && row.count > 0) found.push(name);
  }
  return found;
}

it('forget: nothing in the state names the key afterwards but the hash of its removal', async () => {
  await world.sql`INSERT INTO rooms VALUES (${PERSON}, ${'too long for the service '.repeat(3)}, 1)`;
  await world.sql`UPDATE courses SET room = ${PERSON} WHERE id = 2`;
  expect((await world.run(['sync'])).code).toBe(1);
  await world.run(['backfill', 'rooms', '--keys', `${PERSON},R1`]);
  await world.sql`UPDATE rooms SET name = 'short' WHERE code = ${PERSON}`;
  await world.run(['sync']);
  await world.sql`
    INSERT INTO slotsync.links (stream, local_key, external_id, linked_by)
    VALUES ('rooms', ${PERSON}, ${`room_${PERSON}`}, 'match')`;

  const refused = await world.run(['forget', 'rooms', PERSON]);
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('is in the mirror: the next run would record it again');

  await world.sql`DELETE FROM rooms WHERE code = ${PERSON}`;
  await world.sql`UPDATE courses SET room = 'R1' WHERE id = 2`;
  const early = await world.run(['forget', 'rooms', PERSON]);
  expect(early.code).toBe(2);
  expect(early.stderr).toContain('→ Retire it first: slotsync sync rooms.');
  await world.run(['sync']);
  expect(world.sandbox.object(`room_${PERSON}`)?.active).toBe(false);
  const drift = { stream: 'rooms', local_key: PERSON, external_id: `room_${PERSON}`, kind: 'missing' };
  await world.sql`INSERT INTO slotsync.drift ${world.sql({ ...drift, seen_at: new Date() })}`;
  await world.sql`
    INSERT INTO slotsync.drift_events (stream, local_key, to_kind) VALUES ('rooms', ${PERSON}, 'missing')`;
  expect(await tablesWith(PERSON)).toEqual(
    expect.arrayContaining(['batches', 'drift', 'links', 'records', 'runs']),
  );

  const { code, stdout } = await world.run(['forget', 'rooms', PERSON]);
  expect(code).toBe(0);
  expect(stdout).toContain(
    `The service may still hold room_${PERSON}. Delete it there: slotsync deletes no objects.`,
  );
  expect(await tablesWith(PERSON)).toEqual([]);
  const removals = await world.sql`SELECT stream, deleted FROM slotsync.removals`;
  expect(removals).toMatchObject([
    { stream: 'rooms', deleted: { records: 1, links: 1, drift: 1, drift_events: 1 } },
  ]);

  const again = await world.run(['forget', 'rooms', PERSON]);
  expect(again.code).toBe(1);
  expect(again.stderr).toContain(`the state holds nothing of rooms '${PERSON}'`);
  expect((await world.run(['sync'])).code).toBe(0);
});

it('forget: an object that nothing would retire is left only when --force says so', async () => {
  await world.run(['sync']);
  await world.sql`DELETE FROM courses WHERE id = 3`;
  expect((await world.run(['forget', 'courses', '3'])).code).toBe(2);
  const { code, stdout } = await world.run(['forget', 'courses', '3', '--force', '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ externalIds: ['course_3'], deleted: { records: 1 } });
  expect(world.sandbox.object('course_3')?.active).toBe(true);
});

it('forget: a key in a batch that has not ended is left, with the commands that end it', async () => {
  await world.run(['sync']);
  await world.sql`INSERT INTO rooms SELECT 'N' || i, 'Ny', i FROM generate_series(1, 30) AS i`;
  await world.run(['sync']);
  await world.sql`DELETE FROM rooms WHERE code LIKE 'N%'`;
  const held = await world.run(['sync', 'rooms']);
  expect(held.code).toBe(3);
  const { code, stderr } = await world.run(['forget', 'rooms', 'N7', '--force']);
  expect(code).toBe(2);
  expect(stderr).toMatch(/run \d+ has the key, and has not ended or is held/);
  expect(stderr).toMatch(/slotsync reject \d+/);
});
