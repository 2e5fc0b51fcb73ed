// Guarantee 7
// The inbox on a real database: the changes that a run takes, the changes that stay, and the notification of each change.
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
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
import { inSnapshot } from '../../src/state/database.js';
import { configSchema } from '../../src/streams/config-schema.js';
import { addChanges, listenForChanges } from '../../src/state/inbox/add-changes.js';
import { addDueChecks, readTakenKeys, takeChanges } from '../../src/state/inbox/take-changes.js';
import { readInbox, readInboxAge } from '../../src/state/inbox/read-inbox.js';
import { cancelRun, failRun } from '../../src/state/runs/end-run.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import type { SlotsyncConfig } from '../../src/streams/config-schema.js';
import { COURSES, ROOMS } from '../support/campus.js';
import { until } from '../support/wait.js';
import { createSharedDatabase, openWorld, type SharedDatabase, type World } from '../support/world.js';

const CONFIG: SlotsyncConfig = {
  streams: {
    rooms: { ...ROOMS, retire: 'deactivate' },
    courses: COURSES,
  },
};

let database: SharedDatabase;
let world: World;
beforeAll(async () => {
  database = await createSharedDatabase();
});
afterAll(() => database.drop());
beforeEach(async () => {
  world = await openWorld(CONFIG, { database });
  await world.sql`CREATE TABLE rooms (code text PRIMARY KEY, name text)`;
  await world.sql`CREATE TABLE courses (code text PRIMARY KEY, name text, room text)`;
});
afterEach(() => world.close());

const add = (...keys: string[]) => addChanges(world.state.db, 'rooms', keys);
/** Takes changes from the inbox as a worker does. */
async function take(...given: string[]) {
  const streams = given.length > 0 ? given : ['rooms', 'courses'];
  await addDueChecks(world.state.db, streams);
  return takeChanges(world.state.db, streams);
}
async function taken(...streams: string[]): Promise<number> {
  const answer = await take(...streams);
  if (typeof answer === 'string') throw new Error(answer);
  return answer.runId;
}
const readStreams = async () => (await readInbox(world.state.db, ['rooms', 'courses'])).streams;
const keysOf = async (runId: number, stream = 'rooms') =>
  (await readTakenKeys(world.state.db, runId, stream)).toSorted();
/** Works a taken run to its end. */
const work = async (runId: number) => world.finish(runId, (await world.planRun(runId)).queue);

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
    const { run } = await work(await taken());
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 1 } } });
    expect(await world.sql`SELECT DISTINCT stream FROM slotsync.changes WHERE stream = 'rooms'`).toEqual([]);
    await world.sql`DELETE FROM slotsync.changes`;
  });

  it('show ten names and a number of very many made-up streams, beside all configured streams', async () => {
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at)
      SELECT 'made-up-' || i, k, now() - interval '2 hours' FROM generate_series(1, 20000) AS i, unnest(ARRAY['A', 'B']) AS k`;
    await add('A');
    const streams = ['rooms', 'courses'];
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
  it('takes each key once with all its rows, oldest first', async () => {
    await add('A', 'B');
    await add('A');
    const run = await taken();
    expect(await keysOf(run)).toEqual(['A', 'B']);
    expect(await readRun(world.state.db, run)).toMatchObject({
      kind: 'incremental',
      lane: 'incremental',
      startedBy: 'change',
      streams: ['rooms'],
      status: 'planning',
    });
    expect(await take()).toBe('nothing');
  });

  it('leaves a key of an unfinished run, and takes its newer change after the run', async () => {
    await add('A');
    const first = await taken();
    await add('A', 'A', 'B');
    const second = await taken();
    expect(await keysOf(second)).toEqual(['B']);
    expect(await take()).toBe('nothing');
    await work(first);
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
    await work(first?.id ?? 0);
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
    const { run } = await work(first);
    expect(run).toMatchObject({ status: 'succeeded', counts: { rooms: { synced: 1 } } });
    await world.sql`SELECT pg_notify('slotsync_changes', 'first')`;
    await work(await taken());
    await world.sql`SELECT pg_notify('slotsync_changes', 'second')`;
    expect(await readStreams()).toEqual([]);
    await until(() => heard.includes('second'), { describe: 'the last notification' });
    expect(heard).toEqual(['', 'first', 'second']);
    await unlisten();
  });

  it('returns its keys for later when it failed', async () => {
    await add('A');
    await failRun(world.state.db, await taken(), { code: 'x', message: 'y' });
    expect(await readStreams()).toMatchObject([{ waiting: 1, later: 1 }]);
  });

  it('returns its unsent keys, and not the sent ones, when it is cancelled', async () => {
    world.configure({ streams: { rooms: { ...ROOMS, batchSize: 1 } } });
    await world.sql`INSERT INTO rooms VALUES ('A', 'Aula'), ('B', 'Byrå')`;
    await add('A', 'B');
    const runId = await taken();
    const [first = 0] = (await world.planRun(runId)).queue;
    await world.apply(first);
    await cancelRun(world.state.db, runId);
    expect(
      await world.sql`SELECT local_key, run_id, not_before > now() AS later FROM slotsync.changes`,
    ).toEqual([{ local_key: 'B', run_id: null, later: true }]);
  });

  it('returns all keys when it is cancelled while it is planned', async () => {
    await add('A', 'B');
    await cancelRun(world.state.db, await taken());
    expect(await readStreams()).toMatchObject([{ waiting: 2, later: 2 }]);
  });

  it.each([
    ['just now', '0 minutes', 60],
    ['six minutes ago', '6 minutes', 3 * 60],
    ['a day ago', '1 day', 10 * 60],
  ])('returns a key asked for %s after a delay that grows with its age', async (_, ago, seconds) => {
    await world.sql`
      INSERT INTO slotsync.changes (stream, local_key, requested_at) VALUES ('rooms', 'A', now() - ${ago}::text::interval)`;
    await failRun(world.state.db, await taken(), { code: 'x', message: 'y' });
    const [row] = await world.sql<{ wait: number }[]>`
      SELECT extract(epoch FROM not_before - now())::float8 AS wait FROM slotsync.changes`;
    expect(row?.wait).toBeGreaterThan(seconds - 10);
    expect(row?.wait).toBeLessThan(seconds + 10);
  });

  it('returns the keys of batches that are out of attempts', async () => {
    await world.sql`INSERT INTO rooms VALUES ('A', 'Aula')`;
    world.sandbox.failNext({ path: '/v1/objects', fault: 'status', times: 9 });
    await add('A');
    const { run } = await work(await taken());
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
    await work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    expect(await take()).toBe('nothing');
    await addRoom();
    await add('A');
    await work(await taken());
    await work(await taken());
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
    await work(parent);
    await work(await taken());
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
    await work(await taken());
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

  it('is sent when it was given up before a sync accepts the other record', async () => {
    await addCourse();
    await world.sync();
    world.passDays(15);
    await world.sync();
    expect(await world.statusesOf('courses')).toEqual({ C: 'dead' });
    // It arrives without a notification, as by a run of an older release.
    await addRoom();
    world.configure({ streams: { rooms: ROOMS } });
    await world.sync();
    world.configure(CONFIG);
    await world.sync('rooms');
    await work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'synced' });
  });

  it('is not checked over and over while the other record does not arrive', async () => {
    await addCourse();
    await world.sync();
    await world.sync('rooms');
    await world.sync('courses');
    await addChanges(world.state.db, 'courses', ['C']);
    await work(await taken());
    expect(await world.statusesOf('courses')).toEqual({ C: 'deferred' });
    expect(await waiting()).toEqual([]);
  });
});

describe('the listener of the inbox', () => {
  // Nothing polls here, so that only the notification can have been heard.
  it('hears of a change after its connection was lost', async () => {
    let heard = 0;
    const listener = listenForChanges(database.url, () => heard++);
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
});
