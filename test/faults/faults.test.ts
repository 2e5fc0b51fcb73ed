// Guarantees 3, 4
// Processes and servers are lost, one at a time and together. Afterwards every object is as its row maps, only accepted writes
// are recorded, the quota holds, and no operator has to act. SLOTSYNC_SEED repeats one schedule of faults. `npm run soak`
// plays one after another.
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { playSeed } from '../support/chaos.js';
import { playHistory } from '../support/chaos-histories.js';
import { describeWorld, findFaults, settle } from '../support/chaos-check.js';
import { createRoomsAndCourses } from '../support/chaos-mirror.js';
import { openChaosWorld, type ChaosOptions, type ChaosWorld, type Store } from '../support/chaos-world.js';
import { DISTURBANCES } from '../support/disturbances.js';
import type { GateRule } from '../../src/sandbox/request-steps.js';
import type { WorkerProcess } from '../support/chaos-workers.js';
import { redisUrl } from '../support/services.js';
import { isRedisInstalled } from '../support/redis-server.js';
import { until } from '../support/wait.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;

// The tests wait more than they work.
vi.setConfig({ maxConcurrency: 6 });

// These tests end and restart their servers, so they cannot use a Redis that others use.
const hasRedis = redisUrl() !== undefined && (await isRedisInstalled());
const storesThere: readonly Store[] = hasRedis ? ['PostgreSQL', 'Redis'] : ['PostgreSQL'];

/** Opens a world for one test. If the test fails, its error has the timeline and the output of the processes. */
async function inWorld(options: ChaosOptions, test: (world: ChaosWorld) => Promise<void>): Promise<void> {
  const world = await openChaosWorld(options);
  try {
    await test(world);
  } catch (error) {
    throw new Error(`${world.timeline()}\n${await describeWorld(world)}`, { cause: error });
  } finally {
    await world.close();
  }
}

/** Resolves when the service has taken ten more writes and holds the next. */
async function holdInTheMiddle({ service }: ChaosWorld): Promise<void> {
  service.openGate();
  service.closeGate({ method: 'PUT', after: 10 });
  await until(() => service.held(), { timeoutMs: 2 * MINUTE, describe: 'writes to be held' });
}

/** Leaves a run to two workers. Resolves in the middle of its writing, which continues with `service.openGate()`. */
async function beginRun(world: ChaosWorld): Promise<void> {
  world.workers.start(2);
  const { code, stderr } = await world.run(['sync', '--detach']);
  expect(code, stderr).toBe(0);
  await holdInTheMiddle(world);
}

/** Does something to the world while answers arrive. */
async function whileAnswersArrive({ service }: ChaosWorld, act: Promise<unknown> | undefined): Promise<void> {
  service.openGate();
  await act;
}

async function waitForRuns({ sql, note }: ChaosWorld): Promise<void> {
  await until(async () => (await sql`SELECT FROM slotsync.runs WHERE finished_at IS NULL`).length === 0, {
    timeoutMs: 5 * MINUTE, // a connection that fell silent is closed after two
    intervalMs: 200,
    describe: 'the run to end',
  });
  note('the run has ended');
}

/** Waits until the workers have checked every object whose write had no answer. */
async function waitForChecks({ sql, note }: ChaosWorld): Promise<void> {
  await until(
    async () =>
      (
        await sql`
          SELECT FROM slotsync.records WHERE check_after IS NOT NULL OR in_doubt
          UNION ALL SELECT FROM slotsync.changes
          UNION ALL SELECT FROM slotsync.runs WHERE finished_at IS NULL`
      ).length === 0,
    { timeoutMs: 3 * MINUTE, intervalMs: 200, describe: 'the checks to be followed up' },
  );
  note('every check has been followed up');
}

/** Expects that the workers have completed the run without another command, and that nothing is left to do. */
async function expectCompletedAlone(world: ChaosWorld): Promise<void> {
  await waitForRuns(world);
  await waitForChecks(world);
  const runs = await world.sql`SELECT status, error_code FROM slotsync.runs WHERE kind = 'sync'`;
  expect([...runs]).toEqual([{ status: 'succeeded', error_code: null }]);
  expect(await findFaults(world)).toEqual([]);
}

/** Enough writes to stop twice in the middle of them. */
const LARGE = { mirror: createRoomsAndCourses({ rooms: 1000, courses: 500 }), sandbox: { latencyMs: 100 } };

describe.concurrent('a worker that is frozen and wakes', () => {
  // A batch is taken over when its job has stalled (20 to 30 s) and its claim has ended.
  const TAKEN_OVER_MS = MINUTE;

  const versionOf = ({ service }: ChaosWorld, extId: string) =>
    service.object(extId)?.fields.find(({ fieldId }) => fieldId.endsWith('.version'))?.values[0];

  /** Syncs everything, changes one row, and lets one worker begin the run. */
  async function beginChange(
    world: ChaosWorld,
    table: 'rooms' | 'courses',
    gate?: GateRule,
  ): Promise<WorkerProcess> {
    expect((await world.run(['sync'])).code).toBe(0);
    if (gate) world.service.closeGate(gate);
    await world.sql`UPDATE ${world.sql(table)} SET version = 2`;
    const [worker] = world.workers.start(1);
    if (!worker) throw new Error('a worker was started');
    expect((await world.run(['sync', '--detach', table])).code).toBe(0);
    return worker;
  }

  /** Lets another worker send version 3 while the first worker is frozen. */
  async function takeOver(world: ChaosWorld, table: 'rooms' | 'courses', extId: string): Promise<void> {
    await world.sql`UPDATE ${world.sql(table)} SET version = 3`;
    world.workers.start(2);
    await until(() => versionOf(world, extId) === '3', {
      timeoutMs: 2 * TAKEN_OVER_MS,
      describe: 'another worker to take the batch over',
    });
    await waitForRuns(world);
  }

  /** Wakes the worker, and waits until it has reacted to the loss of its batch. */
  async function waitUntilAwake(world: ChaosWorld, worker: WorkerProcess): Promise<void> {
    const said = worker.running.output().length;
    world.workers.wake(worker);
    await until(() => worker.running.output().length > said, {
      timeoutMs: 2 * MINUTE,
      describe: 'the woken worker to say something of its batch',
    });
    await world.workers.stop(worker); // it has done whatever it would still do
  }

  /** Answers the held request of a frozen worker. Resolves when the service has sent the answer. */
  async function answerHeld({ service }: ChaosWorld, path: string): Promise<void> {
    service.openGate();
    await until(() => service.ours().findLast((one) => one.path.endsWith(path))?.status === 200, {
      describe: 'the answer to leave',
    });
  }

  it(
    'writes nothing if it was frozen before writing, past its lock and its claim',
    async () => {
      await inWorld(
        {
          store: 'PostgreSQL',
          mirror: createRoomsAndCourses({ rooms: 1, courses: 25 }),
          requestTimeoutMs: 10 * MINUTE,
        },
        async (world) => {
          const { service, workers } = world;
          const worker = await beginChange(world, 'courses', { path: '/objects/find' });
          await until(() => service.held(), { describe: 'the worker to read' });
          workers.freeze(worker);
          await answerHeld(world, '/objects/find');
          expect(await world.endClaimsOf([worker.name])).toBe(25);

          await takeOver(world, 'courses', 'course_1');
          const puts = service.puts().length;
          await waitUntilAwake(world, worker);
          expect(service.puts()).toHaveLength(puts);
          await world.makeChecksDue();
          expect((await settle(world)).faults).toEqual([]);
          expect(await findFaults(world)).toEqual([]);
        },
      );
    },
    8 * MINUTE,
  );

  it.skipIf(!hasRedis)(
    'leaves the newer version if it was frozen in mid-write, past its lock and its claim',
    async () => {
      await inWorld(
        {
          store: 'Redis',
          mirror: createRoomsAndCourses({ rooms: 25, courses: 0 }),
          requestTimeoutMs: 10 * MINUTE,
        },
        async (world) => {
          const { service, workers } = world;
          const worker = await beginChange(world, 'rooms', { method: 'PUT', hold: 'answer' });
          await until(() => service.held(), { describe: 'the worker to write' });
          workers.freeze(worker);
          await answerHeld(world, '/objects');
          expect(await world.endClaimsOf([worker.name])).toBe(25);

          await takeOver(world, 'rooms', 'room_R1');
          await waitUntilAwake(world, worker);
          await world.makeChecksDue();
          expect((await settle(world)).faults).toEqual([]);
          expect(versionOf(world, 'room_R1')).toBe('3');
          expect(await findFaults(world)).toEqual([]);
        },
      );
    },
    8 * MINUTE,
  );

  // Nothing is shortened in this test: the claim expires after its minute.
  it(
    'writes nothing if its write waited for the quota until its claim had ended',
    async () => {
      await inWorld(
        { store: 'PostgreSQL', mirror: createRoomsAndCourses({ rooms: 25, courses: 0 }) },
        async (world) => {
          const { service, workers } = world;
          const worker = await beginChange(world, 'rooms');
          const before = service.puts().length;
          service.sandbox()?.failNext({
            path: '/objects',
            fault: 'status',
            status: 429,
            headers: { 'retry-after': '10' },
          });
          await until(() => worker.running.output().includes('"throttled"'), {
            timeoutMs: MINUTE,
            describe: 'the write to be throttled',
          });
          workers.freeze(worker);
          expect(service.puts()).toHaveLength(before + 1);

          await takeOver(world, 'rooms', 'room_R1');
          const puts = service.puts().length;
          await waitUntilAwake(world, worker);
          expect(service.puts()).toHaveLength(puts);
          expect((await settle(world)).faults).toEqual([]);
          expect(await findFaults(world)).toEqual([]);
        },
      );
    },
    8 * MINUTE,
  );
});

describe.concurrent('a run without help of an operator', () => {
  it.each(storesThere)(
    'completes after a restart and a crash of PostgreSQL (queue on %s)',
    async (store) => {
      await inWorld({ store, ...LARGE }, async (world) => {
        await beginRun(world);
        await whileAnswersArrive(world, world.postgres.restart());
        world.note('PostgreSQL restarted');
        await holdInTheMiddle(world);
        await whileAnswersArrive(world, world.postgres.crash(2 * SECOND));
        world.note('PostgreSQL crashed');
        await expectCompletedAlone(world);
      });
    },
    8 * MINUTE,
  );

  it.skipIf(!hasRedis).each(['kept', 'lost'] as const)(
    'completes after a restart of Redis, its data %s',
    async (data) => {
      await inWorld({ store: 'Redis', ...LARGE }, async (world) => {
        await beginRun(world);
        await whileAnswersArrive(world, world.redis?.restart(data, SECOND));
        world.note(`Redis restarted, data ${data}`);
        await expectCompletedAlone(world);
      });
    },
    8 * MINUTE,
  );

  // Until a worker stops sending. A longer outage changes nothing.
  it(
    'completes after the service was down',
    async () => {
      await inWorld({ store: 'PostgreSQL', ...LARGE }, async (world) => {
        await beginRun(world);
        await world.service.down();
        world.note('the service is down');
        await until(
          () => world.workers.living().some(({ running }) => running.output().includes('sending stopped')),
          { describe: 'a worker to stop sending' },
        );
        await world.service.up();
        world.note('the service is up');
        await expectCompletedAlone(world);
      });
    },
    8 * MINUTE,
  );

  it(
    'completes after a worker was killed and not replaced',
    async () => {
      await inWorld({ store: 'PostgreSQL', ...LARGE }, async (world) => {
        await beginRun(world);
        const [first] = world.workers.living();
        if (!first) throw new Error('two workers were started');
        world.workers.want(1);
        await whileAnswersArrive(world, world.workers.kill(first));
        await expectCompletedAlone(world);
      });
    },
    8 * MINUTE,
  );
});

const pools = storesThere.flatMap((store) =>
  [1, 2, 3, 8, 16].flatMap((workers) =>
    ([5, 'auto'] as const).map((batchSize) => ({ store, workers, batchSize })),
  ),
);

// Not concurrent: sixteen processes are enough for one machine.
describe('a pool of workers', () => {
  it.each(pools)(
    'completes three lanes despite a join, a kill and a freeze: $workers, batches $batchSize, $store',
    async ({ store, workers: count, batchSize }) => {
      const mirror = createRoomsAndCourses({ rooms: 1000, courses: 500, batchSize });
      await inWorld({ store, mirror, sandbox: { latencyMs: 100 } }, async (world) => {
        const { workers, service, sql } = world;
        expect((await world.run(['triggers', 'install', 'rooms'])).code).toBe(0);
        expect((await world.run(['sync', '--detach', 'rooms'])).code).toBe(0);
        expect((await world.run(['backfill', '--detach', 'courses'])).code).toBe(0);
        workers.start(count);
        await holdInTheMiddle(world);
        await sql`UPDATE rooms SET version = 2 WHERE code = 'R1'`;
        workers.start(count + 1);
        const [first, second] = workers.living();
        if (second) workers.freeze(second);
        await whileAnswersArrive(world, first && workers.kill(first));
        await pause(90 * SECOND);
        if (second) workers.wake(second);
        await waitForRuns(world);
        await waitForChecks(world);
        const runs = await sql`SELECT kind, status FROM slotsync.runs WHERE status <> 'succeeded'`;
        expect([...runs]).toEqual([]);
        const version = service.object('room_R1')?.fields.find(({ fieldId }) => fieldId === 'room.version');
        expect(version?.values).toEqual(['2']);
        // The worker that woke looks at what it had begun.
        await pause(5 * SECOND);
        await world.makeChecksDue();
        expect((await settle(world)).faults).toEqual([]);
        expect(await findFaults(world)).toEqual([]);
      });
    },
    10 * MINUTE,
  );
});

const disturbed = Object.entries(DISTURBANCES).flatMap(([what, play]) =>
  storesThere.map((store) => ({ what, play, store })),
);

// PostgreSQL and Redis together.
describe.concurrent('a run without help of an operator and with a disturbed network to its stores', () => {
  it.each(disturbed)(
    'completes although the network $what (queue on $store)',
    async ({ what, play, store }) => {
      await inWorld({ store, ...LARGE, hasNetwork: true }, async (world) => {
        await beginRun(world);
        await whileAnswersArrive(world, Promise.all(world.networks.map((hop) => play(hop, 30 * SECOND))));
        world.note(`the network ${what} no more`);
        await expectCompletedAlone(world);
      });
    },
    8 * MINUTE,
  );
});

const chosen = process.env['SLOTSYNC_SEED'];
const schedules: { seed: number; store: Store }[] = chosen
  ? storesThere.map((store) => ({ seed: Number(chosen), store }))
  : [
      { seed: 1, store: 'PostgreSQL' },
      { seed: 2, store: hasRedis ? 'Redis' : 'PostgreSQL' },
      { seed: 3, store: hasRedis ? 'Redis' : 'PostgreSQL' },
    ];

// Two of them, so that the suite takes minutes. `npm run soak` plays as many as there is time for.
describe.concurrent('random faults of every kind, with four workers at work and rows changing', () => {
  it.each(schedules.slice(0, 2))(
    'leave every object as its row maps: seed $seed, queue on $store',
    async ({ seed, store }) => {
      process.stdout.write(`SLOTSYNC_SEED=${seed} (${store})\n`);
      const { faults, summary, evidence } = await playSeed(seed, { store });
      process.stdout.write(`${summary}\n`);
      expect(faults, `SLOTSYNC_SEED=${seed} repeats it; timeline and logs: ${evidence}`).toEqual([]);
    },
    8 * MINUTE,
  );
});

// Few codes in two streams with one template, and three writers, so that writes meet at the same objects.
describe.concurrent(
  'rows that change key and stream, come and go, with two workers and syncs at work',
  () => {
    it.each(schedules)(
      'leave every object as the row with its code says: seed $seed, queue on $store',
      async ({ seed, store }) => {
        process.stdout.write(`SLOTSYNC_SEED=${seed} (history, ${store})\n`);
        const { faults, summary, evidence } = await playHistory(seed, { store });
        process.stdout.write(`${summary}\n`);
        expect(faults, `SLOTSYNC_SEED=${seed} repeats it; timeline and logs: ${evidence}`).toEqual([]);
      },
      8 * MINUTE,
    );
  },
);
