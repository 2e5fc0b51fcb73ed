// Guarantees 10, 11
// Real workers over a real queue: when they give a batch up, and what they leave alone.
import { statusOf } from '../support/status.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkConfiguration } from '../../src/config/config-file.js';
import { SlotsyncError } from '../../src/errors/errors.js';
import { createInboxWorker } from '../../src/queue/inbox-worker.js';
import { openBullmq, type Bullmq } from '../../src/queue/bullmq.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { batchJobId, JOB_OPTIONS, QUEUES } from '../../src/queue/jobs.js';
import { createProducer, type Producer } from '../../src/queue/producer.js';
import { startPresence } from '../../src/queue/presence.js';
import { createWorkers } from '../../src/queue/workers.js';
import { listProcesses } from '../../src/state/processes.js';
import { freezeStreams } from '../../src/state/freezes.js';
import { addChanges } from '../../src/state/inbox/add-changes.js';
import { takeChanges, type TakenRun } from '../../src/state/inbox/take-changes.js';
import { cancelRun } from '../../src/state/runs/end-run.js';
import { plannerOf } from '../../src/state/runs/claim-planning.js';
import { readRun, type Run } from '../../src/state/runs/read-runs.js';
import { approve } from '../../src/sync/operator/approve.js';
import { addRooms, codes, expectInSync, keepRoomWorlds, rooms } from '../support/room-worlds.js';
import { until } from '../support/wait.js';
import type { World, WorldOptions } from '../support/world.js';

const openRooms = keepRoomWorlds();

let bullmq: Bullmq;
let producer: Producer;

async function open(config = rooms(), options: WorldOptions = {}): Promise<World> {
  const world = await openRooms(config, options);
  await world.sql`DROP SCHEMA IF EXISTS slotsync_queue CASCADE`;
  await migrateQueue({ postgresUrl: world.url });
  bullmq = openBullmq({ postgresUrl: world.url }, 'workers', world.log);
  producer = createProducer({ bullmq: async () => bullmq, state: world.state });
  return world;
}

afterEach(() => producer.close());

type Workers = ReturnType<typeof createWorkers>;
type Parts = Partial<Parameters<typeof createWorkers>[0]>;

/** Acts with workers that have these parts instead of their own, and stops them. */
async function withWorkers<T>(world: World, parts: Parts, act: (workers: Workers) => Promise<T>): Promise<T> {
  const own = { bullmq: async () => bullmq, producer, probe: async () => undefined };
  const workers = createWorkers({ ...world.deps(), ...own, ...parts });
  try {
    return await act(workers);
  } finally {
    await workers.stop();
  }
}

/** Works the queue until the condition is met. */
const work = (world: World, done: () => Promise<boolean>, describeIt: string, timeoutMs = 120_000) =>
  withWorkers(world, {}, async (workers) => {
    await workers.start();
    await until(done, { describe: describeIt, timeoutMs }).finally(() => workers.abort());
  });

const hasEnded = (world: World, runId: number) => async () =>
  (await readRun(world.state.db, runId))?.finishedAt instanceof Date;

describe('a batch in the queue', () => {
  let world: World;
  beforeEach(async () => {
    world = await open();
    await addRooms(world, 'A');
  });

  it('fails when it is out of attempts, and its run ends', async () => {
    const { runId, queue } = await world.plan();
    const [batchId = 0] = queue;
    world.sandbox.failNext({ path: '/v1/objects', fault: 'brokenJson', times: 2 });
    const jobs = bullmq.queue(QUEUES.batches);
    await jobs.add(
      'apply',
      { batchId },
      { ...JOB_OPTIONS, attempts: 2, jobId: batchJobId(batchId), priority: 2 },
    );
    await jobs.close();
    await work(world, hasEnded(world, runId), 'the run to end after two attempts');
    expect(await readRun(world.state.db, runId)).toMatchObject({
      status: 'failed',
      counts: { rooms: { failed: 1 } },
    });
    expect(world.writes()).toHaveLength(2);
  });

  it('is dropped when its run was cancelled, and nothing of the run is sent', async () => {
    const { runId, queue } = await world.plan();
    await producer.enqueueBatches(queue.map((id) => ({ id, lane: 'sync' })));
    const count = async () => Object.values(await producer.depth()).reduce((sum, jobs) => sum + jobs, 0);
    expect(await count()).toBe(1);
    await cancelRun(world.state.db, runId);
    world.sandbox.clearArrivals();
    await work(world, async () => (await count()) === 0, 'the job to be taken');
    expect(world.sandbox.arrivals()).toEqual([]);
    expect(await world.recordsOf('rooms')).toEqual({});
    expect(await readRun(world.state.db, runId)).toMatchObject({ status: 'cancelled' });
  });
});

describe('the process that takes a few changes', () => {
  let world: World;
  let taken: TakenRun;
  /** Calls that gave something to the queue. */
  let queued: { what: 'run' | 'batches'; options: { attempts?: number } | undefined }[];

  beforeEach(async () => {
    world = await open();
    await addRooms(world, 'A');
    await addChanges(world.state.db, 'rooms', ['A']);
    queued = [];
  });

  async function take(): Promise<TakenRun> {
    const answer = await takeChanges(world.state.db, ['rooms'], undefined, { keys: 1, token: 'here' });
    if (typeof answer === 'string') throw new Error(answer);
    return answer;
  }

  /** Workers that take the changes once they are started, until the condition is met. */
  async function workHere(
    done: () => Promise<unknown>,
    describeIt: string,
    { deps = {}, onTaken = async () => undefined }: { deps?: Parts; onTaken?: () => Promise<unknown> } = {},
  ): Promise<void> {
    const noted: Producer = {
      ...producer,
      enqueueRun: (...run) => (queued.push({ what: 'run', options: run[2] }), producer.enqueueRun(...run)),
      enqueueBatches: async (batches, data, options) => {
        if (batches.length > 0) queued.push({ what: 'batches', options });
        await producer.enqueueBatches(batches, data, options);
      },
    };
    await withWorkers(world, { ...deps, producer: noted }, async (workers) => {
      expect(workers.hasRoom()).toBe(false);
      await workers.start();
      expect(workers.hasRoom()).toBe(true);
      taken = await take();
      await onTaken();
      workers.startFew(taken);
      await until(done, { describe: describeIt }).finally(() => workers.abort());
    });
  }
  const ended = () => hasEnded(world, taken.runId)();

  it('plans and applies them without a job', async () => {
    await workHere(ended, 'the run to end');
    expect(queued).toEqual([]);
    expect(await readRun(world.state.db, taken.runId)).toMatchObject({
      status: 'succeeded',
      plan: { rooms: { create: 1, inBatches: 1 } },
      counts: { rooms: { synced: 1 } },
    });
    expect(await world.sql`SELECT FROM slotsync.changes`).toHaveLength(0);
  });

  it('leaves a batch that failed to the queue, and the attempt counts', async () => {
    world.sandbox.failNext({ path: '/v1/objects', fault: 'brokenJson' });
    await workHere(ended, 'the run to end');
    expect(queued).toEqual([{ what: 'batches', options: expect.objectContaining({ attempts: 8 }) }]);
    expect(world.writes()).toHaveLength(2);
    await expectInSync(world);
  });

  it('leaves a plan that failed to the queue', async () => {
    let failures = 0;
    const { mirror } = world.deps();
    const readHashes: typeof mirror.readHashes = (...reading) => {
      if (failures++ === 0) throw new SlotsyncError('mirror_failed', 'no');
      return mirror.readHashes(...reading);
    };
    await workHere(ended, 'the run to end', { deps: { mirror: { ...mirror, readHashes } } });
    expect(queued[0]).toEqual({ what: 'run', options: expect.objectContaining({ attempts: 8 }) });
    await expectInSync(world);
  });

  it('holds a batch whose stream was frozen after its key was taken', async () => {
    const onTaken = () =>
      freezeStreams(world.state.db, {
        streams: ['rooms'],
        endsAt: new Date(Date.now() + 3_600_000),
        reason: 'exam weeks',
        by: null,
      });
    await workHere(ended, 'the run to end', { onTaken });
    expect(world.writes()).toEqual([]);
    expect(await readRun(world.state.db, taken.runId)).toMatchObject({
      status: 'held',
      holds: { rooms: { frozen: { count: 1 } } },
    });
  });

  it('plans them once, while a sweep plans nothing', async () => {
    let readings = 0;
    const { mirror } = world.deps();
    const jobs = () => bullmq.queue(QUEUES.runs).getJobCountByTypes('waiting', 'prioritized', 'active');
    const readHashes: typeof mirror.readHashes = async function* (...reading) {
      if (readings++ === 0) {
        await producer.requeue();
        await until(async () => (await jobs()) === 0, { describe: 'the job of the sweep to end' });
      }
      yield* mirror.readHashes(...reading);
    };
    await workHere(ended, 'the run to end', { deps: { mirror: { ...mirror, readHashes } } });
    expect(readings).toBe(1);
  });

  it('applies nothing of a paused run', async () => {
    const isPlanned = async () =>
      (await world.sql`SELECT FROM slotsync.batches WHERE state = 'queued'`).length === 1;
    const onTaken = async () => world.sql`UPDATE slotsync.runs SET paused_at = now()`;
    await workHere(isPlanned, 'the batch to be a row', { onTaken });
    expect(world.writes()).toEqual([]);
    await world.sql`UPDATE slotsync.runs SET paused_at = NULL`;
    await work(world, ended, 'the resumed run to end');
    await expectInSync(world);
  });

  it('puts what a shutdown interrupts into the queue', async () => {
    world.sandbox.closeGate({ method: 'PUT' });
    await workHere(async () => world.sandbox.gate().held > 0, 'the write to be held');
    expect(queued).toMatchObject([{ what: 'batches', options: { attempts: 9 } }]);
    world.sandbox.openGate();
    await work(world, ended, 'the run to end');
    await expectInSync(world);
  });

  it('leaves to the queue what it takes while it stops', async () => {
    await withWorkers(world, {}, async (workers) => {
      await workers.start();
      let stopped: Promise<void> | undefined;
      const hasRoom = () => {
        const has = workers.hasRoom();
        stopped ??= workers.stop();
        return has;
      };
      const inbox = createInboxWorker({
        ...world.deps(),
        bullmq,
        producer,
        polling: checkConfiguration(rooms()).polling,
        workers: { ...workers, hasRoom },
      });
      await inbox.start();
      const isTaken = async () => (await world.sql`SELECT FROM slotsync.runs`).length === 1;
      await until(isTaken, { describe: 'the change to be taken' });
      await Promise.all([inbox.stop(), stopped]);
    });
    // Unless a worker had begun with it: then it has ended, or goes on as a job.
    const jobs = await bullmq.queue(QUEUES.runs).getJobCountByTypes('waiting', 'prioritized', 'delayed');
    const planning = await world.sql`SELECT FROM slotsync.runs WHERE status = 'planning'`;
    expect(jobs).toBe(planning.length);
  });

  it.each(['planned', 'taken'] as const)(
    'may be killed when the changes are %s, and a sweep queues their rows',
    async (how) => {
      taken = await take();
      if (how === 'planned') await world.planRun(taken.runId);
      await work(world, ended, 'the run to end');
      await expectInSync(world);
    },
  );
});

it('a process that has begun takes only its share beside the processes that it sees', async () => {
  const world = await open();
  const { state, log } = world;
  const shares: number[] = [];
  const noted: Bullmq = {
    ...bullmq,
    worker(name, process, options) {
      const worker = bullmq.worker(name, process, options);
      if (name !== QUEUES.batches) return worker;
      shares.push(options.concurrency ?? 1);
      return { ...worker, setConcurrency: (jobs) => void shares.push(jobs) };
    },
  };
  const presence = await startPresence({ state, log, command: 'worker' });
  await withWorkers(world, { bullmq: async () => noted, presence }, async (workers) => {
    await workers.start();
    const other = await startPresence({ state, log, command: 'worker' });
    const [alone = 0] = shares;
    await until(async () => shares.length > 1, { describe: 'the other to be seen' });
    expect(shares).toEqual([alone, Math.ceil(alone / 2)]);
    await other.close();
  });
  await presence.close();
});

describe('a run that a command has started', () => {
  let world: World;
  beforeEach(async () => {
    world = await open(rooms({ batchSize: 1 }));
    await addRooms(world, 'A', 'B');
  });

  /** A service that refuses each of so many rooms, of which a batch writes ten, one in a request. */
  async function openRefused(count: number): Promise<string[]> {
    const all = codes(count);
    const limits = { refused: { count: 5, percent: 10 } };
    world = await open(rooms({ owns: 'object', batchSize: 1, limits }));
    await addRooms(world, ...all);
    for (const code of all)
      world.sandbox.refuseObject(`room_${code}`, { status: 400, message: 'no such category' });
    return all;
  }

  /** Works a run until it has ended, a new one unless it is given. `opened`: workers of the queue that were opened for it. */
  async function workOne({ run: given, ...parts }: Parts & { run?: Run } = {}) {
    const opened: string[] = [];
    const noted: Bullmq = {
      ...bullmq,
      worker: (name, ...rest) => (opened.push(name), bullmq.worker(name, ...rest)),
    };
    return withWorkers(world, { bullmq: async () => noted, ...parts }, async (workers) => {
      const run = given ?? (await readRun(world.state.db, await world.startRun()));
      if (!run) throw new Error('the run is not there');
      await workers.work(run);
      await until(hasEnded(world, run.id), { describe: 'the run to end' });
      return { runId: run.id, opened };
    });
  }

  it('needs no queue while its batches are few', async () => {
    expect((await workOne()).opened).toEqual([]);
    await expectInSync(world);
  });

  it('leaves more batches than may be in flight to the queue, and works the queue', async () => {
    expect((await workOne({ concurrency: 1 })).opened).toHaveLength(3);
    await expectInSync(world);
  });

  it('stops after some requests when the service refuses everything, with all batches in flight', async () => {
    const all = await openRefused(200);
    const { runId } = await workOne();
    const refused = world.writes().length;
    expect(refused).toBeGreaterThan(5);
    expect(refused).toBeLessThanOrEqual(all.length / 2);
    expect(await readRun(world.state.db, runId)).toMatchObject({
      counts: { rooms: { failed: refused } },
      holds: { rooms: { refused: { count: all.length - refused } } },
    });
  });

  it('goes on when an approval allows the refusals', async () => {
    const all = await openRefused(60);
    const { runId } = await workOne();
    const { run } = await approve(world.approving(), { runId });
    await world.sql`UPDATE slotsync.runs SET configuration = NULL`; // as the producer of these tests
    await workOne({ run: { ...run, configuration: null } });
    expect(world.writes().length).toBeGreaterThanOrEqual(all.length);
    expect(await readRun(world.state.db, run.id)).toMatchObject({ holds: {} });
  });

  it('goes on when sending stops and resumes while the workers of the queue are opened', async () => {
    await addRooms(world, ...codes(6));
    world.sandbox.failNext({ path: '/v1/objects', fault: 'status', status: 503, times: 8 });
    let resume = () => undefined as void;
    const isResumed = new Promise<void>((resolve) => (resume = resolve));
    const late: Bullmq = {
      ...bullmq,
      worker(...of) {
        const opened = bullmq.worker(...of);
        return { ...opened, waitUntilReady: () => isResumed.then(opened.waitUntilReady) };
      },
    };
    await workOne({ bullmq: async () => late, probe: async () => void setImmediate(resume) });
    await expectInSync(world);
  });

  it('goes on when the first sweep of the queue fails', async () => {
    let sweeps = 0;
    const failing: Producer = {
      ...producer,
      async requeue(...of) {
        if (sweeps++ === 0) throw new SlotsyncError('state_failed', 'no');
        return producer.requeue(...of);
      },
    };
    await workOne({ producer: failing, concurrency: 1 });
    expect(sweeps).toBe(1);
    await expectInSync(world);
  });

  /** A run that the process `planning` has begun to plan. */
  async function startPlanned(): Promise<number> {
    const runId = await world.startRun();
    await world.sql`UPDATE slotsync.runs SET planner = ${plannerOf('planning')}`;
    await world.sql`INSERT INTO slotsync.processes (id, command, host, pid) VALUES ('planning', 'sync', 'here', 1)`;
    return runId;
  }

  it('is left to its planner by the sweeps of other processes, while the planner is alive', async () => {
    const runId = await startPlanned();
    const jobs = () => bullmq.queue(QUEUES.runs).getJobCountByTypes('waiting', 'prioritized');
    await producer.requeue('other');
    expect(await jobs()).toBe(0);
    await world.sql`UPDATE slotsync.processes SET seen_at = now() - interval '31 seconds'`;
    await producer.requeue('other');
    expect(await jobs()).toBe(1);
    await work(world, hasEnded(world, runId), 'the run to end');
  });

  it('is queued by a sweep of its own planner, which has left the run', async () => {
    const runId = await startPlanned();
    await producer.requeue('planning');
    await work(world, hasEnded(world, runId), 'the run to end');
  });
});

it('a job whose notification was lost is taken within half a minute', async () => {
  const world = await open();
  await addRooms(world, 'A');
  const { runId, queue } = await world.plan();
  const [batchId = 0] = queue;
  const jobs = bullmq.queue(QUEUES.batches);
  // Its worker waits for it, longer than the test.
  await jobs.add('apply', { batchId }, { ...JOB_OPTIONS, jobId: batchJobId(batchId), delay: 110_000 });
  await jobs.close();
  let isLost = false;
  const lose = async () => {
    const waits = await world.sql`
      SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle' AND query LIKE '%next_delay($1)%'`;
    if (waits.length === 0) return false;
    await world.sql`UPDATE slotsync_queue.job SET state = 'waiting'`;
    return true;
  };
  const done = async () => {
    isLost ||= await lose();
    return isLost && (await hasEnded(world, runId)());
  };
  await work(world, done, 'the run to end', 60_000);
  await expectInSync(world);
});

it('a batch that fails is sent alone from then on, so that it spoils no other batch twice', async () => {
  // So long between two slots that the batches come to stand in one line.
  const world = await open(rooms({ owns: 'object' }), { rules: { paceMs: 500 } });
  const all = ['B', 'C', 'D', 'E', 'F', 'A'];
  await addRooms(world, ...all);
  const { runId, queue } = await world.planBatches(
    'rooms',
    all.map((code) => [code]),
  );
  world.sandbox.refuseObject('room_A', { status: 500, message: 'spoils', wholeCall: true });
  const jobs = bullmq.queue(QUEUES.batches);
  for (const batchId of queue) {
    const jobId = batchJobId(batchId);
    await jobs.add('apply', { batchId }, { ...JOB_OPTIONS, attempts: 2, jobId, priority: 2 });
  }
  await jobs.close();
  await work(world, hasEnded(world, runId), 'the run to end');
  const together = world.writes().filter(({ status, objects = 0 }) => status === 500 && objects > 1);
  expect(together.reduce((sum, { objects = 0 }) => sum + objects, 0)).toBeLessThanOrEqual(all.length);
  const { A, ...others } = await world.statusesOf('rooms');
  expect(A).toBe('failed');
  expect([...new Set(Object.values(others))]).toEqual(['synced']);
});

it('an object at which a gateway answers fails alone, and no circuit breaker opens', async () => {
  const world = await open(rooms({ owns: 'object' }));
  const all = Array.from({ length: 20 }, (_, at) => `c${at}`);
  await addRooms(world, ...all);
  world.sandbox.failNext({ method: 'PUT', extId: 'room_c7', fault: 'html', times: 'always' });
  const { runId, queue } = await world.plan();
  await producer.enqueueBatches(queue.map((id) => ({ id, lane: 'sync' })));
  await work(world, hasEnded(world, runId), 'the run to end');
  const { c7, ...others } = await world.recordsOf('rooms');
  expect(c7).toMatchObject({ status: 'failed', error_code: 'service_fails_on_object', in_doubt: true });
  expect([...new Set(Object.values(others).map(({ status }) => status))]).toEqual(['synced']);
  expect(world.lines.filter((line) => line.includes('circuit breaker open'))).toEqual([]);
  expect(world.writes().length).toBeLessThanOrEqual(1 + 12 + 3);
});

it('a worker whose queue loop ends is noted as sending nothing, with the reason', async () => {
  const world = await open();
  const presence = await startPresence({ state: world.state, log: world.log, command: 'worker' });
  let end: (error: Error) => void = () => undefined;
  const ending = new Promise<void>((_, reject) => (end = reject));
  const paused: string[] = [];
  const fragile: Bullmq = {
    ...bullmq,
    worker: (name, ...rest) => {
      const worker = bullmq.worker(name, ...rest);
      return {
        ...worker,
        run: () => (name === QUEUES.incrementalBatches ? ending : worker.run()),
        pause: () => (paused.push(name), worker.pause()),
      };
    },
  };
  await withWorkers(world, { bullmq: async () => fragile, presence }, async (workers) => {
    await workers.start();
    expect(workers.phase()).toBe('running');
    end(Object.assign(new Error('no'), { code: 'ECONNRESET' }));
    const [noted] = await until(
      async () => {
        const found = await listProcesses(world.state.db);
        return found[0]?.stoppedSince && found;
      },
      { describe: 'the state to say that nothing is sent' },
    );
    expect(noted).toMatchObject({
      isAlive: true,
      errorCode: 'worker_ended',
      errorMessage: 'the process no longer works the queue (ECONNRESET)',
    });
    expect(workers.phase()).toBe('ended');
    expect(workers.sendingStopped()).toMatchObject({ code: 'worker_ended' });
    expect(paused.toSorted()).toEqual([QUEUES.batches, QUEUES.incrementalBatches, QUEUES.runs].toSorted());
    const said = await statusOf(world.state);
    expect(said).toMatch(
      /^- Nothing has been sent since .*: worker_ended\n[^]*\n +→ Restart the worker: slotsync worker/m,
    );
    expect(said).not.toContain('resumes automatically');
  });
  await presence.close();
});
