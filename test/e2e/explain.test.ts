// Guarantee 10
// A key, an external id or the service's number leads an operator to the record, and to the command that corrects it.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

async function explain(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await world.run(['explain', ...args]);
  expect([code, stderr]).toEqual([0, '']);
  return stdout;
}

it('explain finds a record by external id or number, or else the object without a record', async () => {
  await world.run(['sync']);
  const { id } = world.sandbox.object('room_R2') ?? {};
  const byKey = await explain('rooms', 'R2');
  expect(byKey).toContain(`Object: number ${id}, active`);
  for (const name of ['room_R2', `#${id}`, String(id)]) expect(await explain('rooms', name)).toBe(byKey);

  await world.sql`INSERT INTO rooms VALUES ('R9', 'Sal 9', 9)`;
  expect(await explain('rooms', 'room_R9')).toMatch(/Record: none: never sent[^]*code: "R9"/);

  const made = world.sandbox.putObject({
    extId: 'by_hand',
    typeId: 'room',
    fields: [{ fieldId: 'room.name', values: ['Aula'] }],
  });
  for (const name of ['by_hand', `#${made.id}`]) {
    const text = await explain('rooms', name);
    expect(text).toContain(
      `Object: number ${made.id}, external id by_hand, type room, active\nroom.name: "Aula"`,
    );
    expect(text).toContain(
      'No row or record of rooms owns this object.\nNext: to link a row to it: slotsync match rooms',
    );
  }
  const unknown = await world.run(['explain', 'rooms', 'nothing']);
  expect(unknown.code).toBe(1);
  expect(unknown.stderr).toContain("no object the external id or number, 'nothing'");
});

it('explain takes a text that is both a key and a number for the key', async () => {
  await world.sql`DELETE FROM courses WHERE id > 1`;
  await world.run(['sync']);
  const { id } = world.sandbox.object('course_1') ?? {};
  await world.sql`INSERT INTO courses VALUES (${id ?? 0}, 'Another', 'R1')`;
  expect(await explain('courses', String(id))).toContain('name: "Another"');
  expect(await explain('courses', `#${id}`)).toContain('name: "Kurs 1"');
});

it('explain takes a composite key by its parts, or joined as failures shows the key', async () => {
  await world.configure(CONFIGURATION.replace("key: 'id'", "key: ['id', 'room']"));
  await world.run(['sync']);
  const joined = await explain('courses', '2|R2');
  expect(joined).toContain('name: "Kurs 2"');
  expect(await explain('courses', '2', 'R2')).toBe(joined);
  const wrong = await world.run(['explain', 'courses', '2', 'R2', 'x']);
  expect(wrong.code).toBe(2);
  expect(wrong.stderr).toContain('a key of courses has 2 parts, not 3');
  expect(wrong.stderr).toContain('→ Name one value for each of: id, room.');
});

it('explain shows columns that the mapping does not read only with --all', async () => {
  await world.sql`ALTER TABLE rooms ADD phone text DEFAULT '0701234567'`;
  const text = await explain('rooms', 'R1');
  expect(text).toMatch(/^code: "R1"\nname: "Sal 1"\nseats: 1\n/m);
  expect(text).not.toContain('0701234567');
  expect(text).toMatch(/To show all columns: slotsync explain rooms R1 --all$/m);
  expect(await explain('rooms', 'R1', '--json')).not.toContain('0701234567');
  expect(await explain('rooms', 'R1', '--all')).toContain('phone: "0701234567"');
});

it('explain reports a key that repeats, as the failed run does', async () => {
  await world.configure(CONFIGURATION.replace("key: 'id'", "key: 'room'"));
  await world.sql`INSERT INTO courses VALUES (9, 'Another', 'R1')`;
  const fault = "the key is not unique: 1 row repeats a key, such as 'R1'";
  expect((await world.run(['sync', 'courses'])).stdout).toContain(fault);
  const text = await explain('courses', 'R1');
  expect(text).toContain(`Next: ${fault}. Correct \`key\` in the configuration, or the source`);
});

it('explain reports a changed object at the service, with the command that repairs it', async () => {
  await world.run(['sync']);
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
  const standing = { extId: 'course_1', typeId: 'course', fields: [] };
  const { id } = world.sandbox.putObject(standing);
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
  const { stdout } = await world.run(['sync', 'rooms']);
  expect(stdout).toContain('1 record needed no write.');
  expect(await explain('rooms', 'R2')).toMatch(
    /Record: synced, as room_R2, number \d+, found equal, never written,/,
  );
});

it('explain leads from a former external id to the record that had it', async () => {
  await world.configure(CONFIGURATION.replace('room_{code}', 'room_{seats}'));
  await world.run(['sync']);
  await world.sql`UPDATE rooms SET seats = 77 WHERE code = 'R1'`;
  await world.run(['sync']);
  await world.run(['retry', 'rooms', 'R1']);
  await world.run(['sync']);
  expect(await explain('rooms', 'room_1')).toMatch(/Former object room_1: number \d+, active/);
});
