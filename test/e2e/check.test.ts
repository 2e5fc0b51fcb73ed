// `check` as an operator calls it: its only write, rows that cannot be sent, and missing settings.
import { realpath } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { CONFIGURATION, SCHEMA } from '../support/rehearsal.js';
import { commandsOf, rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 1, sandbox: { rate: 0, assignsExternalIds: true } });

describe('check --write-probe', () => {
  it('writes the one object that it names, and a plain check writes nothing', async () => {
    const { id } = world.sandbox.addObject({
      typeId: 'room',
      fields: [{ fieldId: 'room.name', values: ['Aula'] }],
    });
    await world.ends(
      'check',
      0,
      /\d+ hold, 0 do not hold, \d+ not tested yet, .*\. Next: slotsync check --write-probe <number>, or what would be sent: slotsync plan$/m,
    );
    const probe = `check --write-probe ${id} --external-id room_X`;
    await world.ends(
      probe,
      2,
      `✗ write probe: object ${id} (without an external id, type room) would be written as it is, once without room.name, and as it was`,
    );
    expect(world.puts()).toEqual([]);
    await world.ends(
      `${probe} --yes`,
      0,
      '✓ assumed: replace',
      `✓ assumed: write: object ${id}: written back as it was read`,
      `✓ assumed: assign-external-ids: object ${id}: it has the external id room_X now`,
    );
    expect(world.puts()).toHaveLength(3);
    expect((await world.run(['actions'])).stdout).toContain(`tested writing with object ${id}`);
    expect((await world.run(['check'])).stdout).toMatch(/\. Next, what would be sent: slotsync plan$/m);
  });

  it('writes nothing to a service that the state is not bound to', async () => {
    await world.read('sync');
    const other = await startSandbox({ rate: 0, schema: SCHEMA });
    try {
      const { id } = other.addObject({ typeId: 'room' });
      await commandsOf(world, { API_BASE_URL: other.url }).ends(
        `check --write-probe ${id}`,
        2,
        /✗ state: .*|✗ write probe: nothing is written/,
      );
      expect(other.arrivals().filter(({ method }) => method === 'PUT')).toEqual([]);
    } finally {
      await other.close();
    }
  });
});

it('check --rows ends with exit code 1 if a row cannot be sent', async () => {
  expect(await world.read('check --rows')).toContain('✓ rows of courses: 1 can be sent');
  await world.sql`UPDATE courses SET room = 'R99'`;
  await world.ends(
    'check --rows',
    1,
    "✗ rows of courses: 1 of 1, such as '1': courses.references['course.room']: it refers to a row that rooms does not have\n    → slotsync explain courses '1' shows one of them.",
  );
  await world.sql`UPDATE courses SET room = (SELECT code FROM rooms)`;
});

it('check proposes a role that may read the tables of lookups', async () => {
  await world.sql`CREATE TABLE "Room kinds" (code text, label text)`;
  await world.configure(
    CONFIGURATION.replace(
      '  streams: {',
      "  lookups: { kind: { from: '\"Room kinds\"', key: 'code', value: 'label' } },\n  streams: {",
    ).replace("'room.name': 'name'", "'room.name': { column: 'name', lookup: 'kind', otherwise: 'keep' }"),
  );
  expect(await world.read('check')).toMatch(/GRANT SELECT ON .*"Room kinds".* TO slotsync_mirror/);
});

it('check names where it has looked for a missing setting or configuration, and what writes it', async () => {
  const unset = { MIRROR_DATABASE_URL: undefined, API_KEY: undefined };
  const file = path.join(await realpath(world.folder), '.env');
  await commandsOf(world, unset).refuses('check', `or in ${file} (there is no such file); `);
  const named = await world.run(['check', '--settings', 'sync.config.ts'], unset);
  expect(named.stderr).not.toContain('there is no such file');
  const configuration = await world.run(['check', '--config', 'nowhere.ts']);
  expect(configuration).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('→ Create one with slotsync init'),
  });
});

it('check looks up the fields of reservations at the service', async () => {
  await world.sql`CREATE TABLE bookings (id int PRIMARY KEY, begins timestamptz, ends timestamptz, title text)`;
  const reservations = `reservations: {
    from: 'bookings', key: 'id', externalId: 'res_{id}', begin: 'begins', end: 'ends', fields: { 'room.nmae': 'titel' } }`;
  const configure = (text: string) =>
    world.configure(CONFIGURATION.replace('  streams: {', `  ${text},\n  streams: {`));
  await configure(reservations);
  await world.ends(
    'check',
    2,
    "reservations: fields['room.nmae']: there is no column titel; did you mean title?",
  );
  await configure(reservations.replace('titel', 'title'));
  await world.ends(
    'check',
    0,
    "! types and fields: the service knows no field 'room.nmae' (reservations.fields); did you mean 'room.name'?",
  );
  await configure(reservations.replace('titel', 'title').replace('nmae', 'name'));
  expect(await world.read('check')).not.toContain('types and fields: the service knows no');
});
