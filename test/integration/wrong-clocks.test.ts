// Guarantee 3
// A process with a wrong clock leaves nothing behind that waits for a time of its clock. Times for other processes are those of
// the state.
import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createChangeWorker } from '../../src/queue/receive-changes.js';
import { openBullmq } from '../../src/queue/bullmq.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { batchJobId, JOB_OPTIONS, QUEUES } from '../../src/queue/jobs.js';
import { createProducer } from '../../src/queue/producer.js';
import { createWorkers } from '../../src/queue/workers.js';
import { createRequestCounter } from '../../src/process/meter.js';
import { notePresence } from '../../src/state/processes.js';
import { noteRequests } from '../../src/state/requests.js';
import { NIGHTLY } from '../../src/time/schedule.js';
import { registerSchedule } from '../../src/state/schedules.js';
import { readRun } from '../../src/state/runs/read-runs.js';
import { startScheduled } from '../../src/sync/run/start-due-syncs.js';
import { STORES } from '../support/services.js';
import { keepRooms, rooms, until, type RoomWorld } from '../support/steps.js';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;

const open = keepRooms();
afterEach(() => vi.useRealTimers());

/** Sets the clock of this process wrong. The clock stands still, and timers go on. */
const setClock = (aheadMs: number) => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs });

async function openQueue(world: RoomWorld, redisUrl: string | undefined) {
  await world.sql`DROP SCHEMA IF EXISTS slotsync_queue CASCADE`;
  await migrateQueue({ postgresUrl: world.url });
  const store = redisUrl === undefined ? { postgresUrl: world.url } : { redisUrl };
  const bullmq = openBullmq(store, randomUUID(), world.log);
  const producer = createProducer({ bullmq: async () => bullmq, state: world.state });
  onTestFinished(async () => {
    await producer.close();
    await bullmq.close();
  });
  /** Works the queue until the condition is met. */
  const work = async (done: () => Promise<boolean>, describeIt: string) => {
    const workers = createWorkers({
      ...world.deps(),
      bullmq: async () => bullmq,
      producer,
      probe: async () => undefined,
    });
    try {
      await workers.start();
      await until(done, { describe: describeIt });
    } finally {
      workers.abort();
      await workers.stop();
    }
  };
  const count = async (kind: string) => (await producer.depth())[kind] ?? 0;
  const hasEnded = (runId: number) => async () =>
    (await readRun(world.state.db, runId))?.finishedAt instanceof Date;
  return { bullmq, producer, work, count, hasEnded };
}

describe.each(STORES)('a process with a wrong clock, and its queue on $store', ({ url, skip }) => {
  it.skipIf(skip).each([
    ['a day', DAY],
    ['ten minutes', 10 * MINUTE],
  ])('puts batches back when its clock is %s ahead, and ends', async (_, aheadMs) => {
    const world = await open(rooms());
    const { producer, work, count, hasEnded } = await openQueue(world, url);
    await world.addRooms('A', 'B', 'C');
    const { runId, queue } = await world.planBatches('rooms', [['A'], ['B'], ['C']]);
    await producer.enqueueBatches(queue.map((id) => ({ id, lane: 'sync' })));
    world.sandbox.failNext({ path: '/v1/objects', fault: 'status', status: 500, times: 3 });
    setClock(aheadMs);
    await work(async () => (await count('delayed')) > 0, 'a batch to be put back');
    vi.useRealTimers();
    await work(hasEnded(runId), 'the run to end');
    await world.expectInSync();
  });

  it.skipIf(skip)('works what is due by the state when its clock is behind', async () => {
    const world = await open(rooms());
    const { bullmq, work, hasEnded } = await openQueue(world, url);
    await world.addRooms('A');
    const { runId, queue } = await world.plan();
    const [batchId = 0] = queue;
    const jobs = bullmq.queue(QUEUES.batches);
    const timestamp = Date.now() - 60 * MINUTE;
    const delayed = { delay: 1000, timestamp, jobId: batchJobId(batchId), priority: 2 };
    await jobs.add('apply', { batchId }, { ...JOB_OPTIONS, ...delayed });
    await jobs.close();
    setClock(-DAY);
    await work(hasEnded(runId), 'the run to end');
  });

  it.skipIf(skip)('gets a job again that could not be stored after its clock is corrected', async () => {
    const world = await open(rooms());
    const { bullmq } = await openQueue(world, url);
    const jobs = bullmq.queue(QUEUES.changes);
    onTestFinished(() => jobs.close());
    await jobs.add('changed', { stream: 'rooms', key: 'A' });
    await world.sql`ALTER TABLE slotsync.changes ADD CONSTRAINT refuses CHECK (stream <> 'rooms')`;
    const stopping = AbortSignal.abort();
    const receive = async (done: () => Promise<boolean>, describeIt: string) => {
      const worker = createChangeWorker({ ...world.deps(), bullmq }, stopping);
      void worker.run();
      try {
        await until(done, { describe: describeIt });
      } finally {
        await worker.close();
      }
    };
    const failed = () => world.lines.some((line) => line.includes('storing the keys of a change job failed'));
    setClock(DAY);
    try {
      await receive(async () => failed(), 'the keys to be refused');
    } finally {
      await world.sql`ALTER TABLE slotsync.changes DROP CONSTRAINT refuses`;
      vi.useRealTimers();
    }
    const stored = async () => (await world.sql`SELECT local_key FROM slotsync.changes`).length > 0;
    await receive(stored, 'the key in the inbox');
  });
});

it('locks in PostgreSQL of a process that was killed a day ahead end in minutes', async () => {
  const world = await open(rooms());
  const { producer } = await openQueue(world, undefined);
  await world.addRooms('A');
  const { queue } = await world.plan();
  await producer.enqueueBatches(queue.map((id) => ({ id, lane: 'sync' })));
  const ms = Date.now() + DAY;
  await world.sql`UPDATE slotsync_queue.job SET state = 'active', lock_token = 'x', locked_until_ms = ${ms}`;
  await world.sql`
    INSERT INTO slotsync_queue.meta (queue, field, value) VALUES (${QUEUES.batches}, 'stalled-check', ${String(ms)})`;
  await producer.requeue();
  expect(
    await world.sql`
      SELECT locked_until_ms::float8 - extract(epoch FROM now()) * 1000 BETWEEN 0 AND ${3 * MINUTE} AS ends, value
      FROM slotsync_queue.job AS j JOIN slotsync_queue.meta AS m USING (queue) WHERE field = 'stalled-check'`,
  ).toEqual([{ ends: true, value: '0' }]);
});

it('a night by a clock that is a day ahead leaves no future time in the state', async () => {
  const world = await open(rooms());
  const { db } = world.state;
  await world.addRooms('A', 'B', 'x'.repeat(2000));
  await registerSchedule(db, NIGHTLY, { pattern: '0 2 * * *', timezone: 'UTC' });
  await world.sql`UPDATE slotsync.schedules SET registered_at = now() - interval '2 days'`;
  setClock(DAY);
  const configuration = { configuration: 'c', streams: {}, loadedAt: new Date() };
  await notePresence(db, { id: 'p', command: 'worker', host: 'h', pid: 1 }, null, { configuration });
  await world.sync();
  expect(await startScheduled(world.deps())).toHaveLength(1);
  const requests = createRequestCounter();
  requests.requested(200, 0.1);
  await noteRequests(db, requests.take() ?? expect.fail('a request was counted'));
  vi.useRealTimers();
  const batches = await world.sql`SELECT FROM slotsync.batches WHERE finished_at IS NOT NULL`;
  expect(batches.length).toBeGreaterThanOrEqual(2);
  const columns = await world.sql<{ table: string; column: string }[]>`
    SELECT table_name AS table, column_name AS column FROM information_schema.columns
    WHERE table_schema = 'slotsync' AND data_type = 'timestamp with time zone'`;
  const ahead: string[] = [];
  for (const { table, column } of columns) {
    const [row] = await world.sql`
      SELECT max(${world.sql(column)}) > now() + interval '1 hour' AS "isAhead" FROM ${world.sql(`slotsync.${table}`)}`;
    if (row?.['isAhead']) ahead.push(`${table}.${column}`);
  }
  expect(ahead).toEqual([]);
});
