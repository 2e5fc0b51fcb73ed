// Guarantee 10
// A row that is larger than the memory of the process is not read, and the other rows are sent.
import { expect, it } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';

const world = rehearseOnce({ rows: 10, sandbox: { rate: 0 } });

const SMALL_HEAP = { NODE_OPTIONS: '--max-old-space-size=256' };
const MEGABYTES = 150;

it('a row of 150 MB does not stop a sync with a heap of 256 MB, and failures says why it was left out', async () => {
  await world.sql`UPDATE rooms SET name = repeat('x', ${MEGABYTES * 1024 * 1024}::int) WHERE code = 'R3'`;
  const { code, stdout } = await world.start(['sync'], SMALL_HEAP).finished;
  expect({ code, stdout }).toMatchObject({ code: 1, stdout: expect.stringContaining('partial') });
  // Course 3 waits for its room.
  expect(world.sandbox.objects()).toHaveLength(18);
  await world.ends(
    'failures rooms',
    0,
    "rooms 'R3': given up (row_too_large)",
    'the row has 151 MB, more than the limit of 16 MB',
  );
  await world.sql`UPDATE rooms SET name = 'Sal 3' WHERE code = 'R3'`;
  await world.read('sync');
  expect(world.sandbox.objects()).toHaveLength(20);
});

it('a booking of 150 MB is reported with its reason, and the other bookings are compared', async () => {
  await world.configure(`
import { defineConfig } from 'slotsync';
export default defineConfig({
  streams: { rooms: { from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', fields: {} } },
  reservations: { from: 'bookings', key: 'id', externalId: 'res_{id}', begin: 'begins', end: 'ends',
    objects: [{ stream: 'rooms', key: 'room' }] },
});`);
  await world.sql`CREATE TABLE bookings AS SELECT i AS id, date_trunc('hour', now()) + i * interval '1 hour' AS begins,
    date_trunc('hour', now()) + (i + 1) * interval '1 hour' AS ends, 'R1' AS room,
    CASE WHEN i = 2 THEN repeat('x', ${MEGABYTES * 1024 * 1024}::int) END AS note FROM generate_series(1, 3) AS i`;
  await world.read('sync');
  const { code, stdout } = await world.start(['reconcile'], SMALL_HEAP).finished;
  expect({ code, stdout }).toMatchObject({ code: 0, stdout: expect.stringContaining('missing_there') });
  const rows = await world.sql`SELECT key, verdict, problem FROM slotsync.reservations ORDER BY key`;
  expect(rows.map(({ key, verdict, problem }) => [key, verdict, problem])).toEqual([
    ['1', 'missing_there', null],
    ['2', 'missing_there', 'row_too_large'],
    ['3', 'missing_there', null],
  ]);
});
