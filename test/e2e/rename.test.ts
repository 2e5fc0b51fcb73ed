// Codes are given anew: the objects, and what is booked on them, follow the rows.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

it('rename: the object follows its row, says so, and is refused where it is not clear', async () => {
  expect((await world.run(['sync'])).code).toBe(0);
  const { id } = world.sandbox.object('room_R1') ?? {};

  const early = await world.run(['rename', 'rooms', 'R1', 'R2']);
  expect(early).toMatchObject({ code: 2, stdout: '' });
  expect(early.stderr).toContain("the row of rooms 'R1' is still in the mirror, and so is that of 'R2'");
  const unknown = await world.run(['rename', 'halls', 'R1', 'R2']);
  expect(unknown.code).toBe(2);
  expect(unknown.stderr).toContain('halls');

  await world.sql`UPDATE rooms SET code = 'N-1', name = 'Sal N1' WHERE code = 'R1'`;
  await world.sql`UPDATE courses SET room = 'N-1' WHERE room = 'R1'`;
  const { stdout } = await world.run(['plan', 'rooms']);
  expect(stdout).not.toContain('slotsync rename'); // its name is another one
  await world.sql`UPDATE rooms SET name = 'Sal 1' WHERE code = 'N-1'`;
  const same = await world.run(['plan', 'rooms']);
  expect(same.stdout).toContain(
    "rooms 'R1' is gone, and 'N-1' is new with the same values. To let the object follow the row, with its bookings: slotsync rename rooms R1 N-1\n",
  );
  await world.sql`UPDATE rooms SET name = 'Sal N1' WHERE code = 'N-1'`;
  const renamed = await world.run(['rename', 'rooms', 'R1', 'N-1']);
  expect(renamed).toMatchObject({ code: 0, stderr: '' });
  expect(renamed.stdout).toBe(
    [
      "The object 'room_R1' belongs to rooms 'N-1' now, with its bookings, and no longer to 'R1'.",
      "The record is linked to it: its template would give 'room_N-1'.",
      'The next run sends what differs: slotsync sync rooms',
      '',
    ].join('\n'),
  );
  expect((await world.run(['sync'])).code).toBe(0);
  expect(world.sandbox.object('room_R1')).toMatchObject({ id, active: true });
  expect(world.sandbox.object('room_R1')?.fields[0]?.values).toEqual(['Sal N1']);
  expect(world.sandbox.object('room_N-1')).toBeUndefined();
  expect(world.sandbox.object('course_1')?.fields).toContainEqual({
    fieldId: 'course.room',
    values: ['room_R1'],
  });

  const again = await world.run(['rename', 'rooms', 'R1', 'N-1', '--json']);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain("rooms 'R1' has no object");
});

it('rename: parts of a composite key are written as one text, as failures prints them', async () => {
  await world.sql`CREATE TABLE halls (house text, "no ""1""" text, name text, PRIMARY KEY (house, "no ""1"""))`;
  await world.sql`INSERT INTO halls VALUES ('A|B', '1', 'one'), ('C', '1', 'two')`;
  await writeFile(
    path.join(world.folder, 'sync.config.ts'),
    `export default { streams: { halls: { from: 'halls', key: ['house', 'no "1"'], type: 'room',
      externalId: 'hall_{house}_{no "1"}', fields: { 'room.name': 'name' } } } };`,
  );
  expect((await world.run(['sync'])).code).toBe(0);
  await world.sql`UPDATE halls SET house = 'D' WHERE house = 'A|B'`;
  const { code, stdout } = await world.run(['rename', 'halls', 'A\\|B|1', 'D|1', '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toEqual({
    stream: 'halls',
    from: 'A\\|B|1',
    to: 'D|1',
    externalId: 'hall_A|B_1',
    isLinked: true,
    former: null,
    next: 'slotsync sync halls',
  });
  expect((await world.run(['sync'])).code).toBe(0);
  expect(world.sandbox.objects().map(({ extId }) => extId)).toEqual(['hall_A|B_1', 'hall_C_1']);
});

it('rename: a run that has seen the new key already is undone, and the object made for it is deactivated', async () => {
  expect((await world.run(['sync'])).code).toBe(0);
  const { id } = world.sandbox.object('room_R1') ?? {};
  await world.sql`UPDATE rooms SET code = 'N-1' WHERE code = 'R1'`;
  await world.sql`UPDATE courses SET room = 'N-1' WHERE room = 'R1'`;
  expect((await world.run(['sync'])).code).toBe(0);
  expect(world.sandbox.object('room_R1')).toMatchObject({ active: false });
  expect((await world.run(['failures', 'rooms'])).stdout).toContain(
    "rooms 'R1' is gone, and 'N-1' is new with the same values. To let the object follow the row, with its bookings: slotsync rename rooms R1 N-1\n",
  );
  for (const options of [['--json'], ['--all', '--json']])
    expect(JSON.parse((await world.run(['failures', ...options])).stdout)).toMatchObject({
      total: 0,
      renamed: [{ stream: 'rooms', from: 'R1', to: 'N-1' }],
    });

  const renamed = await world.run(['rename', 'rooms', 'R1', 'N-1']);
  expect(renamed).toMatchObject({ code: 0, stderr: '' });
  expect(renamed.stdout).toContain(
    "The object 'room_N-1', which 'N-1' had until now, has no row any more: the next run deactivates it, within the limits.",
  );
  expect((await world.run(['sync'])).code).toBe(0);
  expect(world.sandbox.object('room_R1')).toMatchObject({ id, active: true });
  expect(world.sandbox.object('room_N-1')).toMatchObject({ active: false });
  expect(world.sandbox.object('course_1')?.fields).toContainEqual({
    fieldId: 'course.room',
    values: ['room_R1'],
  });
});
