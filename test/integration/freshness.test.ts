// Guarantee 11
// The age of the mirror's load, read with each plan, and its consequences: a hold, a warning, or a wait.
import { describe, expect, it } from 'vitest';
import { describeReason } from '../../src/sync/limits/hold-reason.js';
import { checkLoads } from '../../src/sync/operator/check.js';
import { listLoads } from '../../src/state/streams.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { createLoadWait, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { codes, keepRooms, reasonHeld, rooms, type RoomWorld } from '../support/steps.js';

const open = keepRooms();

type Freshness = NonNullable<SlotsyncConfig['freshness']>;
const QUERY = 'SELECT max(finished_at) FROM load_log';

/** Opens five rooms in a mirror with a log of its loads. */
async function openLoaded(freshness: Freshness = { query: QUERY }): Promise<RoomWorld> {
  const world = await open({ ...rooms(), freshness });
  await world.sql`DROP TABLE IF EXISTS load_log`;
  await world.sql`CREATE TABLE load_log (finished_at timestamptz)`;
  await world.addRooms(...codes(5));
  return world;
}

/** Notes one load, which ended `hours` ago, in place of all others. */
async function loaded(world: RoomWorld, hours: number): Promise<void> {
  await world.sql`TRUNCATE load_log`;
  await world.sql`INSERT INTO load_log VALUES (now() - ${hours} * interval '1 hour')`;
}

const loadOf = async (world: RoomWorld) => (await listLoads(world.state.db))[0];

describe('a load that is too old', () => {
  it('holds everything from the first sync on, until the mirror is loaded', async () => {
    const world = await openLoaded();
    await loaded(world, 50);
    const first = await world.sync();
    expect(first.run).toMatchObject({ status: 'held', plan: { rooms: { staleLoad: 'too_old', create: 5 } } });
    expect(reasonHeld(first.run, 'rooms', 'create')).toBe(
      'the load of the mirror is 2 d 2 h old, more than 26 h; 5 records would be created. Load the mirror, then: slotsync sync rooms; or if that is so: slotsync approve 1 --stream rooms --operation create',
    );
    expect(world.writes()).toEqual([]);
    await loaded(world, 1);
    expect((await world.sync()).run).toMatchObject({ status: 'succeeded' });
    expect(await loadOf(world)).toMatchObject({ problem: null, holds: false });
  });

  it('leaves no run succeeded, even if nothing differs, and holds single keys', async () => {
    const world = await openLoaded();
    await loaded(world, 1);
    await world.sync();
    await world.sql`UPDATE load_log SET finished_at = now() - interval '40 hours'`;
    expect((await world.sync()).run).toMatchObject({
      status: 'partial',
      errorCode: 'source_stale',
      errorMessage: 'rooms: the load of the mirror is too old or has no valid time',
    });
    await world.rename('r001', 'Aula');
    expect((await world.send('rooms', 'r001')).run).toMatchObject({ status: 'held' });
    expect(world.nameOf('r001')).toBe('Room r001');
  });

  it('holds nothing with `warn`, and leaves no run succeeded', async () => {
    const world = await openLoaded({ query: QUERY, then: 'warn', maxHours: 8 });
    await loaded(world, 9);
    expect((await world.sync()).run).toMatchObject({
      status: 'partial',
      errorCode: 'source_stale',
      holds: {},
    });
    expect(world.nameOf('r001')).toBe('Room r001');
    expect(await loadOf(world)).toMatchObject({ problem: 'too_old', holds: false, maxHours: 8 });
    // A freeze that holds the rest makes it no better.
    await world.freeze();
    await world.rename('r001', 'Aula');
    expect((await world.sync()).run).toMatchObject({
      status: 'partial',
      errorCode: 'source_stale',
      holds: { rooms: { frozen: { count: 1 } } },
    });
  });
});

it('a load older than the one before is held within its hours: a backup may have been restored', async () => {
  const world = await openLoaded();
  await loaded(world, 1);
  await world.sync();
  await loaded(world, 3);
  await world.rename('r001', 'as in the backup');
  const { run } = await world.sync();
  expect(run.status).toBe('held');
  expect(reasonHeld(run, 'rooms', 'update')).toContain(
    'the load of the mirror is 2 h 0 min older than the one before it: a backup may have been restored',
  );
  await loaded(world, 0);
  expect((await world.sync()).run.status).toBe('succeeded');
});

it('the time of a load is the latest value of a column of the stream', async () => {
  const world = await open(rooms({ freshness: { column: 'loaded_at', maxHours: 5 } }));
  await world.sql`ALTER TABLE rooms ADD loaded_at timestamptz DEFAULT now() - interval '6 hours'`;
  await world.addRooms('A', 'B');
  expect((await world.sync()).run.status).toBe('held');
  await world.sql`UPDATE rooms SET loaded_at = now() - interval '4 hours' WHERE code = 'B'`;
  expect((await world.sync()).run.status).toBe('succeeded');
  // The row that was loaded last is deleted: older, and within its hours.
  await world.sql`UPDATE rooms SET loaded_at = now() - interval '4 hours 30 minutes' WHERE code = 'A'`;
  await world.remove('B');
  expect((await world.sync()).run.status).toBe('succeeded');
  expect(await loadOf(world)).toMatchObject({ problem: null, olderThan: expect.any(Date) });
});

it('the reading of a load that a wrong clock dated into the future is replaced', async () => {
  const world = await openLoaded();
  await loaded(world, 1);
  await world.sync();
  await world.sql`UPDATE slotsync.freshness SET read_at = now() + interval '20 days'`;
  await loaded(world, 0);
  await world.sync();
  await world.sql`UPDATE load_log SET finished_at = now() - interval '40 hours'`;
  await world.sync();
  expect(await loadOf(world)).toMatchObject({ problem: 'too_old' });
});

it('the load is read in the transaction of the rows, and after their locks', async () => {
  const world = await openLoaded({ query: 'SELECT noted_load()' });
  await world.sql`CREATE OR REPLACE FUNCTION noted_load() RETURNS timestamptz LANGUAGE sql AS $$
    SELECT max(finished_at) FROM load_log
    WHERE EXISTS (SELECT FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'rooms'::regclass) $$`;
  await loaded(world, 1);
  const { run } = await world.sync();
  expect(await loadOf(world)).toMatchObject({ problem: null, message: null, loadedAt: expect.any(Date) });
  expect(run.status).toBe('succeeded');
});

describe('a query for the load without a valid answer', () => {
  const ANSWERS: [what: string, query: string, says: string, problem?: string][] = [
    [
      'nothing',
      'SELECT max(finished_at) FROM load_log',
      'the query returns nothing: no load time is recorded',
    ],
    ['no row', 'SELECT finished_at FROM load_log', 'the query returns nothing: no load time is recorded'],
    [
      'text',
      `SELECT '2026-01-01' AS loaded`,
      'the query returns no time; it must return a date, timestamp or timestamptz',
    ],
    [
      'two rows',
      'SELECT now() UNION ALL SELECT now()',
      'the query returns several rows; it must return one time: use max()',
    ],
    ['two columns', 'SELECT now(), now()', 'the query returns 2 columns; it must return one time'],
    [
      'infinity',
      `SELECT 'infinity'::timestamptz`,
      `the query returns 'infinity', which is not a finite time`,
    ],
    ['the future', `SELECT now() + interval '3 hours'`, '3 h 0 min in the future', 'future'],
    ['an error', 'SELECT now() WHERE 1 / (SELECT count(*) FROM load_log) > 0', 'the query failed: '],
    ['a parameter', 'SELECT now() WHERE $1 = 1', 'the query failed: '],
    ['no such table', 'SELECT max(at) FROM no_log', 'the query failed: relation "no_log" does not exist'],
    ['two statements', 'SELECT now()) AS a; DELETE FROM load_log; SELECT (now()', 'the query failed: '],
  ];

  it('holds everything, and the reason says why', async () => {
    const world = await openLoaded();
    for (const [what, query, says, problem = 'unreadable'] of ANSWERS) {
      await world.sql`DELETE FROM slotsync.freshness`;
      world.configure({ ...rooms(), freshness: { query } });
      const { run } = await world.sync();
      expect([what, run.status]).toEqual([what, 'held']);
      const hold = run.holds['rooms']?.create;
      expect(hold && describeReason(hold), what).toContain(says);
      expect([what, await loadOf(world)]).toMatchObject([what, { problem, holds: true }]);
      const findings = [];
      for await (const finding of checkLoads(world.mirror, [...world.deps().streams.values()], world.state))
        findings.push(finding);
      const result = problem === 'future' ? 'warning' : 'fault';
      expect(findings).toMatchObject([
        { what: 'load of rooms', text: expect.stringContaining(says), result },
      ]);
    }
  });

  it('holds nothing with `warn`', async () => {
    const world = await openLoaded({ query: 'SELECT max(at) FROM no_log', then: 'warn' });
    expect((await world.sync()).run).toMatchObject({ status: 'partial', errorCode: 'source_stale' });
    expect(world.nameOf('r001')).toBe('Room r001');
  });
});

describe('a nightly sync that waits for a load', () => {
  it('starts when the load is newer than at the last sync, or when the wait is over', async () => {
    const world = await openLoaded();
    await loaded(world, 10);
    await world.sync();
    await registerSchedule(world.state.db, 'nightly', {
      pattern: '0 2 * * *',
      timezone: 'UTC',
      streams: ['rooms'],
      waitMinutes: 120,
    });
    await world.sql`UPDATE slotsync.schedules SET registered_at = '2026-05-01T12:00:00Z'`;
    const at = (time: string) => new Date(`2026-05-${time}:00Z`);
    const start = (now: Date) =>
      startScheduled({ ...world.deps(), mustWait: createLoadWait(world.deps(), { askEveryMs: 0 }) }, now);

    expect(await start(at('02T02:00'))).toEqual([]);
    // The load that an incremental run has seen meanwhile is newer than that of the last sync.
    await loaded(world, 9);
    await world.send('rooms', 'r001');
    const [run] = await start(at('02T02:30'));
    expect(run).toMatchObject({ streams: ['rooms'] });
    await world.work(run?.id ?? 0);

    expect(await start(at('03T03:59'))).toEqual([]);
    expect(await start(at('03T04:00'))).toHaveLength(1);

    // A pattern that is due again before the wait is over starts it anew no more than once.
    await world.sql`UPDATE slotsync.runs SET status = 'succeeded', finished_at = now()`;
    await world.sql`UPDATE slotsync.schedules SET pattern = '0 * * * *', last_due = '2026-05-03T04:00:00Z'`;
    expect(await start(at('03T06:59'))).toEqual([]);
    expect(await start(at('03T07:00'))).toHaveLength(1);
  });
});
