// Guarantee 11
// The verdicts on bookings, with a real mirror, a real state, and a played service that people change.
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import postgres from 'postgres';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { createTurns } from '../../src/process/lifecycle.js';
import { listBadReadings } from '../../src/state/runs/read-runs.js';
import { whileReadingAlone } from '../../src/state/runs/reconcile-and-verify-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import type { Verdict } from '../../src/state/schema.js';
import {
  reconcile,
  reconcileModified,
  reconcileNightly,
  reconcilePeriodically,
  type ReconcileDeps,
  type ReconcileRange,
} from '../../src/sync/reconcile/reconcile.js';
import type { Sandbox } from '../../src/sandbox/sandbox.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const HOUR = 3600;
const DAY = 24 * HOUR;
/** A Friday, 08:00 in UTC. */
const FRIDAY = Date.UTC(2026, 9, 9, 8) / 1000;
const WEEK = { from: (FRIDAY - 2 * DAY) * 1000, to: (FRIDAY + 5 * DAY) * 1000 };

const RESERVATIONS: NonNullable<SlotsyncConfig['reservations']> = {
  from: 'bookings',
  key: 'id',
  externalId: 'res_{id}',
  begin: 'begins',
  end: 'ends',
  objects: [{ stream: 'rooms', key: 'room' }],
  cancelled: 'is_off',
  fields: { 'res.title': 'title' },
};
const configure = (changes: Partial<typeof RESERVATIONS> = {}): SlotsyncConfig => ({
  streams: {
    rooms: {
      from: 'rooms',
      key: 'code',
      type: 'room',
      externalId: 'room_{code}',
      fields: {},
      owns: 'object',
    },
  },
  reservations: { ...RESERVATIONS, ...changes },
  service: { pageSize: 4 },
});

const openWorld = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await openWorld(configure());
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY)`;
  await world.sql`INSERT INTO rooms VALUES ('A'), ('B')`;
  await world.sql`
    CREATE TABLE bookings (id int, begins timestamptz, ends timestamptz, room text, title text, is_off boolean)`;
  await world.sync();
});

/** Books these numbers in the mirror, an hour each, one after another. */
async function bookHere(...ids: number[]): Promise<void> {
  for (const id of ids) {
    await world.sql`
      INSERT INTO bookings VALUES (${id}, to_timestamp(${beginOf(id)}::float8), to_timestamp(${beginOf(id) + HOUR}::float8),
        'A', ${`Title ${id}`}, false)`;
  }
}
const beginOf = (id: number) => FRIDAY + id * HOUR;

function bookThere(...ids: number[]): void {
  for (const id of ids) bookThereAs(id);
}

/** Books a number at the service as in the mirror, except for the changes. */
const bookThereAs = (id: number, changes: Partial<Parameters<Sandbox['addReservation']>[0]> = {}) =>
  world.sandbox.addReservation({
    extId: `res_${id}`,
    begin: beginOf(id),
    end: beginOf(id) + HOUR,
    objects: [{ typeId: 'room', objectId: 'room_A' }],
    fields: [{ fieldId: 'res.title', values: [`Title ${id}`] }],
    ...changes,
  });

/** Reconciles the week. */
function run(range: ReconcileRange = {}, changes: Partial<ReconcileDeps> = {}) {
  return reconcile({ ...world.reconciling(), sliceSize: 6, ...changes }, { ...WEEK, named: 100, ...range });
}

/** Returns the bookings of the state by their keys. */
async function stored() {
  const rows = await world.sql<{ key: string; verdict: Verdict; problem: string | null; number: number }[]>`
    SELECT *, destination_id::int AS number FROM slotsync.reservations`;
  return Object.fromEntries(rows.map((row) => [row.key, row]));
}
type Stored = Awaited<ReturnType<typeof stored>>[string];
const storedAs = async <T>(toValue: (row: Stored) => T) =>
  Object.fromEntries(Object.entries(await stored()).map(([key, row]) => [key, toValue(row)]));
/** Returns `key → verdict` of the state. */
const verdicts = () => storedAs(({ verdict }) => verdict);
const problems = () => storedAs(({ problem }) => problem);
async function discrepancies(): Promise<string[]> {
  const rows = await world.sql<{ key: string }[]>`SELECT key FROM slotsync.discrepancies ORDER BY key`;
  return rows.map(({ key }) => key);
}
/** Returns the runs of reconcile, the latest last. */
const runs = () =>
  world.sql`SELECT status, error_code FROM slotsync.runs WHERE kind = 'reconcile' ORDER BY id`;
/** Dates the watermark back. */
const turnBack = (days: number) => world.sql`
  UPDATE slotsync.reservations_watermark SET read_up_to = read_up_to - ${days} * interval '1 day'`;
/** Returns `key: from → to` of every event so far. */
async function events(): Promise<string[]> {
  const rows = await world.sql<{ line: string }[]>`
    SELECT key || ': ' || coalesce(from_verdict, '–') || ' → ' || coalesce(to_verdict, '–') AS line
    FROM slotsync.reservation_events ORDER BY id`;
  return rows.map(({ line }) => line);
}

describe('a reconcile', () => {
  it('counts the bookings that are shifted by the same time, as a wrong time zone shifts them', async () => {
    await bookHere(1, 2, 3, 4, 5);
    for (const id of [1, 2, 3])
      bookThereAs(id, { begin: beginOf(id) + 2 * HOUR, end: beginOf(id) + 3 * HOUR });
    bookThereAs(4, { begin: beginOf(4) + 60, end: beginOf(4) + HOUR + 60 });
    bookThereAs(5, { begin: beginOf(5) - HOUR });
    expect(await run()).toMatchObject({
      verdicts: { differs: 5 },
      shifts: [{ seconds: 2 * HOUR, bookings: 3 }],
    });
  });

  it('finds that both sides agree, over several slices and pages, and writes to neither', async () => {
    const ids = Array.from({ length: 30 }, (_, at) => at);
    await bookHere(...ids);
    bookThere(...ids);
    world.sandbox.clearArrivals();
    const result = { verdicts: { agrees: 30 }, events: 0, problems: 0, discrepancies: [] };
    expect(await run()).toMatchObject(result);
    expect(world.writes()).toEqual([]);
    expect(
      await world.sql`SELECT kind, started_by, streams, status FROM slotsync.runs ORDER BY id DESC LIMIT 1`,
    ).toEqual([{ kind: 'reconcile', started_by: 'command', streams: [], status: 'succeeded' }]);
  });

  it('decides on the verdict of each booking, and reports nothing new the second time', async () => {
    await bookHere(1, 2, 3, 4, 5, 6, 7, 8, 9);
    bookThere(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    await world.sql`UPDATE bookings SET is_off = true WHERE id IN (5, 6)`;
    world.sandbox.moveReservation('res_2', { begin: beginOf(2) + HOUR, end: beginOf(2) + 2 * HOUR });
    world.sandbox.removeReservation('res_3');
    world.sandbox.cancelReservation('res_4', { extId: 'res_4' });
    world.sandbox.cancelReservation('res_6', { extId: 'res_6' });
    world.sandbox.setReservationStatus('res_7', ['C_PLANNED']);
    await world.sql`UPDATE bookings SET room = 'B' WHERE id = 8`;
    await world.sql`UPDATE bookings SET title = 'Another' WHERE id = 9`;

    const { discrepancies: told } = await run();
    const unknown = world.sandbox.reservations().find(({ extId }) => extId === 'res_10')?.id;
    expect(await verdicts()).toEqual({
      1: 'agrees',
      2: 'differs',
      3: 'missing_there',
      4: 'cancelled_there',
      5: 'cancelled_here',
      6: 'agrees_cancelled',
      7: 'differs',
      8: 'differs',
      9: 'differs',
      [`#${unknown}`]: 'unknown_here',
    });
    expect(
      Object.fromEntries(told.map(({ key, differs }) => [key, Object.keys(differs ?? {}).toSorted()])),
    ).toMatchObject({ 2: ['begin', 'end'], 7: ['status'], 8: ['objects'], 9: ['fields'] });
    const first = await events();
    expect(first).toHaveLength(8);
    expect(await run()).toMatchObject({ events: 0 });
    expect(await events()).toEqual(first);
    expect(await discrepancies()).toEqual([`#${unknown}`, '2', '3', '4', '5', '7', '8', '9']);
  });

  it('follows one booking through all of its changes', async () => {
    await bookHere(1);
    bookThere(1);
    await run();
    world.sandbox.cancelReservation('res_1');
    await run();
    world.sandbox.restoreReservation('res_1');
    await run();
    await run();
    world.sandbox.moveReservation('res_1', { begin: beginOf(1) + HOUR, end: beginOf(1) + 2 * HOUR });
    await run();
    world.sandbox.moveReservation('res_1', { begin: beginOf(1) + 2 * HOUR, end: beginOf(1) + 3 * HOUR });
    await run();
    await world.sql`DELETE FROM bookings`;
    await run();
    world.sandbox.cancelReservation('res_1');
    await run();
    await run();
    expect(await events()).toEqual([
      '1: agrees → cancelled_there',
      '1: cancelled_there → restored_there',
      '1: restored_there → differs',
      '1: differs → differs',
      '1: differs → unknown_here',
      '1: unknown_here → –',
    ]);
    expect(await verdicts()).toEqual({});
  });

  it('calls no booking missing that was moved out of the window, and finds one moved into it', async () => {
    await bookHere(1, 2);
    bookThere(1, 2);
    world.sandbox.moveReservation('res_1', { begin: FRIDAY + 300 * DAY, end: FRIDAY + 300 * DAY + HOUR });
    await world.sql`UPDATE bookings SET begins = begins + interval '300 days', ends = ends + interval '300 days' WHERE id = 2`;
    expect(await run()).toMatchObject({ verdicts: { differs: 2 } });
    expect(await verdicts()).toEqual({ 1: 'differs', 2: 'differs' });
  });

  it('finds a booking that was moved far and then cancelled', async () => {
    await bookHere(1, 90);
    bookThere(1, 90);
    await run();
    world.sandbox.moveReservation('res_1', { begin: beginOf(95), end: beginOf(96) });
    world.sandbox.cancelReservation('res_1');
    await run();
    expect(await verdicts()).toEqual({ 1: 'cancelled_there', 90: 'agrees' });
  });

  it('sees a cancellation that is made while it reads', async () => {
    await bookHere(1);
    bookThere(1);
    await run();
    const { destination } = world.reconciling();
    let asked = 0;
    const meddling = {
      ...destination,
      findReservations: (...args: Parameters<typeof destination.findReservations>) => {
        if (asked++ === 0) world.sandbox.cancelReservation('res_1');
        return destination.findReservations(...args);
      },
    };
    await run({}, { destination: meddling });
    expect(await verdicts()).toEqual({ 1: 'cancelled_there' });
  });

  it('recognizes a booking that comes back, or that comes back under another key', async () => {
    bookThere(1, 2);
    await run();
    await bookHere(1);
    await run();
    expect(await verdicts()).toMatchObject({ 1: 'agrees' });
    expect(Object.keys(await verdicts())).toHaveLength(2);
    await world.sql`DELETE FROM bookings`;
    await run();
    expect(await verdicts()).toMatchObject({ 1: 'unknown_here' });
    await bookHere(1);
    expect(await run()).toMatchObject({ verdicts: { agrees: 1, unknown_here: 1 } });
  });

  it('drops a noted cancellation that is not there any more', async () => {
    await bookHere(1);
    bookThere(1, 2);
    await run();
    world.sandbox.cancelReservation('res_1');
    world.sandbox.cancelReservation('res_2');
    await run();
    expect(await verdicts()).toEqual({ 1: 'cancelled_there' });
    world.sandbox.restoreReservation('res_1');
    world.sandbox.removeReservation('res_1');
    await bookHere(2);
    world.sandbox.restoreReservation('res_2');
    await run();
    expect(await verdicts()).toEqual({ 1: 'missing_there', 2: 'restored_there' });
    expect(await world.sql`SELECT * FROM slotsync.cancellations`).toEqual([]);
  });

  it('does not take one booking for another when its external id changes', async () => {
    world.configure(configure({ externalId: 'res_{title}', fields: {} }));
    await bookHere(1);
    bookThereAs(1, { extId: 'res_Title 1' });
    await run();
    expect(await verdicts()).toEqual({ 1: 'agrees' });
    await world.sql`UPDATE bookings SET title = 'Renamed'`;
    await run();
    const [there] = world.sandbox.reservations();
    expect(await verdicts()).toEqual({ 1: 'missing_there', [`#${there?.id}`]: 'unknown_here' });
    expect(await run()).toMatchObject({ events: 0 });
  });

  it('reads times without a zone in the configured zone, even when clocks are changed', async () => {
    world.configure(configure({ timezone: 'Europe/Stockholm', from: { query: 'SELECT * FROM naive' } }));
    await world.sql`
      CREATE VIEW naive AS SELECT id, begins AT TIME ZONE 'Europe/Stockholm' AS begins,
        ends AT TIME ZONE 'Europe/Stockholm' AS ends, room, title, is_off FROM bookings`;
    // On 25 October 2026 at 01:00 in UTC clocks go back from 03:00 to 02:00: two hours last from 01:00 to 02:00.
    const night = Date.UTC(2026, 9, 24, 23) / 1000;
    for (const [at, begin] of [night, night + 3 * HOUR, FRIDAY].entries()) {
      const id = at + 1;
      await world.sql`
        INSERT INTO bookings VALUES (${id}, to_timestamp(${begin}::float8), to_timestamp(${begin + 2 * HOUR}::float8), 'A', ${`Title ${id}`}, false)`;
      bookThereAs(id, { begin, end: begin + 2 * HOUR });
    }
    expect(await run({ to: (night + DAY) * 1000 })).toMatchObject({ verdicts: { agrees: 3 }, problems: 0 });
  });

  it('stores reservations without a wrong verdict where no bookings are configured', async () => {
    const { streams, service } = configure();
    world.configure({ streams, ...(service ? { service } : {}) });
    bookThere(1, 2, 3);
    expect(await run()).toMatchObject({ verdicts: { not_compared: 3 }, events: 0 });
    world.sandbox.cancelReservation('res_1');
    world.sandbox.moveReservation('res_2', { begin: beginOf(50), end: beginOf(51) });
    expect(await run()).toMatchObject({ verdicts: { not_compared: 2 }, discrepancies: [] });
    expect(await discrepancies()).toEqual([]);
    expect(await world.sql`SELECT FROM slotsync.cancellations`).toHaveLength(1);
  });

  it('blocks no clean-up between its slices', async () => {
    const ids = Array.from({ length: 30 }, (_, at) => at);
    await bookHere(...ids);
    bookThere(...ids.slice(0, 20));
    await run();
    world.sandbox.closeGate({ path: '/reservations/find', after: 8 });
    const running = run();
    await until(() => world.sandbox.gate().held, { describe: 'a later slice to ask the service' });
    // A transaction that has written anything, or a snapshot. The lock of all readings is neither.
    const holding = await world.sql`
        SELECT application_name, now() - xact_start AS since FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'slotsync%'
          AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)`;
    world.sandbox.openGate();
    expect(await running).toMatchObject({ verdicts: { agrees: 20, missing_there: 10 }, events: 0 });
    expect(holding).toEqual([]);
  });

  it('notifies listeners of the key of each change', async () => {
    const listener = postgres(world.url, { max: 1, onnotice: () => undefined });
    onTestFinished(() => listener.end({ timeout: 1 }));
    const heard: string[] = [];
    await listener.listen('slotsync_reservations', (key) => heard.push(key));
    await bookHere(1, 2);
    bookThere(1);
    await run();
    await until(() => heard.length > 0, { describe: 'a notification' });
    expect(heard).toEqual(['2']);
  });

  it('runs alone, closes an interrupted run, and ends when it is cancelled', async () => {
    await world.sql`
      INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
      VALUES ('reconcile', 'sync', 'schedule', '{}', 'running')`;
    const held = await whileReadingAlone(world.state, 'reconcile', () =>
      run().catch((error: unknown) => error),
    );
    expect(held?.result).toMatchObject({ code: 'reconcile_running', disposition: 'defer' });
    await run();
    expect(await runs()).toEqual([
      { status: 'failed', error_code: 'interrupted' },
      { status: 'succeeded', error_code: null },
    ]);
  });
});

describe('the window of a reconcile', () => {
  it('includes bookings that began before it and last into it', async () => {
    await bookHere(1, 2, 3);
    const before = WEEK.from / 1000 - HOUR;
    await world.sql`UPDATE bookings SET begins = to_timestamp(${before}::float8), ends = begins`;
    await world.sql`UPDATE bookings SET ends = begins WHERE id = 3`;
    bookThereAs(1, { begin: before, end: beginOf(1) });
    await run();
    expect(await verdicts()).toEqual({ 1: 'agrees', 2: 'missing_there' });
  });

  it('may reach back further than bookings are kept, and keeps those that a run sees', async () => {
    const past = { from: Date.now() - 400 * DAY * 1000, to: Date.now() - 370 * DAY * 1000 };
    for (const [id, days] of [1, 2].entries())
      await world.sql`INSERT INTO bookings SELECT ${id + 1}, b, b + interval '1 hour', 'A', 'T', false
        FROM (SELECT date_trunc('hour', now()) - ${380 + days}::int * interval '1 day') AS t(b)`;
    await run(past);
    expect(await verdicts()).toEqual({ 1: 'missing_there', 2: 'missing_there' });
    expect(await run(past)).toMatchObject({ events: 0 });
    expect(await verdicts()).toEqual({ 1: 'missing_there', 2: 'missing_there' });
    expect(await events()).toHaveLength(2);
    await world.sql`UPDATE slotsync.reservations SET seen_at = now() - interval '366 days' WHERE key = '1'`;
    await run();
    expect(await verdicts()).toEqual({ 2: 'missing_there' });
  });

  it('includes any number of bookings that were moved out of it', async () => {
    const large = await openWorld({ ...configure(), service: { pageSize: 1000 } });
    const many = 1500;
    const year = 365 * DAY;
    await large.sql`CREATE TABLE rooms AS SELECT 'A' AS code`;
    await large.sql`
      CREATE TABLE bookings AS SELECT i AS id, to_timestamp(${FRIDAY}::float8) + i * interval '1 minute' AS begins,
        to_timestamp(${FRIDAY}::float8) + (i + 60) * interval '1 minute' AS ends, 'A' AS room, 'T' AS title, false AS is_off
      FROM generate_series(1, ${many}) AS i`;
    await large.sync();
    for (let id = 1; id <= many; id++) {
      large.sandbox.addReservation({
        extId: `res_${id}`,
        begin: FRIDAY + id * 60 + year,
        end: FRIDAY + (id + 60) * 60 + year,
        objects: [{ typeId: 'room', objectId: 'room_A' }],
        fields: [{ fieldId: 'res.title', values: ['T'] }],
      });
    }
    const reconcileAll = () => reconcile({ ...large.reconciling(), sliceSize: 5000 }, WEEK);
    // There they stand a year later: not missing.
    expect(await reconcileAll()).toMatchObject({ verdicts: { differs: many } });
    await large.sql`UPDATE bookings SET begins = begins + interval '365 days', ends = ends + interval '365 days'`;
    // Known in the window, and met in it by neither side.
    await reconcileAll();
    expect(
      await large.sql`SELECT verdict, count(*)::int AS count FROM slotsync.reservations GROUP BY verdict`,
    ).toEqual([{ verdict: 'agrees', count: many }]);
  });
});

describe('a reconcile with bad input', () => {
  it('makes a verdict and a problem, and never a crash', async () => {
    await bookHere(1, 2, 3, 4, 5, 6);
    bookThere(1, 2, 3, 4, 5, 6);
    await world.sql`UPDATE bookings SET ends = begins - interval '1 hour' WHERE id = 1`;
    await world.sql`UPDATE bookings SET room = 'nowhere' WHERE id = 2`;
    await world.sql`UPDATE bookings SET begins = NULL WHERE id = 3`;
    await world.sql`UPDATE bookings SET ends = 'infinity' WHERE id = 4`;
    await world.sql`UPDATE bookings SET room = NULL WHERE id = 5`;
    await run();
    expect(await storedAs(({ verdict, problem }) => [verdict, problem])).toEqual({
      1: ['differs', 'ends_before_begin'],
      2: ['differs', 'object_unknown'],
      3: ['differs', 'no_begin_or_end'],
      4: ['differs', 'no_begin_or_end'],
      5: ['differs', null],
      6: ['agrees', null],
    });
    expect(await run()).toMatchObject({ events: 0, problems: 4 });
  });

  it.each(['timestamptz', 'timestamp', 'date'])(
    'notes a value of type %s that is no time as a problem of that booking only',
    async (type) => {
      await bookHere(1, 2);
      bookThere(1, 2);
      const times = [
        ['-infinity', '2030-01-01'],
        ['infinity', 'infinity'],
        ['2026-10-09', 'infinity'],
        ['0044-03-15 BC', '2030-01-01'],
        ...(type === 'date'
          ? [
              ['5000000-01-01', '5000000-01-02'],
              ['2026-10-08', '5000000-01-02'],
            ]
          : [['290000-01-01', '290000-01-02']]),
      ];
      const odd = times.map(
        ([begins, ends], at) =>
          `SELECT ${at + 3}, '${begins}'::${type}, '${ends}'::${type}, 'A', 'odd', false`,
      );
      const good = `SELECT id, begins::${type} AS begins, (ends + interval '1 day')::${type} AS ends, room, title, is_off FROM bookings`;
      const query = [good, ...odd].join(' UNION ALL ');
      world.configure(configure({ from: { query }, timezone: 'America/New_York' }));
      await run();
      expect(await problems()).toEqual({
        1: null,
        2: null,
        ...Object.fromEntries(times.map((_, at) => [at + 3, 'no_begin_or_end'])),
      });
    },
  );

  it('ignores foreign reservations without names, with unknown statuses or without objects', async () => {
    await bookHere(1, 2, 3);
    const { id } = world.sandbox.addObject({ typeId: 'room' });
    const byHand = [
      { typeId: 'room', objectId: null },
      { typeId: 'room', objectId: id },
      { typeId: 900, objectId: 'thing' },
      {},
    ];
    const ours = { typeId: 'room', objectId: 'room_A' };
    const fieldsOf = (title: string) => [{ fieldId: 'res.title', values: [title] }];
    const at = (of: number) => ({ begin: beginOf(of), end: beginOf(of) + HOUR });
    const add = world.sandbox.addReservation;
    add({ extId: 'res_1', ...at(1), objects: [...byHand, ours], fields: fieldsOf('Title 1') });
    add({ extId: 'res_2', ...at(2), objects: byHand, fields: fieldsOf('Title 2') });
    add({ extId: 'res_3', ...at(3), objects: [...byHand, ours] });
    world.sandbox.cancelReservation('res_3', { extId: 'res_3' });
    const others = [
      add({ extId: null, ...at(4), objects: null, status: ['X_OWN'] }),
      add({ extId: 'a\0b', ...at(5), objects: byHand }),
      add({ extId: 'long'.repeat(5000), ...at(6), objects: byHand }),
    ];
    world.sandbox.cancelReservation(add({ extId: null, ...at(7), objects: null }).id, { extId: 'a\0b' });
    await run();
    expect(await verdicts()).toEqual({
      1: 'agrees',
      2: 'differs',
      3: 'cancelled_there',
      ...Object.fromEntries(others.map((other) => [`#${other.id}`, 'unknown_here'])),
    });
    expect(await run()).toMatchObject({ events: 0 });
  });

  it('skips only a row that is too large, whose booking keeps its external id and times', async () => {
    await bookHere(1, 2, 3);
    await world.sql`UPDATE bookings SET title = repeat('x', 17 * 1024 * 1024) WHERE id = 2`;
    for (const id of [1, 2]) bookThere(id);
    await run();
    expect(await stored()).toMatchObject({
      1: { external_id: 'res_1', verdict: 'agrees', problem: null },
      2: {
        external_id: 'res_2',
        verdict: 'differs',
        problem: 'row_too_large',
        begin_here: new Date(beginOf(2) * 1000),
      },
      3: { external_id: 'res_3', verdict: 'missing_there', problem: null },
    });
  });

  it.each([
    ['the order of their numbers', (list: unknown[]) => list],
    ['the other order', (list: unknown[]) => list.toReversed()],
  ])('lists both of two reservations with one external id, answered in %s', async (_name, ordered) => {
    await bookHere(1);
    bookThere(1);
    bookThere(2);
    const [first, second] = world.sandbox
      .reservations()
      .map(({ modified: _modified, ...shown }) => ({ ...shown, extId: 'res_1' }));
    world.sandbox.failNext({
      path: '/reservations/find',
      fault: 'status',
      status: 200,
      body: { results: ordered([first, second]), totalPages: 1, totalResults: 2 },
      times: 'always',
    });
    await run();
    world.sandbox.clearFailures();
    expect(await storedAs(({ verdict, problem, number }) => [verdict, problem, number])).toEqual({
      [`#${second?.id}`]: ['unknown_here', null, second?.id],
      1: ['agrees', 'reservation_shared', first?.id],
    });
  });

  it('reports both of two bookings with one external id', async () => {
    world.configure(configure({ externalId: 'res_{title}' }));
    await bookHere(1, 2, 3);
    await world.sql`UPDATE bookings SET title = 'same' WHERE id IN (1, 2)`;
    await run();
    expect(await problems()).toEqual({ 1: 'external_id_shared', 2: 'external_id_shared', 3: null });
  });

  it.each([
    ['repeats', '1', 'key_not_unique'],
    ['is null', null, 'key_null'],
  ])('ends with the reason if a key %s', async (_name, id, code) => {
    await bookHere(1);
    await world.sql`INSERT INTO bookings VALUES (${id}::int, to_timestamp(${FRIDAY}::float8), to_timestamp(${FRIDAY + HOUR}::float8), 'A')`;
    await expect(run()).rejects.toMatchObject({ code, disposition: 'dead' });
    expect(await verdicts()).toEqual({});
  });

  it.each([
    ['skips what it counts', { results: [], totalPages: 1, totalResults: 7, page: 1, limit: 4 }],
    ['repeats a page', { results: [], totalPages: 3, totalResults: 9, page: 1, limit: 4 }],
    [
      'answers milliseconds',
      { results: [{ id: 1, begin: FRIDAY * 1e6, end: FRIDAY * 1e6 }], totalPages: 1, totalResults: 1 },
    ],
  ])('fails if the service %s, and calls no booking missing', async (_name, body) => {
    await bookHere(1, 2);
    bookThere(1, 2);
    await run();
    world.sandbox.failNext({ path: '/reservations/find', fault: 'status', status: 200, body, times: 20 });
    await expect(run()).rejects.toMatchObject({ code: 'answer_invalid' });
    world.sandbox.clearFailures();
    expect(await verdicts()).toEqual({ 1: 'agrees', 2: 'agrees' });
    expect(await events()).toEqual([]);
    expect((await runs()).at(-1)).toEqual({ status: 'failed', error_code: 'answer_invalid' });
  });

  it('is refused if its window is in the wrong order, or a column has the wrong type', async () => {
    await expect(run({ from: WEEK.to, to: WEEK.from })).rejects.toMatchObject({ code: 'usage' });
    world.configure(configure({ begin: 'title' }));
    await expect(run()).rejects.toMatchObject({
      code: 'mirror_source',
      message:
        'reservations.begin: column title is text; a timestamp is needed (a query can convert the column)',
    });
  });
});

describe('a reconcile between nights', () => {
  /** As a worker does it, with time passing between two readings. */
  const keepUp = (now = world.reconciling().now()) =>
    reconcileModified({ ...world.reconciling(), now: () => now, sliceSize: 6 });
  async function watermark(): Promise<number> {
    const [row] = await world.sql<{ at: number }[]>`
      SELECT extract(epoch FROM read_up_to)::float8 AS at FROM slotsync.reservations_watermark`;
    return row?.at ?? 0;
  }

  beforeEach(async () => {
    // Around now, since that is where the first reading looks.
    await world.sql`
      INSERT INTO bookings SELECT i, date_trunc('day', now()) + i * interval '1 hour',
        date_trunc('day', now()) + (i + 1) * interval '1 hour', 'A', 'Title ' || i, false FROM generate_series(1, 20) AS i`;
    const rows = await world.sql<{ id: number; begin: string }[]>`
      SELECT id, extract(epoch FROM begins)::text AS begin FROM bookings`;
    const modified = Math.floor(Date.now() / 1000) - DAY;
    for (const { id, begin } of rows)
      bookThereAs(id, { begin: Number(begin), end: Number(begin) + HOUR, modified });
  });

  it('moves its watermark by the clock of the state, and passes no watermark from the future', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 2 * DAY * 1000 });
    onTestFinished(() => void vi.useRealTimers());
    const byState = { ...world.reconciling(), now: undefined };
    expect(await reconcileModified(byState)).toMatchObject({ read: 'window' });
    vi.useRealTimers();
    expect(await watermark()).toBeLessThan(Date.now() / 1000);
    await world.sql`
      UPDATE slotsync.reservations_watermark SET read_up_to = now() + interval '1 day', moved_at = now() + interval '1 day'`;
    expect(await reconcileModified(byState, { everyMinutes: 5 })).toMatchObject({ read: 'window' });
    expect(await watermark()).toBeLessThan(Date.now() / 1000);
  });

  it('reads the window once, and from then on the changes at the service', async () => {
    expect(await keepUp()).toMatchObject({ read: 'window', verdicts: { agrees: 20 } });
    const [one, two] = world.sandbox.reservations();
    if (!one || !two) throw new Error('no reservations');
    world.sandbox.moveReservation('res_1', { begin: one.begin + HOUR, end: one.end + HOUR });
    world.sandbox.cancelReservation('res_2');
    world.sandbox.addReservation({ extId: 'by_hand', begin: one.begin, end: one.end });
    world.passDays(1);
    world.sandbox.clearArrivals();
    const before = await watermark();
    const changes = await keepUp();
    expect(changes).toMatchObject({ read: 'changes', events: 3 });
    // Five minutes twice, and up to five minutes ago.
    expect(changes?.from).toBe((before - 300) * 1000);
    expect(changes?.to).toBeLessThanOrEqual(world.reconciling().now() - 300_000);
    expect(world.sandbox.arrivals().length).toBeLessThan(12);
    expect(await verdicts()).toMatchObject({ 1: 'differs', 2: 'cancelled_there', 3: 'agrees' });
    expect(await events()).toHaveLength(3);
    world.sandbox.restoreReservation('res_2');
    await turnBack(1);
    world.passDays(1);
    const now = world.reconciling().now();
    expect(await keepUp(now)).toMatchObject({ read: 'changes' });
    expect(await verdicts()).toMatchObject({ 2: 'restored_there' });
    expect(await keepUp(now)).toBeUndefined();
    const unknown = world.sandbox.reservations().find(({ extId }) => extId === 'by_hand')?.id ?? 0;
    expect(await verdicts()).toHaveProperty(`#${unknown}`);
    await world.sql`UPDATE bookings SET id = 21 WHERE id = 20`;
    world.configure(configure({ externalId: 'by_{title}' }));
    await world.sql`UPDATE bookings SET title = 'hand' WHERE id = 21`;
    await turnBack(3);
    await keepUp();
    expect(await verdicts()).not.toHaveProperty(`#${unknown}`);
  });

  it('leaves no run behind when nothing was changed at the service', async () => {
    await keepUp();
    world.passDays(1);
    expect(await keepUp()).toMatchObject({ read: 'changes', events: 0 });
    expect(await runs()).toHaveLength(1);
  });

  it('ends the problem of a failed reconcile, even when nothing was changed at the service', async () => {
    await keepUp();
    world.passDays(1);
    world.sandbox.failNext({ path: '/cancellations/find', fault: 'status', status: 400 });
    await expect(keepUp()).rejects.toMatchObject({ code: 'refused' });
    const bad = { kind: 'reconcile', errorCode: 'refused' };
    expect(await listBadReadings(world.state.db)).toMatchObject([bad]);
    expect(await keepUp()).toMatchObject({ read: 'changes', events: 0 });
    expect(await listBadReadings(world.state.db)).toEqual([]);
    await turnBack(1);
    await keepUp();
    expect((await runs()).map(({ status }) => status)).toEqual(['succeeded', 'failed', 'succeeded']);
  });

  it('moves its watermark over complete readings only, five minutes behind', async () => {
    await keepUp();
    const first = await watermark();
    expect(first).toBeLessThanOrEqual(Date.now() / 1000 - 300);
    world.passDays(1);
    world.sandbox.failNext({ path: '/cancellations/find', fault: 'status', status: 400 });
    await expect(keepUp()).rejects.toMatchObject({ code: 'refused' });
    expect(await watermark()).toBe(first);
    await keepUp();
    expect(await watermark()).toBeGreaterThan(first + DAY - 60);
  });

  it('keeps its watermark after a window was read by hand, and finds earlier changes', async () => {
    await keepUp();
    const first = await watermark();
    world.passDays(1);
    world.sandbox.cancelReservation('res_2');
    const now = world.reconciling().now();
    await run({ from: now + 30 * DAY * 1000, to: now + 31 * DAY * 1000 });
    expect(await watermark()).toBe(first);
    expect(await keepUp()).toMatchObject({ read: 'changes', events: 1 });
    expect(await verdicts()).toMatchObject({ 2: 'cancelled_there' });
  });

  it('reads the window when the service ignores `modified`', async () => {
    const deaf = await openWorld(configure(), { sandbox: { honoursModified: false } });
    await deaf.sql`CREATE TABLE bookings AS SELECT 1 AS id, now() AS begins, now() + interval '1 hour' AS ends,
      'A' AS room, '' AS title, false AS is_off WHERE false`;
    const { begin, end } = world.sandbox.reservations()[0] ?? { begin: 0, end: 0 };
    deaf.sandbox.addReservation({ begin, end });
    expect(await reconcileModified(deaf.reconciling())).toMatchObject({ read: 'window' });
    deaf.passDays(1);
    expect(await reconcileModified(deaf.reconciling())).toMatchObject({ read: 'window' });
  });

  it('is done by one of several processes', async () => {
    const kept = [1, 2, 3].map(() =>
      reconcilePeriodically(world.reconciling(), { everyMinutes: 15, turns: createTurns() }),
    );
    await until(async () => (await runs()).some(({ status }) => status === 'succeeded'), {
      describe: 'a reconcile',
    });
    await Promise.all(kept.map((one) => one.stop()));
    expect(await runs()).toMatchObject([{ status: 'succeeded' }]);
  });
});

it('a nightly reconcile runs once after the run of each night has ended', async () => {
  const { db } = world.state;
  const night = () => reconcileNightly(world.reconciling());
  expect(await night()).toBeUndefined(); // no schedule
  await registerSchedule(db, 'nightly', { pattern: '0 2 * * *', timezone: 'UTC' });
  expect(await night()).toBeUndefined(); // no night yet
  await world.sql`UPDATE slotsync.schedules SET last_due = now() - interval '1 hour'`;
  const { run: ofNight } = await startRun(db, {
    kind: 'sync',
    lane: 'sync',
    startedBy: 'schedule',
    streams: ['rooms'],
  });
  expect(await night()).toBeUndefined(); // it is under way
  await cancelRun(db, ofNight.id);
  // A reconcile that failed is still owed.
  world.sandbox.failNext({ path: '/reservations/find', fault: 'status', status: 400 });
  await expect(night()).rejects.toMatchObject({ code: 'refused' });
  expect(await night()).toMatchObject({ read: 'window' });
  expect(await night()).toBeUndefined();
  await world.sql`UPDATE slotsync.schedules SET last_due = now() WHERE name = 'nightly'`;
  expect(await night()).toMatchObject({ read: 'window' });
});

it('the log of a reconcile holds no keys and no titles', async () => {
  await bookHere(7);
  await world.sql`UPDATE bookings SET title = 'Ragnhild Exempelsson'`;
  await run();
  await world.sql`INSERT INTO bookings VALUES (19550505, now(), now(), 'A'), (19550505, now(), now(), 'A')`;
  await expect(run({ from: 0, to: Date.now() + DAY * 1000 })).rejects.toMatchObject({
    code: 'key_not_unique',
  });
  const own = world.lines.filter((line) => line.includes('reconcile'));
  expect(own.length).toBeGreaterThan(0);
  expect(world.lines.join('\n')).not.toMatch(/Ragnhild|19550505|res_7/);
});
