// Guarantees 2, 6
// `service.externalIds`: ids that the service treats as equal are equal in rows, in the state, in finds and in answers.
import { expect, it } from 'vitest';
import { keyOf, keySql, type ExternalIdRule } from '../../src/streams/external-id-rule.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import type { SandboxOptions } from '../../src/sandbox/sandbox.js';
import { keepRooms, rooms, roomsAndCourses, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

const comparing = (externalIds: ExternalIdRule, config: SlotsyncConfig = rooms()): SlotsyncConfig => ({
  ...config,
  service: { ...config.service, externalIds },
});
const CASE = { case: 'insensitive' } as const;
const messagesOf = async (world: RoomWorld, stream = 'rooms') =>
  Object.fromEntries(
    Object.values(await world.recordsOf(stream)).map(({ local_key, status, error_message }) => [
      local_key,
      error_message ?? status,
    ]),
  );

it('the compared form of an external id is the same in SQL and in the program', async () => {
  const world = await open(rooms());
  const ids = [' Room_A1\t', 'ÅÄÖ', 'A\u030a\u0323', 'ΟΔΟΣ', 'İI', 'ß ẞ', 'ab  cd', "it's \\", '😀X'];
  const rules: ExternalIdRule[] = [
    CASE,
    { trim: true },
    { normalize: 'NFC' },
    { maxLength: 3 },
    { ...CASE, trim: true, normalize: 'NFC', maxLength: 4 },
  ];
  for (const rule of rules) {
    const rows = await world.sql.unsafe<{ id: string; key: string }[]>(
      `SELECT id, ${keySql(rule, 'id COLLATE "C"')} AS key FROM unnest($1::text[]) AS id`,
      [ids],
    );
    for (const { id, key } of rows) expect(key, JSON.stringify([rule, id])).toBe(keyOf(rule, id));
  }
});

const WAYS: [NonNullable<SandboxOptions['externalIds']>, ExternalIdRule, string, string][] = [
  ['ignore-case', CASE, 'A1', 'a1'],
  ['lower-case', CASE, 'A1', 'a1'],
  ['trim', { trim: true }, 'A', 'A '],
  ['normalize', { normalize: 'NFC' }, '\u00c5', 'A\u030a'],
  ['cut', { maxLength: 12 }, 'long-name-1', 'long-name-2'],
];

it.each(WAYS)(
  'external ids fail rows with equal ids at a service with the rule %s, else another spelling keeps its object',
  async (externalIds, rule, one, other) => {
    const config = comparing(rule, rooms({ retire: 'deactivate' }));
    const world = await open(config, { sandbox: { externalIds }, synced: [one, other, 'B'] });
    const shared = keyOf(rule, `room_${one}`);
    expect(await messagesOf(world)).toEqual({
      [one]: `external id '${shared}' is also that of ${other}`,
      [other]: `external id '${shared}' is also that of ${one}`,
      B: 'synced',
    });
    expect(world.sandbox.objects()).toHaveLength(1);

    await world.remove(other);
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ [one]: 'synced', B: 'synced' });
    await world.expectNothingToSend();
    await world.sql`UPDATE rooms SET code = ${other}, name = 'anew' WHERE code = ${one}`;
    await world.sync();
    await world.sync();
    expect(await world.statusesOf('rooms')).toEqual({ [other]: 'synced', B: 'synced' });
    expect(world.sandbox.objects()).toMatchObject([{ active: true }, { active: true }]);
    expect(world.sandbox.objects().map(({ fields }) => fields[0]?.values)).toContainEqual(['anew']);
    await world.passHour();
    expect(await world.verify()).toMatchObject({ drifting: 0 });
    await world.expectNothingToSend();
  },
);

it('an external id is written as its row spells it, and kept as the service spells it', async () => {
  const world = await open(comparing(CASE), { sandbox: { externalIds: 'ignore-case' } });
  const fields = [{ fieldId: 'room.name', values: ['by hand'] }];
  world.sandbox.addObject({ extId: 'ROOM_a1', typeId: 'room', fields });
  await world.addRooms('A1', 'B2');
  await world.sync();
  expect(world.ids()).toEqual(['ROOM_a1', 'room_B2']);
  expect(world.nameOf('A1')).toBe('Room A1');
  await world.sql`DELETE FROM rooms`;
  await world.sync();
  expect(world.ids()).toEqual(['ROOM_a1', 'room_B2']);
});

it('a reference to an object of another spelling is no difference', async () => {
  const world = await open(comparing(CASE, roomsAndCourses()), { sandbox: { externalIds: 'ignore-case' } });
  world.sandbox.addObject({ extId: 'ROOM_a1', typeId: 'room' });
  await world.addRooms('A1');
  await world.sql`INSERT INTO courses VALUES ('C', 'Course', 'A1')`;
  await world.sync();
  world.edit('course_C', { 'course.room': 'ROOM_a1' });
  await world.passHour();
  expect(await world.verify()).toMatchObject({ drifting: 0 });
  await world.sql`UPDATE slotsync.records SET in_doubt = true`;
  await world.expectNothingToSend();
});

it('a reference in a list is added once in any spelling, and removed with its row', async () => {
  const references = { 'course.room': { stream: 'rooms', key: 'list', add: true } };
  const config = comparing(CASE, roomsAndCourses({ references }));
  const world = await open(config, { sandbox: { externalIds: 'ignore-case' } });
  await world.sql`ALTER TABLE courses ADD list text[]`;
  await world.addRooms('A1', 'B2');
  await world.sql`INSERT INTO courses VALUES ('C', 'Course', NULL, '{A1,B2}')`;
  await world.sync();
  const list = () =>
    world.sandbox.object('course_C')?.fields.find(({ fieldId }) => fieldId === 'course.room')?.values;
  const values = ['ROOM_a1', 'room_X', 'room_B2'];
  world.sandbox.changeObject('course_C', { fields: [{ fieldId: 'course.room', values }] });
  await world.sql`UPDATE courses SET name = 'Renamed'`;
  await world.passHour();
  await world.sync();
  expect(list()).toEqual(values);
  await world.sql`UPDATE courses SET list = '{B2}'`;
  await world.passHour();
  await world.sync();
  expect(list()).toEqual(['room_X', 'room_B2']);
});

it('a setting externalIds that is added later retires no object by a former spelling', async () => {
  const config = comparing(CASE, rooms({ retire: 'deactivate' }));
  const world = await open(config, { sandbox: { externalIds: 'ignore-case' }, synced: ['A1', 'B', 'C'] });
  await world.sql`UPDATE slotsync.records SET external_id = 'room_' || local_key`;
  // The answer about the row with the other spelling was not accepted, and the row is gone.
  await world.sql`INSERT INTO slotsync.records (stream, local_key, external_id, status, in_doubt)
    VALUES ('rooms', 'a1', 'room_a1', 'failed', true)`;
  await world.sql`INSERT INTO slotsync.links (stream, local_key, external_id, linked_by) VALUES ('rooms', 'B', 'room_B', 'match')`;
  await world.sql`UPDATE slotsync.streams SET fingerprint = 'another'`;
  await world.rename('B', 'anew');
  for (let runs = 0; runs < 2; runs++) {
    await world.sync();
    await world.drainInbox();
  }
  expect(await world.statusesOf('rooms')).toEqual({ A1: 'synced', B: 'synced', C: 'synced' });
  const ids = Object.values(await world.recordsOf('rooms')).map(({ external_id }) => external_id);
  expect(ids).toEqual(['room_a1', 'room_b', 'room_c']);
  expect(world.sandbox.objects()).toMatchObject([{ active: true }, { active: true }, { active: true }]);
  expect(world.ids()).toEqual(['room_A1', 'room_B', 'room_C']);
  expect(world.nameOf('B')).toBe('anew');
  await world.expectNothingToSend();
});

it('a setting externalIds that is added later keeps one of the links that become equal', async () => {
  const world = await open(comparing(CASE), {
    sandbox: { externalIds: 'ignore-case' },
    synced: ['A', 'B', 'C'],
  });
  await world.sql`INSERT INTO slotsync.links (stream, local_key, external_id, linked_by, linked_at) VALUES
    ('rooms', 'A', 'ROOM_a', 'match', now()), ('rooms', 'B', 'Room_A', 'match', now() - interval '1 day')`;
  await world.sql`UPDATE slotsync.streams SET fingerprint = 'another'`;
  await world.rename('C', 'anew');
  const { errors } = await world.sync();
  expect(errors).toEqual([]);
  expect(await world.sql`SELECT local_key, external_id FROM slotsync.links ORDER BY 1`).toMatchObject([
    { local_key: 'A', external_id: 'room_a' },
    { local_key: 'B', external_id: 'Room_A' },
  ]);
  expect(world.nameOf('C')).toBe('anew');
  expect(await messagesOf(world)).toMatchObject({ A: 'synced', C: 'synced' });
});
