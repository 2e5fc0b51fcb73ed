// Polling by a cursor: no change is missed, whatever the values and the order of commits. An accepted row costs nothing, and no
// row stops polling for ever.
import { beforeEach, describe, expect, it } from 'vitest';
import { createPoll, type Poll } from '../../src/sync/detect/poll-cursor.js';
import { takeChanges } from '../../src/state/inbox/take-changes.js';
import { createMirror } from '../../src/mirror/mirror.js';
import { readPolledRecords, readPlanMarks } from '../../src/state/records/read/plan-marks.js';
import { listStreams, noteProblems } from '../../src/state/streams.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS, type Declaration } from '../support/campus.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const config = (changes: Partial<Declaration> = {}): SlotsyncConfig => ({
  streams: {
    rooms: { ...ROOMS, cursor: 'changed', ...changes },
    courses: { ...COURSES, fields: {}, cursor: 'changed' },
  },
});

const open = keepWorlds();
let world: World;
let clock = 0;
beforeEach(async () => {
  clock = 0;
  world = await open(config());
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text, changed timestamptz, number int)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, room text, changed timestamptz)`;
});

/** Creates a poll as a worker does at its start. */
const poller = (stream = 'rooms', overlapSeconds = 60, mirror = world.mirror): Poll =>
  createPoll(
    { mirror, state: world.state, polling: { overlapSeconds, lagSeconds: 1 }, now: () => clock },
    world.stream(stream),
  );
const poll = (stream = 'rooms', overlapSeconds = 60) => poller(stream, overlapSeconds)();
async function waiting(): Promise<string[]> {
  const rows = await world.sql<{ key: string }[]>`
    SELECT local_key AS key FROM slotsync.changes WHERE run_id IS NULL ORDER BY id`;
  return rows.map(({ key }) => key);
}
const stateOf = async (name: string) =>
  (await listStreams(world.state.db)).find(({ stream }) => stream === name);
/** Returns the watermark. Undefined: the stream has no watermark. */
async function mark(name = 'rooms') {
  const { cursor, cursorKey } = (await stateOf(name)) ?? {};
  return cursor === null || cursor === undefined ? undefined : { cursor, localKey: cursorKey };
}
/** Works everything that is in the inbox. */
async function work(): Promise<void> {
  for (;;) {
    const taken = await takeChanges(world.state.db, ['rooms', 'courses']);
    if (typeof taken === 'string') return;
    await world.finish(taken.runId, (await world.planRun(taken.runId)).queue);
  }
}
/** Inserts rooms whose cursor is `microseconds` after a fixed moment in the past. */
const rooms = (codes: string[], microseconds: number, name = 'x') => world.sql`
  INSERT INTO rooms (code, name, changed)
  SELECT c, ${name}, timestamptz '2026-01-15 08:00:00+00' + ${microseconds}::int * interval '1 microsecond'
  FROM unnest(${codes}::text[]) AS c
  ON CONFLICT (code) DO UPDATE SET name = excluded.name, changed = excluded.changed`;
const SECOND = 1_000_000;
/** Syncs one room of that moment. */
async function syncRoom(): Promise<void> {
  await rooms(['A'], 0);
  await world.sync();
}

describe('polling by a cursor', () => {
  it('leaves a stream that was never synced to its first sync', async () => {
    await rooms(['A'], 0);
    expect(await poll()).toBeUndefined();
    expect(await waiting()).toEqual([]);
  });

  it('leaves the first reading to a sync that is under way', async () => {
    await syncRoom();
    await rooms(['B'], SECOND);
    const { runId, queue } = await world.plan();
    expect(await poll()).toBeUndefined();
    await world.finish(runId, queue);
    expect(await poll()).toEqual({ rows: 2, put: 0, more: false });
  });

  it('begins at the beginning, adds only rows that differ, and moves past accepted rows', async () => {
    await rooms(['A', 'B', 'C'], 123_456);
    await world.sync();
    await rooms(['B'], SECOND, 'y');
    expect(await poll()).toEqual({ rows: 3, put: 1, more: false });
    expect(await waiting()).toEqual(['B']);
    expect(await mark()).toMatchObject({ cursor: '2026-01-15 08:00:00.123456+00', localKey: 'C' });
    // It waits there already, and it is not accepted yet.
    expect(await poll()).toMatchObject({ put: 0 });
    expect(await mark()).toMatchObject({ localKey: 'C' });
    await work();
    expect(world.fieldsOf('room_B')).toEqual({ 'room.name': 'y' });
    expect(await poll()).toMatchObject({ put: 0 });
    expect(await mark()).toMatchObject({ cursor: '2026-01-15 08:00:01+00', localKey: 'B' });
  });

  it('misses no row of many with one cursor value, even if the rows come later', async () => {
    await rooms(['S'], 0);
    await world.sync();
    const codes = Array.from({ length: 3000 }, (_, at) => `k${at}`);
    await rooms(codes, 1);
    expect(await poll('rooms', 0)).toMatchObject({ put: 3000 });
    await work();
    await poll('rooms', 0);
    expect(await mark()).toMatchObject({ cursor: '2026-01-15 08:00:00.000001+00' });
    await rooms(['a-late-tie', 'k7'], 1, 'y');
    await rooms(['next'], 2);
    expect(await poll('rooms', 0)).toMatchObject({ put: 3 });
    expect(await waiting()).toEqual(['a-late-tie', 'k7', 'next']);
  });

  it('finds a row that was committed after later ones, within the overlap', async () => {
    await syncRoom();
    await world.sql.begin(async (tx) => {
      await tx`INSERT INTO rooms VALUES ('late', 'x', '2026-01-15 08:00:10+00')`;
      await tx`UPDATE rooms SET name = 'y', changed = '2026-01-15 08:00:20+00' WHERE code = 'A'`;
      await rooms(['B'], 30 * SECOND);
      expect(await poll()).toMatchObject({ put: 1 });
      await work();
      await poll();
      expect(await mark()).toMatchObject({ localKey: 'B' });
    });
    expect(await poll()).toMatchObject({ put: 2 });
    // The watermark never goes back.
    expect(await mark()).toMatchObject({ localKey: 'B' });
    await work();
    expect(world.fieldsOf('room_late')).toEqual({ 'room.name': 'x' });
    expect(world.fieldsOf('room_A')).toEqual({ 'room.name': 'y' });
  });

  it('reads up to shortly before the mirror’s clock, and skips rows without a cursor', async () => {
    await syncRoom();
    await world.sql`INSERT INTO rooms VALUES ('future', 'x', now() + interval '1 hour'), ('null', 'x', NULL)`;
    expect(await poll()).toEqual({ rows: 1, put: 0, more: false });
    expect(await mark()).toMatchObject({ localKey: 'A' });
  });

  it('moves past rows that may never be settled, and checks them again', async () => {
    await syncRoom();
    world.sandbox.refuseObject('room_dead', { status: 400, message: 'no' });
    await world.sql`INSERT INTO courses VALUES ('waits', 'nowhere', '2026-01-15 08:00:00+00')`;
    await rooms(['dead'], SECOND);
    await rooms(['later'], 2 * SECOND);
    await world.sync();
    expect(await poll()).toMatchObject({ put: 0 });
    expect(await mark()).toMatchObject({ localKey: 'later' });
    expect(await poll('courses')).toMatchObject({ put: 1 });
    expect(await mark('courses')).toMatchObject({ localKey: 'waits' });
    await work();
    // Out of the overlap it costs nothing any more.
    await world.sql`UPDATE courses SET changed = changed - interval '1 hour'`;
    expect(await poll('courses')).toMatchObject({ put: 0 });
    // Another value of a refused row is looked at.
    await rooms(['dead'], 3 * SECOND, 'better');
    expect(await poll()).toMatchObject({ put: 1 });
  });

  it('is done by one process at a time', async () => {
    await syncRoom();
    await world.sql.begin(async (tx) => {
      await tx`SELECT slotsync.take_lock('polling', true)`;
      expect(await poll()).toBe('busy');
    });
    expect(await poll()).toBeDefined();
  });

  it('lets at most ten thousand keys wait, and continues where it stopped', async () => {
    await syncRoom();
    await world.sql`
      INSERT INTO rooms (code, name, changed)
      SELECT 'm' || i, 'x', timestamptz '2026-01-15 09:00:00+00' FROM generate_series(1, 12000) AS i`;
    expect(await poll()).toMatchObject({ put: 10_000, more: true });
    expect(await poll()).toMatchObject({ put: 0, more: true });
    await world.sql`DELETE FROM slotsync.changes WHERE local_key < 'm5'`;
    const more = await poll();
    expect(more !== 'busy' && more?.put).toBeGreaterThan(1000);
    expect((await waiting()).length).toBe(10_000);
  });
});

describe('a cursor that is no time', () => {
  beforeEach(() => world.configure(config({ cursor: 'number' })));
  const put = (code: string, number: number) =>
    world.sql`INSERT INTO rooms (code, name, number) VALUES (${code}, 'x', ${number})`;

  const putMany = (from: number, to: number) => world.sql`
    INSERT INTO rooms (code, name, number) SELECT 'm' || i, 'x', i FROM generate_series(${from}::int, ${to}::int) AS i`;

  it('is read again by the time of its reading, so that late commits are found', async () => {
    await put('A', 10);
    await putMany(1001, 1120);
    await put('B', 9_007_199);
    await world.sync();
    const look = poller();
    await look();
    expect(await mark()).toBeUndefined();
    clock = 61_000;
    await put('late', 5);
    expect(await look()).toMatchObject({ rows: 123, put: 1 });
    await work();
    clock = 200_000;
    await look();
    // The newest hundred rows are read again each time.
    expect(await mark()).toMatchObject({ cursor: '1021', localKey: 'm1021' });
    expect(await look()).toMatchObject({ rows: 101, put: 0 });
  });

  it.each([
    ['numeric', '1e30', "'NaN'"],
    ['double precision', '1e300', "'Infinity'::float8"],
    ['real', '1e30', "'-Infinity'::float4"],
    ['bigint', '9223372036854775807', 'NULL'],
  ])('hides no later row after a mistaken value: type %s', async (type, huge, notRead) => {
    await world.sql.unsafe(`ALTER TABLE rooms ALTER COLUMN number TYPE ${type}`);
    await putMany(1, 140);
    await world.sql.unsafe(`
      INSERT INTO rooms (code, number) SELECT 'huge' || i, ${huge} FROM generate_series(1, 60) AS i
      UNION ALL SELECT 'none', ${notRead}`);
    await world.sync();
    const look = poller();
    expect(await look()).toMatchObject({ rows: 200, put: 0 });
    clock = 61_000;
    await look();
    expect(await mark()).toMatchObject({ localKey: 'm100' });
    await put('later', 141);
    expect(await look()).toMatchObject({ put: 1 });
    expect(await waiting()).toEqual(['later']);
  });
});

describe('a timestamp without a zone', () => {
  it('is read whatever zone it is meant in', async () => {
    await world.sql`ALTER TABLE rooms ALTER COLUMN changed TYPE timestamp`;
    await syncRoom();
    await world.sql`INSERT INTO rooms VALUES ('east', 'x', (now() AT TIME ZONE 'Asia/Tokyo'))`;
    expect(await poll()).toMatchObject({ put: 1 });
    await work();
    await poll();
    expect(await mark()).toMatchObject({ localKey: 'east' });
    await world.sql`INSERT INTO rooms VALUES ('never', 'x', now() + interval '2 days')`;
    expect(await poll()).toMatchObject({ put: 0 });
  });

  it('is read in the hour when clocks are set back, however short the overlap is', async () => {
    await world.sql`ALTER TABLE rooms ALTER COLUMN changed TYPE timestamp`;
    const put = (code: string, changed: string) => world.sql`
      INSERT INTO rooms (code, name, changed) VALUES (${code}, 'x', ${changed}::text::timestamp)`;
    await put('first', '2026-10-25 02:59:59');
    await world.sync();
    await poll();
    expect(await mark()).toMatchObject({ localKey: 'first' });
    await put('again', '2026-10-25 02:00:00');
    expect(await poll('rooms', 60)).toMatchObject({ put: 1 });
    expect(await waiting()).toEqual(['again']);
  });

  it('is not read where it is infinite, like one with a zone', async () => {
    for (const type of ['timestamp', 'timestamptz', 'date']) {
      await world.sql.unsafe(`ALTER TABLE rooms ALTER COLUMN changed TYPE ${type}`);
      await world.sql`TRUNCATE rooms, slotsync.streams`;
      await world.sql`INSERT INTO rooms (code, changed) VALUES ('A', '2026-01-15'), ('past', '-infinity'), ('never', 'infinity')`;
      await world.sync();
      expect(await poll()).toMatchObject({ rows: 1 });
      expect(await mark()).toMatchObject({ localKey: 'A' });
    }
  });
});

describe('a new beginning of polling', () => {
  const put = (code: string, number: number) =>
    world.sql`INSERT INTO rooms (code, name, changed, number) VALUES (${code}, 'x', '2026-01-15 08:00:00+00', ${number})`;
  /** The watermark of a number moves with the second look, when the overlap has passed. */
  async function pollNumbers(): Promise<void> {
    const look = poller();
    await look();
    clock += 61_000;
    await look();
  }

  it('happens once when another column becomes the cursor', async () => {
    await rooms(['A', 'B'], 0);
    await world.sync();
    await poll();
    expect(await mark()).toMatchObject({ cursor: '2026-01-15 08:00:00+00', localKey: 'B' });
    world.configure(config({ cursor: 'number' }));
    await put('C', 1);
    expect(await poll()).toEqual({ rows: 1, put: 1, more: false, anew: 'other_column' });
    expect(await mark()).toBeUndefined();
    expect(await poll()).toEqual({ rows: 1, put: 0, more: false });
  });

  it('happens when the column gets another type', async () => {
    await syncRoom();
    await poll();
    await world.sql`INSERT INTO rooms VALUES ('B', 'x', '2026-01-10')`;
    await world.sql`ALTER TABLE rooms ALTER COLUMN changed TYPE date`;
    const mirror = createMirror({ url: world.url });
    const look = poller('rooms', 60, mirror);
    expect(await look()).toMatchObject({ rows: 2, anew: 'other_type' });
    await work();
    expect(await look()).toMatchObject({ rows: 2, put: 0 });
    expect(await mark()).toMatchObject({ cursor: '2026-01-15', localKey: 'A' });
    expect((await look()) as object).not.toHaveProperty('anew');
    await mirror.close();
  });

  it('happens when the values of a time went back', async () => {
    await rooms(['A'], 0);
    await rooms(['B'], 1800 * SECOND);
    await world.sync();
    await poll();
    expect(await mark()).toMatchObject({ localKey: 'B' });
    await world.sql`DELETE FROM rooms WHERE code = 'B'`;
    await rooms(['A'], SECOND, 'y');
    expect(await poll()).toEqual({ rows: 0, put: 0, more: true, anew: 'values_went_back' });
    expect(await mark()).toBeUndefined();
    expect(await poll()).toEqual({ rows: 1, put: 1, more: false });
    expect(await waiting()).toEqual(['A']);
    await work();
    await poll();
    expect(await mark()).toMatchObject({ localKey: 'A' });
  });

  it('happens when the values of a number went back', async () => {
    world.configure(config({ cursor: 'number' }));
    await world.sql`
      INSERT INTO rooms (code, name, number) SELECT 'm' || i, 'x', 1000 + i FROM generate_series(1, 140) AS i`;
    await world.sync();
    await pollNumbers();
    expect(await mark()).toMatchObject({ cursor: '1040' });
    await world.sql`UPDATE rooms SET number = number - 1000, name = 'y'`;
    expect(await poll()).toMatchObject({ anew: 'values_went_back' });
    expect(await poll()).toMatchObject({ put: 140 });
  });

  it('does not happen when the newest row was changed just now', async () => {
    await syncRoom();
    await poll();
    await world.sql`UPDATE rooms SET changed = now() + interval '500 milliseconds', name = 'y'`;
    expect(await poll()).toMatchObject({ rows: 0, put: 0 });
    expect(await mark()).toMatchObject({ localKey: 'A' });
  });
});

describe('an impossible value of a cursor', () => {
  it.each([
    ['timestamptz', ['infinity', '-infinity', '48113-01-01 00:00:00+00']],
    ['timestamp', ['infinity', '-infinity', '48113-01-01 00:00:00']],
    ['date', ['infinity', '-infinity', '48113-01-01']],
    ['double precision', ['Infinity', '-Infinity', 'NaN']],
    ['numeric', ['NaN', 'NaN', 'NaN']],
  ])('is counted, hides no other row, and is no watermark: %s', async (type, values) => {
    const isTime = ['timestamptz', 'timestamp', 'date'].includes(type);
    await world.sql.unsafe(
      `ALTER TABLE rooms ALTER COLUMN changed TYPE ${type} USING ${isTime ? `changed::${type}` : 'NULL'}`,
    );
    const good = isTime ? '2026-01-15' : '7';
    const insert = (code: string, value: string) =>
      world.sql.unsafe(`INSERT INTO rooms (code, name, changed) VALUES ('${code}', 'x', '${value}')`);
    await insert('A', good);
    await world.sync();
    for (const [at, value] of values.entries()) await insert(`wrong${at}`, value);
    await insert('B', good);
    const look = poller();
    expect(await look()).toEqual({ rows: 2, put: 1, more: false, impossible: 3 });
    expect(await waiting()).toEqual(['B']);
    await work();
    clock = 61_000;
    // They are counted once an hour.
    expect(await look()).toEqual({ rows: 2, put: 0, more: false });
    if (isTime) expect(await mark()).toMatchObject({ localKey: 'B' });
    else expect(await mark()).toBeUndefined();
    clock = 3_700_000;
    expect(await look()).toMatchObject({ impossible: 3 });
  });
});

describe('a poll that fails', () => {
  const problem = async () => (await stateOf('rooms'))?.problem ?? null;

  it('is the problem of its stream until a poll reads the stream again', async () => {
    world.configure(config({ from: 'seen' }));
    await world.sql`CREATE VIEW seen AS SELECT * FROM rooms`;
    await syncRoom();
    await poll();
    expect(await problem()).toBeNull();
    await world.sql`
      CREATE OR REPLACE VIEW seen AS SELECT code, (1 / 0)::text AS name, changed, number FROM rooms`;
    await rooms(['B'], SECOND);
    await expect(poll()).rejects.toMatchObject({ code: 'mirror_source' });
    const noted = await problem();
    expect(noted).toMatchObject({ status: 'failed', code: 'mirror_source', isWhole: false, runId: null });
    await expect(poll()).rejects.toMatchObject({ code: 'mirror_source' });
    expect((await problem())?.since).toBe(noted?.since);
    await world.sql`CREATE OR REPLACE VIEW seen AS SELECT * FROM rooms`;
    expect(await poll()).toMatchObject({ put: 1 });
    expect(await problem()).toBeNull();
  });

  it('leaves the problem that a run has found', async () => {
    await syncRoom();
    const found = { status: 'failed', code: 'x', message: 'x', runKind: 'sync', failed: 0, dead: 0 } as const;
    await noteProblems(world.state.db, ['rooms'], { ...found, runId: 1, isWhole: true });
    await poll();
    expect(await problem()).toMatchObject({ runId: 1 });
  });
});

describe('the mark of a record', () => {
  it.each([
    ['as accepted', `source_hash = 7`, '7'],
    ['claimed', `source_hash = 7, claimed_by = 'x'`, 'doubt:a:7'],
    ['in doubt', `source_hash = 7, in_doubt = true`, 'doubt:a:7'],
    ['dead and in doubt', `status = 'dead', in_doubt = true, refused_hash = 3`, 'dead:a:3'],
    ['accepted, its row seen to be gone', `source_hash = 7, gone_since = now()`, 'synced:a:7:gone'],
    ['retired', `status = 'retired'`, 'retired:a:'],
    ['waiting for reservations', `status = 'deferred', error_code = 'still_reserved'`, 'reserved:a:'],
    ['refused its retirement', `status = 'dead', error_code = 'retirement_refused_409'`, 'unretired:a:'],
    ['sharing an id', `status = 'failed', error_code = 'external_id_shared'`, 'shared:n:'],
    ['failed after it was accepted', `status = 'failed', object_hash = 'o'`, 'failed:a:'],
    ['refused alone', `status = 'failed', error_code = 'refused_400', refused_hash = 3`, 'failed:n:3'],
    ['never sent', `status = 'pending'`, 'pending:n:'],
  ])('describes a record: %s', async (_, columns, expected) => {
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', 'm', 'synced')`;
    await world.sql.unsafe(`UPDATE slotsync.records SET ${columns} WHERE local_key = 'm'`);
    const lines: string[] = [];
    for await (const block of readPlanMarks(world.state, 'rooms')) lines.push(...block);
    const polled = await readPolledRecords(world.state.db, 'rooms', ['m', 'none']);
    expect(lines).toEqual([`m\t${expected}`]);
    expect([polled.get('m')?.mark, polled.get('none')?.mark]).toEqual([expected, null]);
  });
});
