// Rows get new codes: their objects, with their bookings, follow the rows.
import { expect, it } from 'vitest';
import { rehearseEach } from '../support/rehearsals.js';

const world = rehearseEach({ rows: 3, sandbox: { rate: 0 } });

it('rename lets the object follow its row, and is refused while the old row exists', async () => {
  await world.read('sync');
  const { id } = world.sandbox.object('room_R1') ?? {};
  await world.refuses(
    'rename rooms R1 R2',
    "the row of rooms 'R1' is still in the mirror, and so is that of 'R2'",
  );
  await world.refuses('rename halls R1 R2', 'halls');

  await world.sql`UPDATE rooms SET code = 'N-1', name = 'Sal N1' WHERE code = 'R1'`;
  await world.sql`UPDATE courses SET room = 'N-1' WHERE room = 'R1'`;
  expect(await world.read('plan rooms')).not.toContain('slotsync rename'); // its name is another one
  await world.sql`UPDATE rooms SET name = 'Sal 1' WHERE code = 'N-1'`;
  expect(await world.read('plan rooms')).toContain(
    "rooms 'R1' was deleted, and 'N-1' is new with the same values. To keep the object and its bookings: slotsync rename rooms R1 N-1\n",
  );
  await world.sql`UPDATE rooms SET name = 'Sal N1' WHERE code = 'N-1'`;
  expect(await world.read('rename rooms R1 N-1')).toBe(
    [
      "The object 'room_R1' and its bookings now belong to rooms 'N-1' instead of 'R1'.",
      "The record is linked to it: its template would give 'room_N-1'.",
      'To send the differences: slotsync sync rooms',
      '',
    ].join('\n'),
  );
  await world.read('sync');
  expect(world.sandbox.object('room_R1')).toMatchObject({ id, active: true });
  expect(world.sandbox.object('room_R1')?.fields[0]?.values).toEqual(['Sal N1']);
  expect(world.sandbox.object('room_N-1')).toBeUndefined();
  expect(world.sandbox.object('course_1')?.fields).toContainEqual({
    fieldId: 'course.room',
    values: ['room_R1'],
  });
  await world.refuses('rename rooms R1 N-1', "rooms 'R1' has no object");
});
