// Reconcile as an operator runs it: commands, messages and exit codes, and a worker that reconciles regularly.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CONFIGURATION, rehearse, type Rehearsal } from '../support/rehearsal.js';
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

let world: Rehearsal;
beforeAll(async () => {
  world = await rehearse({ rows: 5, sandbox: { rate: 0 } });
  await world.configure(BOOKINGS('everyMinutes: 0.05'));
  // Naive times: nine in the morning in Stockholm, in a week without a change of clocks.
  await world.sql.unsafe(`
    CREATE TABLE bookings (id int PRIMARY KEY, begins timestamp, ends timestamp, room text);
    INSERT INTO bookings SELECT i, '2026-06-01 09:00'::timestamp + i * interval '1 day',
      '2026-06-01 10:00'::timestamp + i * interval '1 day', 'R' || i FROM generate_series(1, 5) AS i;`);
  await world.run(['sync']);
  for (let id = 1; id <= 5; id++) {
    const begin = Date.UTC(2026, 5, 1 + id, 7) / 1000;
    const objects = [{ typeId: 'room', objectId: `room_R${id}` }];
    world.sandbox.addReservation({ extId: `res_${id}`, begin, end: begin + HOUR, objects });
  }
});
afterAll(() => world.close());

const JUNE = ['--from', '2026-06-01', '--to', '2026-07-01'];

describe('slotsync reconcile', () => {
  it('reports that both sides agree', async () => {
    const { code, stdout } = await world.run(['reconcile', ...JUNE, '--strict']);
    expect(stdout).toMatch(/agrees +5 +both sides are equal/);
    expect(stdout).toMatch(
      /Run \d+: Mon 1 Jun 2026 02:00 CEST – Wed 1 Jul 2026 02:00 CEST in .*, \d requests; 0 verdicts changed\./,
    );
    expect(code).toBe(0);
  });

  it('describes changes by people at the service, in the configured time zone', async () => {
    const [one] = world.sandbox.reservations();
    if (!one) throw new Error('no reservation');
    world.sandbox.moveReservation('res_1', { begin: one.begin + HOUR, end: one.end + HOUR });
    world.sandbox.cancelReservation('res_2');
    world.sandbox.removeReservation('res_3');
    await world.sql`UPDATE bookings SET room = 'R1' WHERE id = 4`;
    world.sandbox.addReservation({ extId: 'by_hand', begin: one.begin, end: one.end });
    const { code, stdout } = await world.run(['reconcile', ...JUNE]);
    expect(stdout).toContain(
      'booking 1: in the mirror Tue 2 Jun 2026 09:00–10:00 CEST, at the service Tue 2 Jun 2026 10:00–11:00 CEST',
    );
    expect(stdout).toContain(
      'booking 2: cancelled at the service; in the mirror Wed 3 Jun 2026 09:00–10:00 CEST',
    );
    expect(stdout).toContain('booking 3: not at the service; in the mirror Thu 4 Jun 2026 09:00–10:00 CEST');
    expect(stdout).toContain('booking 4: objects room_R1 → room_R4');
    expect(stdout).toMatch(/such as the first: slotsync explain reservations (1|'#\d+')\n/);
    expect(stdout).toMatch(
      /booking '#\d+': at the service Tue 2 Jun 2026 09:00–10:00 CEST as by_hand, but not in the mirror/,
    );
    expect(stdout).toContain('5 verdicts changed');
    expect(code).toBe(0);
  });

  it('ends with exit code 1 under --strict when a booking does not agree, and prints JSON', async () => {
    const { code, stdout } = await world.run(['reconcile', ...JUNE, '--strict', '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      from: '2026-06-01T00:00:00.000Z',
      verdicts: { agrees: 1, differs: 2, cancelled_there: 1, missing_there: 1, unknown_here: 1 },
      events: 0,
      discrepancies: expect.arrayContaining([expect.objectContaining({ key: '1', verdict: 'differs' })]),
    });
  });

  it('names a column that the mirror does not have, as check does', async () => {
    await world.configure(BOOKINGS().replace("begin: 'begins'", "begin: 'begin'"));
    for (const command of ['reconcile', 'check']) {
      const { code, stdout, stderr } = await world.run([command]);
      expect(stdout + stderr).toContain('begin: there is no column begin; did you mean begins?');
      expect(code).toBe(2);
    }
    await world.configure(BOOKINGS('everyMinutes: 0.05'));
  });
});

describe('slotsync explain', () => {
  it('shows both sides of a booking, the requests, and the history of verdicts', async () => {
    const { code, stdout } = await world.run(['explain', 'reservations', '1']);
    expect(code).toBe(0);
    expect(stdout).toContain('Booking: Tue 2 Jun 2026 09:00–10:00 CEST, as res_1');
    expect(stdout).toMatch(
      /Reservation: number \d+, res_1, Tue 2 Jun 2026 10:00–11:00 CEST, B_COMPLETE, C_CONFIRMED/,
    );
    expect(stdout).toContain('reservations by {"extIds":["res_1"]}: 1 result');
    expect(stdout).toMatch(/agrees → differs, run \d+/);
    expect(stdout).toContain('Next: decide which side is right');
    const cancelled = await world.run(['explain', 'reservations', 'res_2']);
    expect(cancelled.stdout).toMatch(/Cancellation: \d+ of reservation \d+ at .*, Wed 3 Jun 2026/);
  });

  it('shows a record: row, object, state, service, runs and next step', async () => {
    await world.sql`UPDATE rooms SET name = 'Aula' WHERE code = 'R5'`;
    const { code, stdout } = await world.run(['explain', 'rooms', 'R5']);
    expect(code).toBe(0);
    expect(stdout).toContain('name: "Aula"');
    expect(stdout).toContain('Object: room_R5, type room');
    expect(stdout).toMatch(/Record: synced, as room_R5, number \d+, accepted .*/);
    expect(stdout).toContain('room.name: "Sal 5" → "Aula"');
    expect(stdout).toMatch(/run 1 +sync +create +\d+ +done/);
    expect(stdout).toContain('Next: the next run sends it: slotsync sync rooms');
    const json = await world.run(['explain', 'courses', '1', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ key: '1', isAccepted: true, changes: [] });
  });

  it.each([
    [['reservations', '4711'], 1, "no booking '4711' is in the mirror, at the service or in the state"],
    [['rooms', 'R99'], 1, "no object the external id or number, 'R99'"],
    [['roms', 'R1'], 2, "no stream 'roms'"],
  ])('says that nothing is known of %j', async (args, expected, message) => {
    const { code, stderr } = await world.run(['explain', ...args]);
    expect(stderr).toContain(message);
    expect(code).toBe(expected);
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
