// Guarantee 10
// A row that cannot be read, among changed keys: the plan leaves the row to its batch, which fails it alone.
import { expect, it } from 'vitest';
import { keepRooms, rooms, type Declaration } from '../support/steps.js';

const open = keepRooms();
const STRANGE = 'B\t\\é';

/** Opens rooms through a view that raises an error for rooms of which this column is `bad`. */
async function openView(changes: Partial<Declaration> = {}, raises: 'name' | 'number' = 'name') {
  const world = await open(rooms({ from: 'seen', ...changes }));
  const column = (name: string) => (name === raises ? `check_text(${name}) AS ${name}` : name);
  await world.sql.unsafe(`
    CREATE FUNCTION check_text(given text) RETURNS text LANGUAGE plpgsql STABLE AS $$
      BEGIN IF given = 'bad' THEN RAISE EXCEPTION 'bad'; END IF; RETURN given; END $$;
    CREATE VIEW seen AS SELECT code, ${column('name')}, seats, ${column('number')} FROM rooms`);
  return world;
}

it('an unreadable row fails alone; the changed keys beside it are sent, and nothing is retired', async () => {
  const world = await openView();
  const keys = ['A', STRANGE, 'C', 'D', 'Ä'];
  await world.addRooms(...keys);
  await world.sync();
  await world.sql`UPDATE rooms SET name = CASE WHEN code = ${STRANGE} THEN 'bad' ELSE 'new' END`;
  const { run, errors } = await world.send('rooms', ...keys, 'A');
  expect({ errors, status: run.status }).toEqual({ errors: [], status: 'partial' });
  expect(keys.map((key) => world.nameOf(key))).toEqual(['new', `Room ${STRANGE}`, 'new', 'new', 'new']);
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    [STRANGE]: { status: 'failed', error_code: 'mirror_raised' },
    Ä: { status: 'synced' },
  });
  await world.sql`UPDATE rooms SET name = 'good' WHERE code = ${STRANGE}`;
  await world.send('rooms', STRANGE);
  expect(world.nameOf(STRANGE)).toBe('good');
});

it('a row that is too large is given up alone, before its values are read, until it changes', async () => {
  const world = await open(rooms({ rowLimitMegabytes: 4 }));
  await world.addRooms('A', 'B', 'C');
  const mb = 1024 * 1024;
  await world.sql`UPDATE rooms SET number = repeat('x', ${5 * mb}::int) WHERE code = 'B'`;
  expect((await world.sync()).run.status).toBe('partial');
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'synced' },
    B: {
      status: 'dead',
      error_code: 'row_too_large',
      error_message: 'the row has 6 MB, more than the limit of 4 MB',
    },
    C: { status: 'synced' },
  });
  const { run } = await world.sync();
  expect(await world.sql`SELECT FROM slotsync.batches WHERE run_id = ${run.id}`).toHaveLength(0);
  await world.sql`UPDATE rooms SET number = repeat('x', ${3 * mb}::int) WHERE code = 'B'`;
  await world.sync();
  expect(await world.statusesOf('rooms')).toEqual({ A: 'synced', B: 'synced', C: 'synced' });
});

/** Rooms whose external ids do not follow from their keys. */
const BY_NUMBER = { externalId: 'room_{number}' };

it('a new unreadable row fails alone, even if its key does not make its external id', async () => {
  const world = await openView(BY_NUMBER);
  const { sql } = world;
  await sql`INSERT INTO rooms VALUES ('A', 'Room A', 1, '1')`;
  await world.sync();
  await sql`INSERT INTO rooms VALUES ('B', 'bad', 1, '2'), ('C', 'Room C', 1, '3')`;
  const { run, errors } = await world.send('rooms', 'B', 'C');
  expect({ errors, status: run.status }).toEqual({ errors: [], status: 'partial' });
  expect(await world.recordsOf('rooms')).toMatchObject({
    B: {
      status: 'failed',
      error_code: 'mirror_raised',
      error_message: 'the source raised an error (P0001): bad',
    },
    C: { status: 'synced' },
  });
  expect(await sql`SELECT FROM slotsync.changes`).toHaveLength(0);
});

it('an unreadable row that is pushed alone fails, and its run is not tried for ever', async () => {
  const world = await openView(BY_NUMBER);
  await world.sql`INSERT INTO rooms VALUES ('A', 'Room A', 1, '1')`;
  await world.sync();
  await world.renameAll('bad');
  const { run, errors } = await world.send('rooms', 'A');
  expect({ errors, status: run.status }).toEqual({ errors: [], status: 'partial' });
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'failed', error_code: 'mirror_raised' },
  });
  expect(await world.sql`SELECT FROM slotsync.changes`).toHaveLength(0);
});

it('an unreadable row that may have the external id of a gone row keeps only that object active', async () => {
  const world = await openView({ ...BY_NUMBER, retire: 'deactivate' }, 'number');
  const { sql } = world;
  await sql`INSERT INTO rooms VALUES ('A', 'Room A', 1, '1'), ('B', 'Room B', 1, '2')`;
  await world.sync();
  await sql`DELETE FROM rooms WHERE code = 'A'`;
  await sql`INSERT INTO rooms VALUES ('D', 'Room D', 1, '4')`;
  await world.rename('B', 'new');
  const { runId, queue } = await world.plan();
  await sql`INSERT INTO rooms VALUES ('C', 'Room C', 1, 'bad')`;
  const { run, errors } = await world.finish(runId, queue);
  expect({ errors, status: run.status }).toEqual({ errors: [], status: 'partial' });
  expect(await world.recordsOf('rooms')).toMatchObject({
    A: { status: 'failed', error_code: 'mirror_raised' },
    B: { status: 'synced' },
    D: { status: 'synced' },
  });
  expect(world.isActive('room_1')).toBe(true);
  expect(world.fieldsOf('room_2')?.['room.name']).toBe('new');
  await sql`DELETE FROM rooms WHERE code = 'C'`;
  await world.sync();
  expect(world.isActive('room_1')).toBe(false);
});
