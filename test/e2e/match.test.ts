// A service that has objects already: they are found, inspected, linked, and then kept by sync.
import { readFile, readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { rehearseEach, type Installation } from '../support/rehearsals.js';

/** The configuration of the rehearsal, with rooms matched by name, and permission to assign external ids. */
const CONFIGURATION = `
export default {
  streams: {
    courses: {
      from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}',
      fields: { 'course.name': 'name' },
      references: { 'course.room': { stream: 'rooms', key: 'room' } },
    },
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', batchSize: 100,
      fields: { 'room.name': 'name', 'room.seats': (row) => row.seats },
      limits: { overwrite: { count: 100, percent: 100 } },
    },
  },
  service: { assignExternalIds: true },
};
`;

const roomFields = (i: number, name = `Sal ${i}`, seats = i) => [
  { fieldId: 'room.name', values: [name] },
  { fieldId: 'room.seats', values: [String(seats)] },
];
const fileOf = ({ folder }: Installation) => path.join(folder, 'matches.csv');
const matched = async (world: Installation, options = '') =>
  JSON.parse(await world.read(`match rooms${options} --json`)) as {
    types: { streams: { counts: Record<string, number> }[] }[];
  };

describe('rooms made by hand at the service', () => {
  const ROWS = 480;
  const BY_HAND = 40;

  const world = rehearseEach({ rows: ROWS, sandbox: { rate: 0, assignsExternalIds: true } });
  beforeEach(async () => {
    await world.configure(CONFIGURATION);
    for (let i = 1; i <= ROWS - BY_HAND; i++)
      world.sandbox.putObject({ extId: `room_R${i}`, typeId: 'room', fields: roomFields(i) });
    for (let i = ROWS - BY_HAND + 1; i <= ROWS; i++)
      world.sandbox.addObject({
        extId: i % 2 ? null : `hand_${i}`,
        typeId: 'room',
        fields: roomFields(i, `Sal ${i}`, 1),
      });
  });

  it('are found by name and linked by match, and sync creates no second object for them', async () => {
    const { types } = await matched(world, ' --by room.name --out matches.csv');
    expect(types).toMatchObject([
      {
        objects: ROWS,
        streams: [{ rows: ROWS, counts: { equal: 440, differs: 0, match: 40, ambiguous: 0, only_here: 0 } }],
        nobodys: { only_there: 0, without_id: 0 },
      },
    ]);
    expect(world.puts()).toHaveLength(0);
    const found = (await readFile(fileOf(world), 'utf8')).trim().split('\n');
    expect(found).toHaveLength(1 + BY_HAND);
    expect(found[1]).toMatch(/^match,rooms,R441,,\d+,Sal 441,Sal 441,room.seats,$/);

    await world.ends('match --apply matches.csv', 0, '40 rows linked.');
    expect(await matched(world)).toMatchObject({
      types: [{ streams: [{ counts: { equal: 440, differs: 40, only_here: 0 } }] }],
    });

    expect(await world.run(['sync', 'rooms'])).toMatchObject({ code: 0, stderr: '' });
    expect([...world.sandbox.objects(), ...world.sandbox.unnamedObjects()]).toHaveLength(ROWS);
    expect(world.sandbox.object('hand_480')?.fields).toEqual(roomFields(480));
    expect(world.sandbox.object('room_R479')?.fields).toEqual(roomFields(479));
    expect(await matched(world)).toMatchObject({ types: [{ streams: [{ counts: { equal: ROWS } }] }] });

    // Applied a second time, the file changes nothing.
    expect(await world.json('match --apply matches.csv --json')).toMatchObject({
      linked: [],
      already: BY_HAND,
    });
  });
});

describe('the command match', () => {
  const world = rehearseEach({ rows: 6, sandbox: { rate: 0, assignsExternalIds: true } });
  beforeEach(() => world.configure(CONFIGURATION));

  it('keeps the object of a record with another external id, by the command that failures prints', async () => {
    await world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}'));
    await world.read('sync rooms');
    await world.sql`UPDATE rooms SET seats = 77 WHERE code = 'R2'`;
    await world.ends('sync rooms', 1);
    const [command = ''] = /match --link rooms \S+(?=\.)/.exec(await world.read('failures')) ?? [];
    await world.ends(command, 0, '1 row linked.');
    await world.read('sync rooms');
    expect(world.sandbox.objects()).toHaveLength(6);
    expect(world.sandbox.object('room_2')?.fields).toEqual(roomFields(2, 'Sal 2', 77));
  });

  it('keeps a former file when the service refuses the search', async () => {
    await writeFile(fileOf(world), 'edited by hand');
    world.sandbox.failNext({ path: '/objects/find', fault: 'status', status: 400, times: 'always' });
    const { code, stderr } = await world.start(['match', 'rooms', '--out', 'matches.csv']).finished;
    expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining('answered 400') });
    expect(await readFile(fileOf(world), 'utf8')).toBe('edited by hand');
    expect((await readdir(world.folder)).join(' ')).not.toContain('unfinished');
  });

  it('says how rows were matched, and what to do about the others', async () => {
    for (const extId of ['room_R1', 'by_hand'])
      world.sandbox.addObject({ extId, typeId: 'room', fields: roomFields(1) });
    const { stdout } = await world.run(['match', 'rooms']);
    expect(stdout).toContain('rooms: 6 rows in the mirror, matched by external id\n');
    expect(stdout).toContain('slotsync match rooms --by <field,…>');
    const by = await world.run(['match', 'rooms', '--by', 'room.name']);
    expect(by.stdout).toContain('rooms: 6 rows in the mirror, matched by external id, then by room.name\n');
  });

  it('prints samples in full length', async () => {
    await world.sql`UPDATE rooms SET name = repeat('long ', 7) || code, seats = seats + 1000000`;
    const names = await world.sql<{ code: string; name: string }[]>`SELECT code, name FROM rooms`;
    for (const { code, name } of names)
      world.sandbox.addObject({
        extId: code < 'R4' ? `room_${code}` : null,
        typeId: 'room',
        fields: [{ fieldId: 'room.name', values: [name] }],
      });
    await world.ends(
      'match rooms --by room.name',
      0,
      'match        3  one object has the same room.name',
      'slotsync match rooms --by room.name --out matches.csv',
      "match: rooms 'R4' – object 1004  (long long long long long long long R4)  differs: room.seats",
    );
  });
});
