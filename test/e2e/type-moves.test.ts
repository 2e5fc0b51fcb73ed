// A row moves to a stream of another type: the commands that are printed lead out of it.
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';

/** Halls have external ids like those of rooms. */
const WITH_HALLS = CONFIGURATION.replace(
  'streams: {',
  `streams: {
    halls: {
      from: 'halls', key: 'code', type: 'hall', externalId: 'room_{code}',
      fields: { 'hall.name': 'name' },
    },`,
);
const SCHEMA = {
  types: [{ extId: 'room' }, { extId: 'hall' }, { extId: 'course' }],
  fields: [
    { extId: 'room.name', type: 'room' },
    { extId: 'room.seats', type: 'room' },
    { extId: 'hall.name', type: 'hall' },
    { extId: 'course.name' },
    { extId: 'course.room' },
  ],
};

let world: Rehearsal;
beforeEach(async () => {
  world = await rehearse({ rows: 3, sandbox: { rate: 0, schema: SCHEMA, changeTypes: true } });
  await world.sql`CREATE TABLE halls (code text PRIMARY KEY, name text)`;
  await world.configure(WITH_HALLS);
  await world.run(['sync']);
  await world.sql`DELETE FROM rooms WHERE code = 'R1'`;
  await world.sql`INSERT INTO halls VALUES ('R1', 'Hall 1')`;
  await world.sql`DELETE FROM courses WHERE room = 'R1'`;
});
afterEach(() => world.close());

/** The retry that `failures` prints, as arguments. */
async function printedRetry(): Promise<string[]> {
  const { stdout } = await world.run(['failures']);
  expect(stdout).toContain("'room_R1' exists at the service as a room, not a hall; it is that of rooms 'R1'");
  expect(stdout).toContain('service.canChangeTypes');
  const [, retry = ''] = /slotsync (retry halls R1)/.exec(stdout) ?? [];
  return retry.split(' ');
}

it.each<[string, () => unknown]>([
  ['the former object was removed', () => world.sandbox.removeObject('room_R1')],
  [
    'it can be given the new type',
    () => world.configure(WITH_HALLS.replace('streams: {', 'service: { canChangeTypes: true }, streams: {')),
  ],
])('a row of another type: the printed retry leads out once %s', async (_, act) => {
  expect((await world.run(['sync'])).code).toBe(1);
  expect(world.sandbox.object('room_R1')).toMatchObject({ typeId: 'room', active: false });
  const retry = await printedRetry();
  await act();
  expect((await world.run(retry)).code).toBe(0);
  expect(await world.run(['sync'])).toMatchObject({ code: 0 });
  expect(world.sandbox.object('room_R1')).toMatchObject({ typeId: 'hall', active: true });
  expect((await world.run(['failures'])).stdout).toBe('Every record is in sync as it was last read.\n');
  expect((await world.run(['verify', '--extras'])).stdout).toContain('no drift');
});
