// Rows get new codes: their objects, with their bookings, follow the rows.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0 } });
});
afterEach(() => world.close());

it('rename lets the object follow its row, and is refused while the old row exists', async () => {
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
    "rooms 'R1' was deleted, and 'N-1' is new with the same values. To keep the object and its bookings: slotsync rename rooms R1 N-1\n",
  );
  await world.sql`UPDATE rooms SET name = 'Sal N1' WHERE code = 'N-1'`;
  const renamed = await world.run(['rename', 'rooms', 'R1', 'N-1']);
  expect(renamed).toMatchObject({ code: 0, stderr: '' });
  expect(renamed.stdout).toBe(
    [
      "The object 'room_R1' and its bookings now belong to rooms 'N-1' instead of 'R1'.",
      "The record is linked to it: its template would give 'room_N-1'.",
      'To send the differences: slotsync sync rooms',
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
