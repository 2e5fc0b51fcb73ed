// Reconcile as an operator runs it: commands, messages and exit codes, and a worker that reconciles regularly.
import { beforeAll, describe, expect, it } from 'vitest';
import { CONFIGURATION } from '../support/rehearsal.js';
import { rehearseOnce } from '../support/rehearsals.js';
import { until } from '../support/wait.js';

const HOUR = 3600;
const BOOKINGS = (more = '') =>
  CONFIGURATION.replace(
    '  streams: {',
    `  reservations: {
      from: 'bookings', key: 'id', externalId: 'res_{id}', begin: 'begins', end: 'ends', timezone: 'Europe/Stockholm',
      objects: [{ stream: 'rooms', key: 'room' }], ${more}
    },
    streams: {`,
  );

const world = rehearseOnce({ rows: 5, sandbox: { rate: 0 } });
beforeAll(async () => {
  await world.configure(BOOKINGS('everyMinutes: 0.05'));
  // Naive times: nine in the morning in Stockholm, in a week without a change of clocks.
  await world.sql.unsafe(`
    CREATE TABLE bookings (id int PRIMARY KEY, begins timestamp, ends timestamp, room text);
    INSERT INTO bookings SELECT i, '2026-06-01 09:00'::timestamp + i * interval '1 day',
      '2026-06-01 10:00'::timestamp + i * interval '1 day', 'R' || i FROM generate_series(1, 5) AS i;`);
  await world.read('sync');
  for (let id = 1; id <= 5; id++) {
    const begin = Date.UTC(2026, 5, 1 + id, 7) / 1000;
    const objects = [{ typeId: 'room', objectId: `room_R${id}` }];
    world.sandbox.addReservation({ extId: `res_${id}`, begin, end: begin + HOUR, objects });
  }
});

const JUNE = 'reconcile --from 2026-06-01 --to 2026-07-01';

describe('slotsync reconcile', () => {
  it('reports that both sides agree', () =>
    world.ends(
      `${JUNE} --strict`,
      0,
      /agrees +5 +both sides are equal/,
      /Run \d+: Mon 1 Jun 2026 02:00 CEST – Wed 1 Jul 2026 02:00 CEST in .*, \d requests; 0 verdicts changed\./,
    ));

  it('describes changes by people at the service, in the configured time zone', async () => {
    const [one] = world.sandbox.reservations();
    if (!one) throw new Error('no reservation');
    world.sandbox.moveReservation('res_1', { begin: one.begin + HOUR, end: one.end + HOUR });
    world.sandbox.cancelReservation('res_2');
    world.sandbox.removeReservation('res_3');
    await world.sql`UPDATE bookings SET room = 'R1' WHERE id = 4`;
    world.sandbox.addReservation({ extId: 'by_hand', begin: one.begin, end: one.end });
    await world.ends(
      JUNE,
      0,
      'booking 1: in the mirror Tue 2 Jun 2026 09:00–10:00 CEST, at the service Tue 2 Jun 2026 10:00–11:00 CEST',
      'booking 2: cancelled at the service; in the mirror Wed 3 Jun 2026 09:00–10:00 CEST',
      'booking 3: not at the service; in the mirror Thu 4 Jun 2026 09:00–10:00 CEST',
      'booking 4: objects room_R1 → room_R4',
      /such as the first: slotsync explain reservations (1|'#\d+')\n/,
      /booking '#\d+': at the service Tue 2 Jun 2026 09:00–10:00 CEST as by_hand, but not in the mirror/,
      '5 verdicts changed',
    );
  });

  it('ends with exit code 1 under --strict when a booking does not agree, and prints JSON', async () => {
    expect(JSON.parse(await world.ends(`${JUNE} --strict --json`, 1))).toMatchObject({
      from: '2026-06-01T00:00:00.000Z',
      verdicts: { agrees: 1, differs: 2, cancelled_there: 1, missing_there: 1, unknown_here: 1 },
      events: 0,
      discrepancies: expect.arrayContaining([expect.objectContaining({ key: '1', verdict: 'differs' })]),
    });
  });

  it('names a column that the mirror does not have, as check does', async () => {
    await world.configure(BOOKINGS().replace("begin: 'begins'", "begin: 'begin'"));
    const fault = 'begin: there is no column begin; did you mean begins?';
    await world.refuses('reconcile', fault);
    await world.ends('check', 2, fault);
    await world.configure(BOOKINGS('everyMinutes: 0.05'));
  });
});

describe('slotsync explain', () => {
  it('shows both sides of a booking, the requests, and the history of verdicts', async () => {
    await world.ends(
      'explain reservations 1',
      0,
      'Booking: Tue 2 Jun 2026 09:00–10:00 CEST, as res_1',
      /Reservation: number \d+, res_1, Tue 2 Jun 2026 10:00–11:00 CEST, B_COMPLETE, C_CONFIRMED/,
      'reservations by {"extIds":["res_1"]}: 1 result',
      /agrees → differs, run \d+/,
      'Next: decide which side is right',
    );
    const cancellation = /Cancellation: \d+ of reservation \d+ at .*, Wed 3 Jun 2026/;
    await world.ends('explain reservations res_2', 0, cancellation);
  });

  it('shows a record: row, object, state, service, runs and next step', async () => {
    await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R5'`;
    await world.ends(
      'explain rooms R5',
      0,
      'name: "Aula"',
      'Object: room_R5, type room',
      /Record: synced, as room_R5, number \d+, accepted .*/,
      'room.name: "Sal 5" → "Aula"',
      /run 1 +sync +create +\d+ +done/,
      'Next: the next run sends it: slotsync sync rooms',
    );
    expect(await world.json('explain courses 1 --json')).toMatchObject({
      key: '1',
      isAccepted: true,
      changes: [],
    });
  });

  it.each([
    ['reservations 4711', 1, "no booking '4711' is in the mirror, at the service or in the state"],
    ['rooms R99', 1, "no object the external id or number, 'R99'"],
    ['roms R1', 2, "no stream 'roms'"],
  ])('says that nothing is known of %s', async (args, code, message) => {
    const finished = await world.run(['explain', ...args.split(' ')]);
    expect(finished).toMatchObject({ code, stderr: expect.stringContaining(message) });
  });
});

it('a worker regularly reads changes of reservations by people, and stops on SIGTERM', async () => {
  const begin = Math.floor(Date.now() / 1000) + HOUR;
  const added = world.sandbox.addReservation({ begin, end: begin + HOUR, modified: begin - 2 * HOUR });
  await world.sql`DELETE FROM slotsync.reservations_watermark`;
  const worker = world.start(['worker']);
  await until(
    async () => (await world.sql`SELECT FROM slotsync.reservations WHERE key = ${`#${added.id}`}`).length > 0,
    { describe: () => `the reservation; the worker said: ${worker.output()}` },
  );
  worker.child.kill('SIGTERM');
  expect((await worker.finished).code).toBe(0);
});
