// Guarantee 10
// A key, an external id or the service's number leads an operator to the record, and to the command that corrects it.
import { expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });
const explain = (...args: string[]) => world.read(['explain', ...args]);

it('explain finds a record by external id or number, or else the object without a record', async () => {
  await world.read('sync');
  const { id } = world.sandbox.object('room_R2') ?? {};
  const byKey = await explain('rooms', 'R2');
  expect(byKey).toContain(`Object: number ${id}, active`);
  for (const name of ['room_R2', `#${id}`, String(id)]) expect(await explain('rooms', name)).toBe(byKey);

  await world.sql`INSERT INTO rooms VALUES ('R9', 'Sal 9', 9)`;
  expect(await explain('rooms', 'room_R9')).toMatch(/Record: none: never sent[^]*code: "R9"/);

  const fields = [{ fieldId: 'room.name', values: ['Aula'] }];
  const made = world.sandbox.putObject({ extId: 'by_hand', typeId: 'room', fields });
  for (const name of ['by_hand', `#${made.id}`])
    await world.ends(
      `explain rooms ${name}`,
      0,
      `Object: number ${made.id}, external id by_hand, type room, active\nroom.name: "Aula"`,
      'No row or record of rooms owns this object.\nNext: to link a row to it: slotsync match rooms',
    );

  // A text that is both a key and a number is taken for the key.
  const { id: number = 0 } = world.sandbox.object('course_1') ?? {};
  await world.sql`INSERT INTO courses VALUES (${number}, 'Another', 'R1')`;
  expect(await explain('courses', String(number))).toContain('name: "Another"');
  expect(await explain('courses', `#${number}`)).toContain('name: "Kurs 1"');
});

it('explain takes a composite key by its parts, or joined as failures shows the key', async () => {
  await world.configure(CONFIGURATION.replace("key: 'id'", "key: ['id', 'room']"));
  await world.read('sync');
  const joined = await explain('courses', '2|R2');
  expect(joined).toContain('name: "Kurs 2"');
  expect(await explain('courses', '2', 'R2')).toBe(joined);
  await world.refuses(
    'explain courses 2 R2 x',
    'a key of courses has 2 parts, not 3',
    '→ Name one value for each of: id, room.',
  );
});

it('explain shows columns that the mapping does not read only with --all', async () => {
  await world.sql`ALTER TABLE rooms ADD phone text DEFAULT '0701234567'`;
  const text = await explain('rooms', 'R1');
  expect(text).toMatch(/^code: "R1"\nname: "Sal 1"\nseats: 1\n/m);
  expect(text).toMatch(/To show all columns: slotsync explain rooms R1 --all$/m);
  expect(text + (await explain('rooms', 'R1', '--json'))).not.toContain('0701234567');
  expect(await explain('rooms', 'R1', '--all')).toContain('phone: "0701234567"');
});

it('explain reports a key that repeats, as the failed run does', async () => {
  await world.configure(CONFIGURATION.replace("key: 'id'", "key: 'room'"));
  await world.sql`INSERT INTO courses VALUES (9, 'Another', 'R1')`;
  const fault = "the key is not unique: 1 row repeats a key, such as 'R1'";
  await world.ends('sync courses', 1, fault);
  const next = `Next: ${fault}. Correct \`key\` in the configuration, or the source`;
  expect(await explain('courses', 'R1')).toContain(next);
});

it('explain reports a changed object at the service, with the command that repairs it', async () => {
  await world.read('sync');
  const fields = [{ fieldId: 'room.name', values: ['By hand'] }];
  world.sandbox.putObject({ extId: 'room_R1', typeId: 'room', fields });
  const changed = await explain('rooms', 'R1');
  expect(changed).toContain('room.name: "By hand" → "Sal 1"');
  expect(changed).toMatch(/^Next: the object was changed at the service; .*slotsync verify rooms --repair\n/);

  await world.sql`
    INSERT INTO slotsync.drift (stream, local_key, external_id, kind, fields, seen_at)
    VALUES ('rooms', 'R1', 'room_R1', 'changed',
      ${world.sql.json({ 'room.name': { here: ['Sal 1'], there: ['By hand'] } })}, '2026-11-01T05:00:00Z')`;
  expect(await explain('rooms', 'R1')).toContain(
    '    room.name: "By hand" at the service, "Sal 1" expected\n    → To repair it: slotsync verify rooms --repair',
  );
});

it('explain looks up the object of a row that waits or cannot be mapped', async () => {
  const { id } = world.sandbox.putObject({ extId: 'course_1', typeId: 'course', fields: [] });
  const waiting = await explain('courses', '1');
  expect(waiting).toContain("None: course.room refers to rooms 'R1', which is not at the service");
  expect(waiting).toContain(`Object: number ${id}, active`);
  expect(waiting).toMatch(
    /^Next: a run sends the record when the record that it refers to is accepted: slotsync sync\n/,
  );
  await world.configure(
    CONFIGURATION.replace("'room.name': 'name'", "'room.name': (row) => { throw new Error('no'); }"),
  );
  expect(await explain('rooms', 'R2')).toContain('No object has the external id room_R2');
});

it('explain shows how a link was made, and how to undo it', async () => {
  await world.sql`
    INSERT INTO slotsync.links (stream, local_key, external_id, linked_by, fields, linked_at)
    VALUES ('rooms', 'R3', 'old_room', 'match', '{room.name}', '2026-11-01T05:00:00Z')`;
  const text = await explain('rooms', 'old_room');
  expect(text).toContain('Object: old_room, type room');
  expect(text).toContain(
    'Link: to old_room, by a match of room.name, 2026-11-01 05:00:00 UTC\nTo undo the link: slotsync match --unlink rooms R3',
  );
});

it('explain calls a record that was found equal synced, and the run says that it needed no write', async () => {
  const fields = [
    { fieldId: 'room.name', values: ['Sal 2'] },
    { fieldId: 'room.seats', values: ['2'] },
  ];
  world.sandbox.putObject({ extId: 'room_R2', typeId: 'room', fields });
  await world.configure(CONFIGURATION.replace("owns: 'object'", "owns: 'fields'"));
  expect(await world.read('sync rooms')).toContain('1 record needed no write.');
  const record = /Record: synced, as room_R2, number \d+, found equal, never written,/;
  expect(await explain('rooms', 'R2')).toMatch(record);
});
