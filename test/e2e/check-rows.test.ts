// `check --rows`, and lookups as an operator meets them: in `check`, in `plan` and in a worker that runs for long.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 10, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

it('check --rows: rows that would not arrive are faults, and the command ends with 1', async () => {
  const sound = await world.run(['check', '--rows']);
  expect(sound.stdout).toContain('✓ rows of rooms: all 10 can be sent');
  expect(sound.code).toBe(0);
  await world.sql`UPDATE courses SET room = 'R99' WHERE id IN (2, 3)`;
  const { code, stdout } = await world.run(['check', '--rows']);
  expect(stdout).toContain(
    "✗ rows of courses: 2 of 10, such as '2', '3': courses.references['course.room']: it refers to a row that rooms does not have\n    → slotsync explain courses '2' shows one of them.",
  );
  expect(code).toBe(1);
  expect((await world.run(['check'])).code).toBe(0);
  const { findings } = JSON.parse((await world.run(['check', '--rows', '--json'])).stdout) as {
    findings: unknown[];
  };
  expect(findings).toContainEqual(
    expect.objectContaining({ what: 'rows of courses', count: 2, keys: ['2', '3'] }),
  );
});

const withLookup = (lookup: string) => `
import { defineConfig } from 'slotsync';
export default defineConfig({
  lookups: { name: ${lookup} },
  streams: {
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}',
      fields: { 'room.name': { column: 'name', lookup: 'name', otherwise: 'keep' } },
    },
  },
});
`;

it('lookup: a table that is not there is a fault of check and of plan', async () => {
  await world.configure(withLookup("{ from: 'room_names', key: 'code', value: 'name' }"));
  for (const command of ['check', 'plan']) {
    const { code, stdout, stderr } = await world.run([command]);
    expect(stdout + stderr).toMatch(/lookups\.name\.from: relation "room_names" does not exist/);
    expect(code).toBe(2);
  }
});

it('lookup: a worker that has run for long sends what a changed table changes', async () => {
  await world.sql`CREATE TABLE room_names AS SELECT 'Sal ' || i AS code, 'Hall ' || i AS name FROM generate_series(1, 9) AS i`;
  await world.configure(withLookup("{ from: 'room_names', key: 'code', value: 'name' }"));
  const nameOf = (code: string) => world.sandbox.object(`room_${code}`)?.fields[0]?.values[0];
  await world.startWorker();
  await world.run(['sync', '--detach']);
  await until(() => nameOf('R10') === 'Sal 10', { describe: 'the first sync' });
  expect(nameOf('R1')).toBe('Hall 1');
  await until(
    async () => (await world.sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`).length === 0,
    {
      describe: 'its end',
    },
  );
  await world.sql`UPDATE room_names SET name = 'Aula' WHERE code = 'Sal 1'`;
  await world.run(['sync', '--detach']);
  await until(() => nameOf('R1') === 'Aula', { describe: 'the changed name' });
  const { streams } = JSON.parse((await world.run(['plan', '--json'])).stdout) as { streams: unknown[] };
  expect(streams).toMatchObject([{ counts: { unchanged: 10, update: 0 } }]);
});

it('lookup: a CSV file beside the configuration is read again when it has changed', async () => {
  const file = path.join(world.folder, 'names.csv');
  writeFileSync(file, 'code,name\nSal 1,Hall 1\n');
  await world.configure(withLookup("{ file: 'names.csv', key: 'code', value: 'name' }"));
  expect((await world.run(['sync'])).code).toBe(0);
  writeFileSync(file, readFileSync(file, 'utf8').replace('Hall', 'Aula'));
  const { stdout } = await world.run(['plan', '--full']);
  expect(stdout).toContain('room.name: "Hall 1" → "Aula 1"');
});
