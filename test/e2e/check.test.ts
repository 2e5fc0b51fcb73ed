// `check` as an operator calls it: its only write, rows that cannot be sent, and missing settings.
import { realpath } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startSandbox } from '../../src/sandbox/sandbox.js';
import { CONFIGURATION, rehearse, SCHEMA, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 1, sandbox: { rate: 0, assignsExternalIds: true } });
});
afterAll(() => world.close());

describe('check --write-probe', () => {
  it('writes the one object that it names, and a plain check writes nothing', async () => {
    const { id } = world.sandbox.addObject({
      typeId: 'room',
      fields: [{ fieldId: 'room.name', values: ['Aula'] }],
    });
    const plain = await world.run(['check']);
    expect([plain.code, world.puts()]).toEqual([0, []]);
    expect(plain.stdout).toMatch(
      /\d+ hold, 0 do not hold, \d+ not tested yet, .*\. Next: slotsync check --write-probe <number>, or what would be sent: slotsync plan$/m,
    );
    const probe = ['check', '--write-probe', String(id), '--external-id', 'room_X'];
    const asked = await world.run(probe);
    expect([asked.code, world.puts()]).toEqual([2, []]);
    expect(asked.stdout).toContain(
      `✗ write probe: object ${id} (without an external id, type room) would be written as it is, once without room.name, and as it was`,
    );
    const { code, stdout } = await world.run([...probe, '--yes']);
    expect(code).toBe(0);
    expect(stdout).toContain('✓ assumed: replace');
    expect(stdout).toContain(`✓ assumed: write: object ${id}: written back as it was read`);
    expect(stdout).toContain(
      `✓ assumed: assign-external-ids: object ${id}: it has the external id room_X now`,
    );
    expect(world.puts()).toHaveLength(3);
    expect((await world.run(['actions'])).stdout).toContain(`tested writing with object ${id}`);
    expect((await world.run(['check'])).stdout).toMatch(/\. Next, what would be sent: slotsync plan$/m);
  });

  it.each([
    [['--write-probe'], 'argument missing'],
    [['--external-id', 'room_X'], 'is used only with --write-probe <number>'],
  ])('is refused before any request: %j', async (args, message) => {
    world.sandbox.clearArrivals();
    const { code, stderr } = await world.run(['check', ...args]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    expect(world.sandbox.arrivals()).toEqual([]);
  });

  it('writes nothing to a service that the state is not bound to', async () => {
    expect((await world.run(['sync'])).code).toBe(0);
    const other = await startSandbox({ rate: 0, schema: SCHEMA });
    try {
      const { id } = other.addObject({ typeId: 'room' });
      const { code, stdout } = await world.run(['check', '--write-probe', String(id)], {
        API_BASE_URL: other.url,
      });
      expect([code, stdout]).toEqual([
        2,
        expect.stringMatching(/✗ state: .*|✗ write probe: nothing is written/),
      ]);
      expect(other.arrivals().filter(({ method }) => method === 'PUT')).toEqual([]);
    } finally {
      await other.close();
    }
  });
});

it('check --rows ends with exit code 1 if a row cannot be sent', async () => {
  expect((await world.run(['check', '--rows'])).stdout).toContain('✓ rows of courses: 1 can be sent');
  await world.sql`UPDATE courses SET room = 'R99'`;
  const { code, stdout } = await world.run(['check', '--rows']);
  await world.sql`UPDATE courses SET room = (SELECT code FROM rooms)`;
  expect(stdout).toContain(
    "✗ rows of courses: 1 of 1, such as '1': courses.references['course.room']: it refers to a row that rooms does not have\n    → slotsync explain courses '1' shows one of them.",
  );
  expect(code).toBe(1);
});

it('check proposes a role that may read the tables of lookups', async () => {
  await world.sql`CREATE TABLE "Room kinds" (code text, label text)`;
  await world.configure(
    CONFIGURATION.replace(
      '  streams: {',
      "  lookups: { kind: { from: '\"Room kinds\"', key: 'code', value: 'label' } },\n  streams: {",
    ).replace("'room.name': 'name'", "'room.name': { column: 'name', lookup: 'kind', otherwise: 'keep' }"),
  );
  expect((await world.run(['check'])).stdout).toMatch(/GRANT SELECT ON .*"Room kinds".* TO slotsync_mirror/);
});

it('check names where it has looked for a missing setting or configuration, and what writes it', async () => {
  const unset = { MIRROR_DATABASE_URL: undefined, API_KEY: undefined };
  const settings = await world.run(['check'], unset);
  expect(settings.code).toBe(2);
  expect(settings.stderr).toContain(
    `or in ${path.join(await realpath(world.folder), '.env')} (there is no such file); `,
  );
  const named = await world.run(['check', '--settings', 'sync.config.ts'], unset);
  expect(named.stderr).not.toContain('there is no such file');
  const configuration = await world.run(['check', '--config', 'nowhere.ts']);
  expect(configuration.code).toBe(2);
  expect(configuration.stderr).toContain('→ Create one with slotsync init');
});

it('check looks up the fields of reservations at the service', async () => {
  await world.sql`CREATE TABLE bookings (id int PRIMARY KEY, begins timestamptz, ends timestamptz, title text)`;
  const reservations = `reservations: {
    from: 'bookings', key: 'id', externalId: 'res_{id}', begin: 'begins', end: 'ends', fields: { 'room.nmae': 'titel' } }`;
  const configure = (text: string) =>
    world.configure(CONFIGURATION.replace('  streams: {', `  ${text},\n  streams: {`));
  await configure(reservations);
  const column = await world.run(['check']);
  expect(column.code).toBe(2);
  expect(column.stdout).toContain(
    "reservations: fields['room.nmae']: there is no column titel; did you mean title?",
  );
  await configure(reservations.replace('titel', 'title'));
  const { code, stdout } = await world.run(['check']);
  expect(code).toBe(0);
  expect(stdout).toContain(
    "! types and fields: the service knows no field 'room.nmae' (reservations.fields); did you mean 'room.name'?",
  );
  await configure(reservations.replace('titel', 'title').replace('nmae', 'name'));
  expect((await world.run(['check'])).stdout).not.toContain('types and fields: the service knows no');
});
