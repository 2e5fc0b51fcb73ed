// Occurrences of schedules: each is started once by however many processes, and the schedule follows the configuration.
import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { openBullmq, type Bullmq } from '../../src/queue/bullmq.js';
import { QUEUES } from '../../src/queue/jobs.js';
import { createProducer } from '../../src/queue/producer.js';
import { startScheduler } from '../../src/queue/scheduler.js';
import { claimOccurrence, readSchedule, registerSchedule } from '../../src/state/schedules.js';
import { concerns } from '../../src/documents/concerns/concerns.js';
import { readSituation } from '../../src/situation/situation.js';
import { setPaused } from '../../src/state/runs/advance-run.js';
import { startRun } from '../../src/state/runs/start-run.js';
import { skipMissedOccurrences, startScheduled } from '../../src/sync/run/start-due-syncs.js';
import { ROOMS } from '../support/campus.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';
import type { World } from '../support/world.js';
import { keepWorlds } from '../support/worlds.js';

const CONFIGURATION = {
  streams: { rooms: ROOMS, halls: { ...ROOMS, from: 'halls', externalId: 'hall_{code}' } },
};
const AT_TWO = { pattern: '0 2 * * *', timezone: 'UTC' };
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
/** Time when the schedule was registered. It is fixed, so that the real hour does not matter. */
const REGISTERED = new Date('2026-05-01T12:00:00Z');

const open = keepWorlds();
let world: World;
beforeEach(async () => {
  world = await open(CONFIGURATION);
});

/** Two in the morning, `days` after the day of the registration. */
const night = (days: number) => new Date(Date.parse('2026-05-01T02:00:00Z') + days * DAY);
const register = (schedule = AT_TWO) => registerSchedule(world.state.db, 'nightly', schedule);
async function registerThen(): Promise<void> {
  await register();
  await world.sql`UPDATE slotsync.schedules SET registered_at = ${REGISTERED}`;
}
/** Starts a run of a command or of changes over these streams. */
const begin = async (lane: 'backfill' | 'incremental', ...streams: string[]) =>
  (await startRun(world.state.db, { kind: lane, lane, startedBy: 'command', streams })).run;
const runs = async () => [
  ...(await world.sql`SELECT kind, lane, started_by, streams, status FROM slotsync.runs ORDER BY id`),
];
/** Ages the registration of every schedule. */
const age = (interval: string) =>
  world.sql`UPDATE slotsync.schedules SET registered_at = now() - ${interval}::text::interval`;
/** The streams, or `sync` for all, that have had no success for too long. */
async function late(
  ...[known, limits]: [Parameters<typeof readSituation>[1]?, Parameters<typeof concerns>[1]?]
) {
  const found = concerns(await readSituation(world.state.db, known), limits);
  return found.flatMap(({ id, kind }) => (kind === 'no_success' ? id : []));
}
/** Notes these streams as synced whole just now. */
const noteSynced = (...names: string[]) =>
  world.sql`INSERT INTO slotsync.streams (stream, planned_at, synced_at) SELECT s, now(), now() FROM unnest(${names}::text[]) AS s`;
const said = (message: string) =>
  world.lines
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter(({ msg }) => String(msg).startsWith(message));

describe('an occurrence of a schedule', () => {
  it('is started once by several processes, at its moment and not before', async () => {
    await registerThen();
    expect(await startScheduled(world.deps(), new Date(night(1).getTime() - 1))).toEqual([]);
    const started = await Promise.all(
      Array.from({ length: 8 }, () => startScheduled(world.deps(), night(2))),
    );
    expect(started.flat()).toHaveLength(1);
    expect(await runs()).toEqual([
      { kind: 'sync', lane: 'sync', started_by: 'schedule', streams: ['rooms', 'halls'], status: 'planning' },
    ]);
    expect(await startScheduled(world.deps(), new Date(night(3).getTime() - 1))).toEqual([]);
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: night(2) });
  });

  it('belongs to one of two processes that read the schedule before either started it', async () => {
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

  it('stays due if its run could not be started', async () => {
    await registerThen();
    await world.sql`ALTER TABLE slotsync.runs ADD CONSTRAINT refuses CHECK (kind <> 'sync')`;
    try {
      await expect(startScheduled(world.deps(), night(2))).rejects.toThrow();
    } finally {
      await world.sql`ALTER TABLE slotsync.runs DROP CONSTRAINT refuses`;
    }
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: null });
    expect(await startScheduled(world.deps(), night(2))).toHaveLength(1);
  });

  it('is started once for several that were missed', async () => {
    await registerThen();
    expect(await startScheduled(world.deps(), night(9))).toHaveLength(1);
    expect(await startScheduled(world.deps(), night(9))).toEqual([]);
    expect(await runs()).toHaveLength(1);
  });

  it('is skipped if it was missed and the configuration says so, but not if it is due just now', async () => {
    await registerThen();
    await skipMissedOccurrences(world.deps(), new Date(night(3).getTime() + 30_000));
    expect(await readSchedule(world.state.db, 'nightly')).toMatchObject({ lastDue: night(2) });
    expect(said('missed scheduled sync skipped')).toHaveLength(1);
    expect(await startScheduled(world.deps(), new Date(night(3).getTime() + 30_000))).toHaveLength(1);
  });

  it('is not missed by a schedule that was registered or replaced just now', async () => {
    await register();
    expect(await startScheduled(world.deps())).toEqual([]);
    await age('5 days');
    await register({ ...AT_TWO, pattern: '5 2 * * *' });
    expect(await startScheduled(world.deps())).toEqual([]);
    await age('5 days');
    await register({ ...AT_TWO, pattern: '5 2 * * *' });
    expect(await startScheduled(world.deps())).toHaveLength(1);
  });

  it('is neither started by a fast clock nor claimed if it is in the future', async () => {
    await register();
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + DAY });
    onTestFinished(() => void vi.useRealTimers());
    expect(await startScheduled(world.deps())).toEqual([]);
    const schedule = await readSchedule(world.state.db, 'nightly');
    if (!schedule) throw new Error('the schedule was registered');
    expect(await claimOccurrence(world.state.db, schedule, new Date())).toBe(false);
  });

  it.each(['last_due', 'registered_at'])(
    'is corrected if its %s is in the future, and the log says so',
    async (column) => {
      await register({ ...AT_TWO, pattern: '* * * * *' });
      const { sql } = world;
      await sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 hour', last_due = now() - interval '1 hour'`;
      await sql`UPDATE slotsync.schedules SET ${sql(column)} = now() + interval '1 day'`;
      expect(await startScheduled(world.deps())).toEqual([]);
      expect(said('schedule had a start time in the future')).toMatchObject([{ schedule: 'nightly' }]);
      // Two minutes pass.
      await sql`
      UPDATE slotsync.schedules SET registered_at = registered_at - interval '2 minutes', last_due = last_due - interval '2 minutes'`;
      expect(await startScheduled(world.deps())).toHaveLength(1);
      expect(said('schedule had a start time in the future')).toHaveLength(1);
    },
  );

  it('leaves streams to the runs that cover them, and the log names these runs', async () => {
    await registerThen();
    const run = await begin('backfill', 'rooms');
    await setPaused(world.state.db, true, run.id);
    await begin('incremental', 'halls');
    expect(await startScheduled(world.deps(), night(2))).toMatchObject([{ streams: ['halls'] }]);
    expect(said('streams stay due until an unfinished run that covers them has ended')).toMatchObject([
      { level: 30, streams: ['rooms'], coveredBy: run.id, isPaused: true },
    ]);

    expect(await startScheduled(world.deps(), night(3))).toEqual([]);
    expect(said('scheduled sync not started')).toMatchObject([{ level: 30 }]);
    expect(await runs()).toHaveLength(3);
  });
});

describe('schedules of streams', () => {
  it('start their own streams once, and the nightly schedule starts the rest', async () => {
    await registerThen();
    const { db } = world.state;
    await registerSchedule(db, 'nightly', { ...AT_TWO, streams: ['rooms'] });
    const SUNDAYS = { pattern: '0 6 * * SUN', timezone: 'UTC', streams: ['halls'] };
    await registerSchedule(db, SUNDAYS.pattern, SUNDAYS);
    await world.sql`UPDATE slotsync.schedules SET registered_at = ${REGISTERED}`;
    // The first of May is a Friday.
    expect(await startScheduled(world.deps(), night(1))).toMatchObject([{ streams: ['rooms'] }]);
    const sunday = new Date('2026-05-03T06:00:00Z');
    await world.sql`UPDATE slotsync.runs SET status = 'succeeded', finished_at = now()`;
    expect(await startScheduled(world.deps(), sunday)).toMatchObject([
      { streams: ['rooms'] },
      { streams: ['halls'] },
    ]);
    expect(await startScheduled(world.deps(), sunday)).toEqual([]);
    const { nightly, schedules } = await readSituation(db);
    expect(nightly).toMatchObject({ streams: ['rooms'], lastDue: night(2) });
    expect(schedules).toMatchObject([{ streams: ['halls'], lastDue: sunday, nextDue: expect.any(Date) }]);
  });

  it('are left to the process that has their streams', async () => {
    await registerSchedule(world.state.db, '* * * * *', { ...AT_TWO, streams: ['others'] });
    await world.sql`UPDATE slotsync.schedules SET registered_at = ${REGISTERED}`;
    expect(await startScheduled(world.deps(), night(2))).toEqual([]);
    expect(await readSchedule(world.state.db, '* * * * *')).toMatchObject({ lastDue: null });
  });

  it('report separately when their streams are late', async () => {
    await register({ ...AT_TWO, pattern: '0 2 1 1 *' });
    const hourly = { pattern: '0 * * * *', timezone: 'UTC', streams: ['halls'] };
    await registerSchedule(world.state.db, hourly.pattern, hourly);
    await world.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '1 day' WHERE name <> 'nightly'`;
    expect(await late()).toEqual(['no_success halls']);
    await noteSynced('halls');
    expect(await late()).toEqual([]);
  });

  it('make a sync of all streams unnecessary if they cover every stream', async () => {
    for (const [pattern, name] of [
      ['0 2 1 1 *', 'rooms'],
      ['0 3 1 1 *', 'halls'],
    ] as const)
      await registerSchedule(world.state.db, pattern, { pattern, timezone: 'UTC', streams: [name] });
    await age('1 minute');
    await noteSynced('rooms', 'halls');
    await world.sql`INSERT INTO slotsync.destination (base_url, organization_id, region, bound_at)
      VALUES ('https://service.test', 'demo', 'eu', now() - interval '9 days')`;
    const limits = { noSuccessHours: 26, inboxMinutes: 60 };
    expect(await late({ streams: ['rooms', 'halls'] }, limits)).toEqual([]);
    // A stream without any is synced by cron.
    expect(await late({ streams: ['rooms', 'halls', 'staff'] }, limits)).toEqual(['no_success sync']);
  });
});

describe.each(STORES)('the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('shared by several workers', () => {
    const stateId = randomUUID();
    let bullmq: Bullmq;
    let producer: ReturnType<typeof createProducer>;
    beforeEach(() => {
      bullmq = openBullmq(url ? { redisUrl: url } : { postgresUrl: world.url }, stateId, world.log);
      producer = createProducer({ bullmq: async () => bullmq, state: world.state });
    });
    afterEach(async () => {
      await producer.close();
      await bullmq.close();
    });

    it('has one run started of a schedule that is due', async () => {
      const start = (schedules: Parameters<typeof startScheduler>[1]) =>
        startScheduler({ ...world.deps(), producer }, schedules);
      const rest = { timezone: 'UTC', catchUp: true, streams: [], waitMinutes: 0 };
      const everyMinute = [{ name: 'nightly', pattern: '* * * * *', ...rest }];
      await noteSynced('rooms', 'halls');
      const first = await start(everyMinute);
      expect(await runs()).toEqual([]);
      await age('2 minutes');
      const others = await Promise.all([start(everyMinute), start(everyMinute)]);
      expect(await runs()).toHaveLength(1);
      const queue = bullmq.queue(QUEUES.runs);
      const jobs = await queue.getJobs();
      expect(jobs).toHaveLength(1);
      await queue.close();
      const last = await start([]);
      expect(await readSchedule(world.state.db, 'nightly')).toBeUndefined();
      for (const scheduler of [first, ...others, last]) await scheduler.close();
    });

    it('has one run started of streams that are new', async () => {
      const start = () => startScheduler({ ...world.deps(), producer }, []);
      const schedulers = await Promise.all([start(), start(), start()]);
      expect(await runs()).toMatchObject([
        { kind: 'sync', started_by: 'change', streams: ['halls', 'rooms'] },
      ]);
      for (const scheduler of schedulers) await scheduler.close();
    });

    it('ends no reconcile, and takes the step that a dead process left undone', async () => {
      await world.sql`
        INSERT INTO slotsync.runs (kind, lane, started_by, streams, status)
        VALUES ('reconcile', 'sync', 'schedule', '{}', 'running')`;
      const run = await begin('backfill', 'rooms');
      await world.sql`UPDATE slotsync.runs SET status = 'running' WHERE id = ${run.id}`;
      await world.sql`
        INSERT INTO slotsync.batches (run_id, stream, level, keys, state, counts)
        VALUES (${run.id}, 'rooms', 0, '{A}', 'done', '{"synced": 1}')`;
      await producer.requeue();
      const statuses = await world.sql`SELECT status FROM slotsync.runs ORDER BY id`;
      expect(statuses.map(({ status }) => status as string)).toEqual(['running', 'succeeded']);
    });

    it('has a better lane taken first, whatever came first', async () => {
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
