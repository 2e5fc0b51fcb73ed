// The clock's door: a moment is started once however often it is noticed, and the alarm follows the configuration.
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openBullmq, type Bullmq } from '../../src/queue/bullmq.js';
import { QUEUES } from '../../src/queue/jobs.js';
import { createProducer } from '../../src/queue/producer.js';
import { startNightlyScheduler } from '../../src/queue/nightly-scheduler.js';
import { claimOccurrence, readSchedule, registerSchedule } from '../../src/state/runs/nightly-occurrences.js';
import { setPaused } from '../../src/state/runs/pause-runs.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { skipMissedOccurrences, startDueNightly } from '../../src/sync/run/start-due-nightly.js';
import { ROOMS } from '../support/campus.js';
import { redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';
import { createSharedDatabase, openWorld, type SharedDatabase, type World } from '../support/world.js';

const CONFIGURATION = {
  streams: { rooms: ROOMS, halls: { ...ROOMS, from: 'halls', externalId: 'hall_{code}' } },
};
const AT_TWO = { pattern: '0 2 * * *', timezone: 'UTC' };
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
/** When the schedule was registered: a moment of its own, so that no hour of the real day is another's night. */
const REGISTERED = new Date('2026-05-01T12:00:00Z');

let database: SharedDatabase;
let world: World;
beforeAll(async () => {
  database = await createSharedDatabase();
});
beforeEach(async () => {
  world = await openWorld(CONFIGURATION, { database });
});
afterEach(() => world.close());
afterAll(() => database.drop());

/** Two in the morning, so many days after the registration's. */
const night = (days: number) => new Date(Date.parse('2026-05-01T02:00:00Z') + days * DAY);
const register = (schedule = AT_TWO) => registerSchedule(world.state.db, 'nightly', schedule);
async function registerThen(): Promise<void> {
  await register();
  await world.sql`UPDATE slotsync.schedules SET registered_at = ${REGISTERED}`;
}
const runs = async () => [
  ...(await world.sql`SELECT kind, lane, started_by, streams, status FROM slotsync.runs ORDER BY id`),
];
const said = (message: string) =>
  world.lines
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ msg }) => String(msg).startsWith(message));

describe('a night', () => {
  it('is started once by many who notice it, at the moment and not before', async () => {
    await registerThen();
    expect(await startDueNightly(world.deps(), new Date(night(1).getTime() - 1))).toEqual([]);
    const started = await Promise.all(
      Array.from({ length: 8 }, () => startDueNightly(world.deps(), night(2))),
    );
    expect(started.flat()).toHaveLength(1);
    expect(await runs()).toEqual([
      { kind: 'sync', lane: 'sync', started_by: 'schedule', streams: ['rooms', 'halls'], status: 'planning' },
    ]);
    expect(await startDueNightly(world.deps(), new Date(night(3).getTime() - 1))).toEqual([]);
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: night(2) });
  });

  it('occurrence: it belongs to one of two processes that read the schedule before either started it', async () => {
    await registerThen();
    const schedule = await readSchedule(world.state.db, 'nightly');
    if (!schedule) throw new Error('the schedule was registered');
    const claim = (occurrence: Date) => claimOccurrence(world.state.db, schedule, occurrence);
    expect(await claim(night(2))).toBe(true);
    // The run of the first may have ended by then.
    expect(await claim(night(2))).toBe(false);
    expect(await claim(night(1))).toBe(false);
    expect(await claim(night(3))).toBe(true);
  });

  it('occurrence: one whose run could not be started is still due', async () => {
    await registerThen();
    await world.sql`ALTER TABLE slotsync.runs ADD CONSTRAINT refuses CHECK (kind <> 'sync')`;
    try {
      await expect(startDueNightly(world.deps(), night(2))).rejects.toThrow();
    } finally {
      await world.sql`ALTER TABLE slotsync.runs DROP CONSTRAINT refuses`;
    }
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: null });
    expect(await startDueNightly(world.deps(), night(2))).toHaveLength(1);
  });

  it('makes up for several that were missed by one', async () => {
    await registerThen();
    expect(await startDueNightly(world.deps(), night(9))).toHaveLength(1);
    expect(await startDueNightly(world.deps(), night(9))).toEqual([]);
    expect(await runs()).toHaveLength(1);
  });

  it('that was missed is passed over when the configuration says so; one that is due just now is not', async () => {
    await registerThen();
    await skipMissedOccurrences(world.deps(), new Date(night(3).getTime() + 30_000));
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: night(2) });
    expect(said('missed nightly sync skipped')).toHaveLength(1);
    expect(await startDueNightly(world.deps(), new Date(night(3).getTime() + 30_000))).toHaveLength(1);
  });

  it('is not missed by a schedule that was registered, or replaced, just now', async () => {
    await register();
    expect(await startDueNightly(world.deps())).toEqual([]);
    await world.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '5 days'`;
    await register({ ...AT_TWO, pattern: '5 2 * * *' });
    expect(await startDueNightly(world.deps())).toEqual([]);
    await world.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '5 days'`;
    await register({ ...AT_TWO, pattern: '5 2 * * *' });
    expect(await startDueNightly(world.deps())).toHaveLength(1);
  });

  it('occurrence: none that is to come is started by a clock that is ahead, or claimed', async () => {
    await register();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + DAY });
    onTestFinished(() => void vi.useRealTimers());
    expect(await startDueNightly(world.deps())).toEqual([]);
    const schedule = await readSchedule(world.state.db, 'nightly');
    if (!schedule) throw new Error('the schedule was registered');
    expect(await claimOccurrence(world.state.db, schedule, new Date())).toBe(false);
  });

  it.each(['last_due', 'registered_at'])(
    'schedule: %s in the future is corrected, and said',
    async (column) => {
      await register({ ...AT_TWO, pattern: '* * * * *' });
      const { sql } = world;
      await sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 hour', last_due = now() - interval '1 hour'`;
      await sql`UPDATE slotsync.schedules SET ${sql(column)} = now() + interval '1 day'`;
      expect(await startDueNightly(world.deps())).toEqual([]);
      expect(said('schedule was noted as started in the future')).toMatchObject([{ schedule: 'nightly' }]);
      // Two minutes pass.
      await sql`
      UPDATE slotsync.schedules SET registered_at = registered_at - interval '2 minutes', last_due = last_due - interval '2 minutes'`;
      expect(await startDueNightly(world.deps())).toHaveLength(1);
      expect(said('schedule was noted as started in the future')).toHaveLength(1);
    },
  );

  it('leaves streams to the runs that cover them, and says to which', async () => {
    await registerThen();
    const { run } = await startRun(world.state.db, {
      kind: 'backfill',
      lane: 'backfill',
      startedBy: 'command',
      streams: ['rooms'],
    });
    await setPaused(world.state.db, true, run.id);
    await startRun(world.state.db, {
      kind: 'incremental',
      lane: 'incremental',
      startedBy: 'change',
      streams: ['halls'],
    });
    expect(await startDueNightly(world.deps(), night(2))).toMatchObject([{ streams: ['halls'] }]);
    expect(said('nightly sync leaves out streams')).toMatchObject([
      { level: 30, streams: ['rooms'], coveredBy: run.id, isPaused: true },
    ]);

    expect(await startDueNightly(world.deps(), night(3))).toEqual([]);
    expect(said('nightly sync not started')).toMatchObject([{ level: 30 }]);
    expect(await runs()).toHaveLength(3);
  });
});

const stores = [
  { store: 'PostgreSQL', url: () => undefined, skip: false },
  { store: 'Redis', url: redisUrl, skip: redisUrl() === undefined },
];

describe.each(stores)('with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('the queue', () => {
    const stateId = randomUUID();
    let bullmq: Bullmq;
    let producer: ReturnType<typeof createProducer>;
    beforeEach(() => {
      const redis = url();
      const store = redis === undefined ? { postgresUrl: database.url } : { redisUrl: redis };
      bullmq = openBullmq(store, stateId, world.log);
      producer = createProducer({ bullmq, state: world.state });
    });
    afterEach(async () => {
      await producer.close();
      await bullmq.close();
    });

    it('scheduler: several workers register one schedule and start one run of what is due', async () => {
      const start = (schedule: Parameters<typeof startNightlyScheduler>[1]) =>
        startNightlyScheduler({ ...world.deps(), producer }, schedule);
      const everyMinute = { pattern: '* * * * *', timezone: 'UTC', catchUp: true };
      const first = await start(everyMinute);
      expect(await runs()).toEqual([]);
      await world.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '2 minutes'`;
      const others = await Promise.all([start(everyMinute), start(everyMinute)]);
      expect(await runs()).toHaveLength(1);
      const queue = bullmq.queue(QUEUES.runs);
      const jobs = await queue.getJobs();
      expect(jobs).toHaveLength(1);
      await queue.close();
      const last = await start(undefined);
      expect(await readSchedule(world.state.db, 'nightly')).toBeUndefined();
      for (const scheduler of [first, ...others, last]) await scheduler.close();
    });

    it('does not end a reconcile, and takes the step that a dead process left undone', async () => {
      const { db } = world.state;
      await world.sql`
        INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
        VALUES ('reconcile', 'sync', 'schedule', '{}', 'running')`;
      const { run } = await startRun(db, {
        kind: 'backfill',
        lane: 'backfill',
        startedBy: 'command',
        streams: ['rooms'],
      });
      await world.sql`UPDATE slotsync.runs SET status = 'running' WHERE id = ${run.id}`;
      await world.sql`
        INSERT INTO slotsync.batches (run_id, stream, level, keys, state, counts)
        VALUES (${run.id}, 'rooms', 0, '{A}', 'done', '{"synced": 1}')`;
      await producer.requeue();
      const statuses = await world.sql`SELECT status FROM slotsync.runs ORDER BY id`;
      expect(statuses.map(({ status }) => status as string)).toEqual(['running', 'succeeded']);
    });

    it('does not change that a better lane is taken first, whoever came first', async () => {
      // Incremental batches have a queue, and places in work, of their own.
      await producer.enqueueBatches([{ id: 6, lane: 'verify' }]);
      await producer.enqueueBatches([1, 2, 3].map((id) => ({ id, lane: 'backfill' })));
      await producer.enqueueBatches([4, 5].map((id) => ({ id, lane: 'sync' })));
      const taken: unknown[] = [];
      const worker = bullmq.worker(QUEUES.batches, async ({ data }) => void taken.push(data.batchId), {
        concurrency: 1,
      });
      await worker.waitUntilReady();
      void worker.run();
      await until(() => taken.length === 6, { describe: 'every batch to be taken' });
      await worker.close();
      expect(taken).toEqual([4, 5, 1, 2, 3, 6]);
    });
  });
});
