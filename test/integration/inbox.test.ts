// Guarantee 7
// The inbox on a real database: the changes that a run takes, the changes that stay, and the notification of each change. With
// very many changes the cost of each row stays the same, and a single change does not wait behind them.
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chooseAlerts } from '../../src/alerts/evaluate-alerts.js';
import { statusToText } from '../../src/commands/status.js';
import { reportDocument } from '../../src/documents/report.js';
import { situationDocument } from '../../src/documents/situation.js';
import {
  createMetrics,
  readConcernCounts,
  readCountedFacts,
  readGaugeFacts,
} from '../../src/http/metrics.js';
import { documentToHtml } from '../../src/render/html.js';
import { documentToText } from '../../src/render/text.js';
import { listCauses } from '../../src/situation/causes.js';
import { concerns } from '../../src/documents/concerns/concerns.js';
import { readReport } from '../../src/situation/report.js';
import { readSituation } from '../../src/situation/situation.js';
import { inSnapshot, type Queries } from '../../src/state/database.js';
import { configSchema } from '../../src/streams/config-schema.js';
import { addChanges, listenForChanges } from '../../src/state/inbox/add-changes.js';
import {
  addDueChecks,
  readTakenKeys,
  takeChanges,
  type TakenRun,
} from '../../src/state/inbox/take-changes.js';
import { readInbox, readInboxAge } from '../../src/state/inbox/read-inbox.js';
import { cancelRun, failRun } from '../../src/state/runs/end-run.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS } from '../support/campus.js';
import { keepRooms, until, type RoomWorld } from '../support/steps.js';

const CONFIG: SlotsyncConfig = { streams: { rooms: { ...ROOMS, retire: 'deactivate' }, courses: COURSES } };

const STREAMS = ['rooms', 'courses'];
const open = keepRooms();
let world: RoomWorld;
beforeEach(async () => {
  world = await open(CONFIG);
});

const add = (...keys: string[]) => addChanges(world.state.db, 'rooms', keys);
/** Takes changes from the inbox as a worker does. */
async function take(...given: string[]) {
  const streams = given.length > 0 ? given : STREAMS;
  await addDueChecks(world.state.db, streams);
  return takeChanges(world.state.db, streams);
}
async function taken(...streams: string[]): Promise<number> {
  const answer = await take(...streams);
  if (typeof answer === 'string') throw new Error(answer);
  return answer.runId;
}
const readStreams = async () => (await readInbox(world.state.db, STREAMS)).streams;
const keysOf = async (runId: number, stream = 'rooms') =>
  (await readTakenKeys(world.state.db, runId, stream)).toSorted();

describe('rows of other programs', () => {
  const writer = `slotsync_test_writer_${randomUUID().slice(0, 8)}`;

  it('have a stream and a key, and no other column, by the documented right', async () => {
    const { sql } = world;
    await sql.begin(async (tx) => {
      await tx.unsafe(`CREATE ROLE ${writer}; GRANT USAGE ON SCHEMA slotsync TO ${writer};
        GRANT INSERT (stream, local_key) ON slotsync.changes TO ${writer}; SET LOCAL ROLE ${writer}`);
      await tx`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
      for (const column of ['run_id', 'requested_at', 'not_before'])
        await expect(
          tx.savepoint((inner) =>
            inner.unsafe(
              `INSERT INTO slotsync.changes (stream, local_key, ${column}) VALUES ('rooms', 'B', NULL)`,
            ),
          ),
        ).rejects.toThrow('permission denied for table changes');
      await tx.unsafe(`RESET ROLE; DROP OWNED BY ${writer}; DROP ROLE ${writer}`);
    });
    expect(await keysOf(await taken())).toEqual(['A']);
  });

  it.each([
    ['an infinite time', `'rooms', 'A', '-infinity', NULL`, 'changes_times'],
    ['an infinite delay', `'rooms', 'A', now(), 'infinity'`, 'changes_times'],
    ['a key that is too long', `'rooms', repeat('a', 1025), now(), NULL`, 'changes_size'],
    ['a stream that is too long', `repeat('a', 1025), 'A', now(), NULL`, 'changes_size'],
  ])('are refused with %s', async (_, values, constraint) => {
    const insert = `INSERT INTO slotsync.changes (stream, local_key, requested_at, not_before) VALUES (${values})`;
    await expect(world.sql.unsafe(insert)).rejects.toMatchObject({ constraint_name: constraint });
  });

  it('break neither reading nor taking, whatever text they hold', async () => {
    await world.sql`INSERT INTO rooms VALUES ('A', 'Room A'), ('B', 'Room B')`;
    const odd = ['\u001b]0;title\u0007\u001b[2J', 'a\u0001b', '', '%s\\|"', '🏫'.repeat(256)];
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at, run_id)
      SELECT s, k, t, r FROM unnest(${[...odd, 'rooms', 'runs']}::text[]) AS s,
        unnest(${[...odd, 'A']}::text[]) AS k,
        unnest(ARRAY['4713-01-02 BC', '294276-01-01', 'now']::timestamptz[]) AS t,
        unnest(ARRAY[NULL, -1, 9223372036854775807]::bigint[]) AS r`;
    const streams = await readStreams();
    expect(streams.map(({ stream }) => stream)).toEqual(expect.arrayContaining([...odd, 'rooms', 'runs']));
    expect(streams.every(({ oldestSeconds }) => Number.isFinite(oldestSeconds))).toBe(true);
    expect(await readInboxAge(world.state.db)).toEqual({
      changes: 7 * 6 * 3,
      oldestSeconds: expect.any(Number),
    });
    const { run } = await world.work(await taken());
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 1 } } });
    expect(await world.sql`SELECT DISTINCT stream FROM slotsync.changes WHERE stream = 'rooms'`).toEqual([]);
    await world.sql`DELETE FROM slotsync.changes`;
  });

  it('show ten names and a number of very many made-up streams, beside all configured streams', async () => {
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at)
      SELECT 'made-up-' || i, k, now() - interval '2 hours' FROM generate_series(1, 20000) AS i, unnest(ARRAY['A', 'B']) AS k`;
    await add('A');
    const streams = STREAMS;
    const { db } = world.state;
    const situation = { ...(await readSituation(db, { streams })), quota: null };
    expect(situation.inbox.streams.map(({ stream }) => stream)).toContain('rooms');
    expect(situation.inbox).toMatchObject({ others: { streams: 19_990, waiting: 39_980, inFlight: 0 } });
    const rules = configSchema.shape.alerts.parse({});
    const found = concerns(situation, rules);
    const report = await readReport(db, {}, { streams, requestsPerSecond: 20 });
    const { text } = createMetrics({
      quota: () => Promise.reject(new Error('not asked')),
      state: () => inSnapshot(db, (tx) => readGaugeFacts(tx, streams)),
      counts: () => inSnapshot(db, (tx) => readCountedFacts(tx, streams)),
      concerns: () => inSnapshot(db, (tx) => readConcernCounts(tx, streams)),
    });
    const surfaces = {
      status: statusToText(situation, 'UTC'),
      page: documentToHtml(situationDocument(situation), 'UTC'),
      report: documentToText(reportDocument(report), { timeZone: 'UTC', columns: 80 }),
      failures: JSON.stringify(await listCauses(db, {}, streams)),
      alerts: JSON.stringify(chooseAlerts(found, rules, { timeZone: 'UTC', now: situation.now })),
      metrics: await text(),
      json: JSON.stringify({ ...situation, found }),
    };
    for (const [name, said] of Object.entries(surfaces)) {
      const names = new Set(said.match(/made-up-\d+/g));
      expect(names.size, name).toBeLessThanOrEqual(10);
      expect(names.size, name).toBe(['failures', 'alerts', 'metrics'].includes(name) ? 0 : 10);
    }
    for (const name of ['status', 'report', 'page', 'alerts'] as const)
      expect(surfaces[name].replaceAll(/<[^>]+>/g, ''), name).toMatch(/20\s000 streams/);
    expect(surfaces.metrics).toContain('slotsync_inbox_changes 40001');
    await world.sql`DELETE FROM slotsync.changes`;
  });
});

describe('a take from the inbox', () => {
  it('takes each key once, and leaves it while its run is unfinished, although it changes again', async () => {
    await add('A');
    await add('A');
    const first = await taken();
    const made = { lane: 'incremental', startedBy: 'change', streams: ['rooms'], status: 'planning' };
    expect(await readRun(world.state.db, first)).toMatchObject({ kind: 'incremental', ...made });
    expect(await keysOf(first)).toEqual(['A']);
    expect(await take()).toBe('nothing');
    await add('A', 'A', 'B');
    const second = await taken();
    expect(await keysOf(second)).toEqual(['B']);
    expect(await take()).toBe('nothing');
    await world.work(first);
    expect(await keysOf(await taken())).toEqual(['A']);
  });

  it('does not see a change that is not committed', async () => {
    await world.sql.begin(async (tx) => {
      await tx`INSERT INTO slotsync.changes (stream, local_key) VALUES ('rooms', 'A')`;
      expect(await take()).toBe('nothing');
    });
    expect(await keysOf(await taken())).toEqual(['A']);
  });

  it('leaves unknown streams, and changes that are due later', async () => {
    await addChanges(world.state.db, 'sheds', ['S']);
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, not_before) VALUES ('rooms', 'A', now() + interval '1 minute')`;
    expect(await take()).toBe('nothing');
    expect(await readStreams()).toMatchObject([
      { stream: 'rooms', waiting: 1, later: 1, inFlight: 0 },
      { stream: 'sheds', waiting: 1, later: 0, inFlight: 0 },
    ]);
    // A fresh change does not wait for the other's time.
    await add('A');
    expect(await keysOf(await taken())).toEqual(['A']);
    expect(await readStreams()).toMatchObject([{ stream: 'rooms', waiting: 0, inFlight: 1 }, {}]);
  });

  it('is done by one process at a time, and starts at most four runs', async () => {
    await add('A');
    await world.sql.begin(async (tx) => {
      await tx`SELECT slotsync.take_lock('inbox', true)`;
      expect(await take()).toBe('busy');
    });
    for (const key of ['A', 'B', 'C', 'D']) {
      await add(key);
      await taken();
    }
    await add('E', 'F');
    expect(await take()).toBe('nothing');
    const [first] = await world.sql<{ id: number }[]>`SELECT min(id)::int AS id FROM slotsync.runs`;
    await world.work(first?.id ?? 0);
    expect(await keysOf(await taken())).toEqual(['E', 'F']);
  });
});

describe('an incremental run that has ended', () => {
  it('leaves no change behind, and wakes workers only if other changes wait', async () => {
    await world.sql`INSERT INTO rooms VALUES ('A', 'Aula')`;
    const heard: string[] = [];
    await add('A', 'never was');
    const first = await taken();
    await add('A');
    const { unlisten } = await world.sql.listen('slotsync_changes', (payload) => void heard.push(payload));
    const { run } = await world.work(first);
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 1 } } });
    await world.sql`SELECT pg_notify('slotsync_changes', 'first')`;
    await world.work(await taken());
    await world.sql`SELECT pg_notify('slotsync_changes', 'second')`;
    expect(await readStreams()).toEqual([]);
    await until(() => heard.includes('second'), { describe: 'the last notification' });
    expect(heard).toEqual(['', 'first', 'second']);
    await unlisten();
  });

  it('returns its unsent keys, and not the sent ones, when it is cancelled', async () => {
    world.configure({ streams: { rooms: { ...ROOMS, batchSize: 1 } } });
    await world.sql`INSERT INTO rooms VALUES ('A', 'Aula'), ('B', 'Byrå')`;
    await add('A', 'B');
    const runId = await taken();
    const [first = 0] = (await world.planRun(runId)).queue;
    await world.apply(first);
    await world.cancel(runId);
    expect(
      await world.sql`SELECT local_key, run_id, not_before > now() AS later FROM slotsync.changes`,
    ).toEqual([{ local_key: 'B', run_id: null, later: true }]);
    await world.sql`UPDATE slotsync.changes SET not_before = NULL`;
    // While it is planned, nothing is sent yet.
    await add('C');
    await world.cancel(await taken());
    expect(await readStreams()).toMatchObject([{ waiting: 2, later: 2 }]);
  });

  it('returns its keys after a delay that grows with the age of the change when it failed', async () => {
    for (const [ago, seconds] of [
      ['0 minutes', 60],
      ['6 minutes', 3 * 60],
      ['1 day', 10 * 60],
    ] as const) {
      await world.sql`
        INSERT INTO slotsync.changes (stream, local_key, requested_at) VALUES ('rooms', ${ago}, now() - ${ago}::text::interval)`;
      await failRun(world.state.db, await taken(), { code: 'x', message: 'y' });
      const [row] = await world.sql<{ wait: number }[]>`
        SELECT extract(epoch FROM not_before - now())::float8 AS wait FROM slotsync.changes WHERE local_key = ${ago}`;
      expect(row?.wait, ago).toBeGreaterThan(seconds - 10);
      expect(row?.wait, ago).toBeLessThan(seconds + 10);
    }
  });

  it('returns the keys of batches that are out of attempts', async () => {
    await world.sql`INSERT INTO rooms VALUES ('A', 'Aula')`;
    world.sandbox.failNext({ path: '/v1/objects', fault: 'status', times: 9 });
    await add('A');
    const { run } = await world.work(await taken());
    expect(run.status).toBe('failed');
    expect(await readStreams()).toMatchObject([{ stream: 'rooms', waiting: 1, later: 1 }]);
  });
});

describe('a record that waits for another record', () => {
  const addCourse = () => world.sql`INSERT INTO courses VALUES ('C', 'Kurs', 'A')`;
  const addRoom = () => world.sql`INSERT INTO rooms VALUES ('A', 'Aula')`;

  it('is sent when an incremental run accepts the other record', async () => {
    await addCourse();
    await addChanges(world.state.db, 'courses', ['C']);
    await world.work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    expect(await take()).toBe('nothing');
    await addRoom();
    await add('A');
    await world.work(await taken());
    await world.work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'synced' });
    expect(world.fieldsOf('course_C')).toMatchObject({ 'course.room': 'room_A' });
    expect(await take()).toBe('nothing');
  });

  it('is sent when the other record arrives while the first is being deferred', async () => {
    await addCourse();
    await addChanges(world.state.db, 'courses', ['C']);
    const run = await taken();
    const { queue } = await world.planRun(run);
    await addRoom();
    await add('A');
    const parent = await taken();
    // The room's outcome is written and not committed when the course's is.
    await world.sql`INSERT INTO slotsync.records (stream, local_key, status) VALUES ('rooms', 'A', 'pending')`;
    await world.sql.begin(async (tx) => {
      await tx`UPDATE slotsync.records SET external_id = 'room_A' WHERE stream = 'rooms'`;
      await world.finish(run, queue);
    });
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    expect(await readStreams()).toContainEqual(expect.objectContaining({ stream: 'courses', waiting: 1 }));
    await world.work(parent);
    await world.work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'synced' });
  });

  const waiting = async () => [
    ...(await world.sql`SELECT stream, local_key FROM slotsync.changes WHERE run_id IS NULL`),
  ];

  it('is sent when a sync of only the other stream accepts the other record', async () => {
    await addCourse();
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    await addRoom();
    await world.sync('rooms');
    expect(await waiting()).toEqual([{ stream: 'courses', local_key: 'C' }]);
    await world.sync('rooms');
    expect(await waiting()).toHaveLength(1);
    await world.work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'synced' });
    expect(world.fieldsOf('course_C')).toMatchObject({ 'course.room': 'room_A' });
  });

  it('is sent when an unfinished run checked it before a sync accepts the other record', async () => {
    world.configure({ streams: { rooms: ROOMS, courses: { ...COURSES, batchSize: 1 } } });
    await addCourse();
    await world.sql`INSERT INTO courses VALUES ('D', 'Kurs', NULL)`;
    const { runId, queue } = await world.planChanges('courses', 'C', 'D');
    const [first = 0, ...rest] = queue;
    await world.apply(first);
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    await addRoom();
    await world.sync('rooms');
    await world.finish(runId, rest);
    await world.drainInbox();
    expect(await world.statusesOf('courses')).toEqual({ C: 'synced', D: 'synced' });
  });

  it('is not checked over and over while the other record does not arrive', async () => {
    await addCourse();
    await world.sync();
    await world.sync('rooms');
    await world.sync('courses');
    await world.send('courses', 'C');
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    expect(await waiting()).toEqual([]);
  });
});

// Nothing polls here, so that only the notification can have been heard.
it('the listener of the inbox hears of a change after its connection was lost', async () => {
  let heard = 0;
  const listener = listenForChanges(world.url, () => heard++);
  try {
    await until(() => heard === 1, { describe: 'the first connection to listen' });
    const ended = await world.sql`
      SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE application_name = 'slotsync inbox' AND datname = current_database()`;
    expect(ended).toHaveLength(1);
    // It looks once when it listens again: what was notified meanwhile is lost.
    await until(() => heard === 2, { describe: 'a new connection to listen' });
    await add('A');
    await until(() => heard === 3, { describe: 'the change to be heard' });
  } finally {
    await listener.close();
  }
});

/** Adds changes of which the planner expects no row: ANALYZE sees the pages of uncommitted rows, but not the rows. */
const addMany = (count: number) =>
  world.sql.begin(async (tx) => {
    await tx`
      INSERT INTO slotsync.changes (stream, local_key) SELECT 'rooms', 'R' || i FROM generate_series(1, ${count}::int) AS i`;
    await world.sql`ANALYZE slotsync.changes`;
  });

async function takeRun(first?: 'oldest' | 'newest'): Promise<TakenRun> {
  const answer = await takeChanges(world.state.db, STREAMS, undefined, undefined, first && { first });
  if (typeof answer === 'string') throw new Error(answer);
  return answer;
}
async function takeAll(): Promise<TakenRun[]> {
  const runs: TakenRun[] = [];
  for (let answer = await take(); typeof answer !== 'string'; answer = await take()) runs.push(answer);
  return runs;
}

interface PlanNode {
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Join Filter'?: number;
  Plans?: PlanNode[];
}

/** Counts the rows that all nodes of a plan have read. */
function countRows(node: PlanNode): number {
  const { 'Rows Removed by Filter': filtered = 0, 'Rows Removed by Join Filter': unjoined = 0 } = node;
  const own = node['Actual Loops'] * (node['Actual Rows'] + filtered + unjoined);
  return (node.Plans ?? []).reduce((sum, each) => sum + countRows(each), own);
}

const ROLLBACK = new Error('rolled back');
async function undone(transaction: Promise<unknown>): Promise<void> {
  await expect(transaction).rejects.toBe(ROLLBACK);
}

/** Counts the rows that the statements of `work` read in the inbox. Rolls `work` back. */
async function rowsLookedAt(work: (tx: Queries) => Promise<unknown>): Promise<number> {
  const statements: string[] = [];
  const { options } = world.state.client;
  options.debug = (_, statement) => statements.push(statement);
  await undone(
    world.state.db.transaction(async (tx) => {
      await work(tx);
      throw ROLLBACK;
    }),
  );
  options.debug = false;
  let rows = 0;
  for (const message of statements.filter((text) => text.includes('slotsync.changes'))) {
    await undone(
      world.sql.begin(async (tx) => {
        for (const statement of message.split(';\n')) {
          const answers = await tx.unsafe<{ 'QUERY PLAN': { Plan: PlanNode }[] }[]>(
            `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ${statement}`,
          );
          for (const { Plan } of answers.flatMap((answer) => answer['QUERY PLAN'])) rows += countRows(Plan);
        }
        throw ROLLBACK;
      }),
    );
  }
  expect(rows).toBeGreaterThan(0);
  return rows;
}

describe('an inbox with very many changes', () => {
  afterEach(() => world.sql`TRUNCATE slotsync.changes, slotsync.runs, slotsync.batches`);

  const COUNT = 4000;
  /** At one row for each pair of keys it would be millions. */
  const MOST = 100 * COUNT;

  it('costs the same for each row when the row is taken beside a run with the same keys', async () => {
    await addMany(COUNT);
    await takeRun();
    await addMany(COUNT);
    await world.sql`INSERT INTO slotsync.changes (stream, local_key) SELECT 'courses', local_key FROM slotsync.changes`;
    expect(await rowsLookedAt((tx) => addDueChecks(tx, STREAMS))).toBeLessThan(MOST);
    expect(await rowsLookedAt((tx) => takeChanges(tx, STREAMS))).toBeLessThan(MOST);
  });

  it('costs the same for each row when the run of the row is cancelled', async () => {
    await world.sql`ANALYZE slotsync.batches`;
    await addMany(COUNT);
    const { runId } = await takeRun();
    await world.sql`
      INSERT INTO slotsync.batches (run_id, stream, level, keys, state)
      SELECT ${runId}::int, 'rooms', 0, array_agg(local_key), CASE WHEN id % 4 = 0 THEN 'planned' ELSE 'done' END
      FROM slotsync.changes GROUP BY id % 4`;
    expect(await rowsLookedAt((tx) => cancelRun(tx, runId))).toBeLessThan(MOST);
    await world.cancel(runId);
    const [left] =
      await world.sql`SELECT count(*)::int AS count, count(run_id)::int AS taken FROM slotsync.changes`;
    expect(left).toEqual({ count: COUNT / 4, taken: 0 });
  });

  it('checks a change once whose key is in flight, and takes it when the run has ended', async () => {
    await addMany(3000);
    const { runId } = await takeRun();
    await addMany(3000);
    await takeAll();
    expect(await addDueChecks(world.state.db, STREAMS)).toBe(false);
    expect(await take()).toBe('nothing');
    await failRun(world.state.db, runId, { code: 'x', message: 'y' });
    expect(await addDueChecks(world.state.db, STREAMS)).toBe(true);
    expect(await take()).toMatchObject({ lane: 'sync' });
  });

  it('makes one run of many changed keys, in the lane of a sync, in batches of a sync', async () => {
    await world.sql`INSERT INTO rooms (code, name) SELECT 'R' || i, 'Room' FROM generate_series(1, 2500) AS i`;
    await addMany(2500);
    const { runId, lane } = await takeRun();
    expect(lane).toBe('sync');
    await world.planRun(runId);
    const batches = await world.sql`SELECT cardinality(keys) AS keys FROM slotsync.batches ORDER BY id`;
    expect(batches.map(({ keys }) => Number(keys))).toEqual([1000, 1000, 500]);
  });

  it('has a single change taken while runs over the many changes are under way', async () => {
    await addMany(50_000);
    expect((await takeAll()).map(({ lane }) => lane)).toEqual(Array.from({ length: 5 }, () => 'sync'));
    await addChanges(world.state.db, 'courses', ['C']);
    expect(await takeRun()).toMatchObject({ lane: 'incremental', keys: { courses: ['C'] } });
  });

  it('has a single change taken before the rest of the many changes', async () => {
    await addMany(20_000);
    await addChanges(world.state.db, 'courses', ['C']);
    expect(await takeRun()).toMatchObject({ lane: 'sync', isFull: true });
    const { lane, keys } = await takeRun('newest');
    expect(lane).toBe('incremental');
    expect(keys).toMatchObject({ courses: ['C'] });
    expect(keys['rooms']).toHaveLength(99);
  });
});
