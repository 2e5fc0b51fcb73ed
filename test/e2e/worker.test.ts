// Workers as an operator runs them: watched over HTTP, told to stop in two steps, started and stopped at any time.
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRandom } from '../../src/sandbox/random.js';
import { findFreePort } from '../support/free-port.js';
import type { Running } from '../support/program.js';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';
import { createDatabase, redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

const stores = [
  { store: 'PostgreSQL', url: () => undefined, skip: false },
  { store: 'Redis', url: redisUrl, skip: redisUrl() === undefined },
];

const ROWS = 400;

describe('a watched worker', () => {
  it('tells its health and its metrics, and that it is not ready once a database is gone', async () => {
    const world = await rehearse({ rows: 40, sandbox: { rate: 20 } });
    const state = await createDatabase();
    try {
      const port = await findFreePort();
      const settings = { HTTP_PORT: String(port), STATE_DATABASE_URL: state.url };
      const ask = (path: string) => fetch(`http://127.0.0.1:${port}${path}`);
      const worker = world.start(['worker', '--grace', '1'], settings);
      await until(async () => (await ask('/readyz')).status === 200, {
        describe: () => `the worker to be ready: ${worker.output()}`,
      });
      expect(await (await ask('/healthz')).json()).toEqual({ alive: true, phase: 'running' });

      const taken = await world.run(['worker'], settings);
      expect(taken.code).toBe(2);
      expect(taken.stderr).toContain(`HTTP_PORT: port ${port} is taken`);

      await world.run(['sync', '--detach'], settings);
      const metrics = await until(
        async () => {
          const text = await (await ask('/metrics')).text();
          return text.includes('slotsync_run_duration_seconds{kind="sync",status="succeeded"}') && text;
        },
        { timeoutMs: 20_000, intervalMs: 250, describe: () => `the run to be told: ${worker.output()}` },
      );
      const sent = world.sandbox.arrivals();
      const puts = sent.filter(({ method }) => method === 'PUT').length;
      expect(metrics).toContain(`slotsync_requests_total{endpoint="objects",status="200"} ${puts}\n`);
      expect(metrics).toContain('slotsync_requests_total{endpoint="authenticate",status="200"} 1\n');
      expect(metrics).toContain('slotsync_records_total{stream="rooms",outcome="synced"} 40\n');
      expect(metrics).toContain('slotsync_records_total{stream="courses",outcome="synced"} 40\n');
      expect(metrics).toContain('slotsync_queue_jobs{lane="sync"} 0\n');
      expect(metrics).toMatch(/slotsync_quota_wait_seconds_count\{lane="sync"\} [1-9]/);
      expect(metrics).toMatch(/slotsync_quota_slots\{state="free"\} \d+/);
      expect(metrics).toMatch(/slotsync_last_success_seconds\{stream="rooms"\} \d+\.?\d*\n/);
      expect(metrics).toContain('slotsync_source_up{source="state"} 1\n');
      for (const secret of ['sandbox-key', 'Bearer', 'demo', 'postgres://']) {
        expect(metrics).not.toContain(secret);
      }

      await state.drop();
      const answer = await until(
        async () => {
          const ready = await ask('/readyz');
          return ready.status === 503 && ((await ready.json()) as Record<string, unknown>);
        },
        { describe: 'the worker to notice' },
      );
      expect(answer).toMatchObject({
        ready: false,
        notReady: { state: expect.any(String), queue: expect.any(String) },
      });
      expect((await ask('/healthz')).status).toBe(200);
      await until(
        async () => (await (await ask('/metrics')).text()).includes('slotsync_source_up{source="state"} 0\n'),
        {
          describe: 'the metrics to say so',
        },
      );
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
    } finally {
      await world.close();
      await state.drop();
    }
  }, 60_000);
});

describe.each(stores)('a worker told to stop, with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('in two steps', () => {
    let world: Rehearsal;
    beforeAll(async () => {
      world = await rehearse({ redisUrl: url(), rows: ROWS, sandbox: { rate: 20, latencyMs: 200 } });
      await world.run(['sync', '--detach']);
    });
    afterAll(() => world.close());

    it('first finishes what is in work, and leaves nothing claimed', async () => {
      const worker = world.start(['worker', '--concurrency', '4']);
      await until(() => world.puts().length >= 3, { describe: 'some batches to be written' });
      worker.child.kill('SIGTERM');
      const { code } = await worker.finished;
      expect(code).toBe(0);
      expect(await claims(world)).toEqual({ claimed: 0, doubted: 0 });
      const [{ there } = {}] =
        await world.sql`SELECT count(*)::int AS there FROM slotsync.records WHERE status = 'synced'`;
      expect(world.sandbox.objects()).toHaveLength(there as number);
      expect(there).toBeLessThan(2 * ROWS);
    });

    it('then interrupts it: it goes back at once, with every attempt it had', async () => {
      const worker = world.start(['worker', '--concurrency', '4']);
      await hang(world);
      worker.child.kill('SIGTERM');
      await until(() => worker.output().includes('finishing the work in flight'), {
        describe: 'the first step',
      });
      const at = performance.now();
      worker.child.kill('SIGINT');
      const { code } = await worker.finished;
      expect(performance.now() - at).toBeLessThan(4000);
      expect(code).toBe(0);
      expect(worker.output()).not.toContain('it is retried');
      expect(await claims(world)).toMatchObject({ claimed: 0 });
    });

    it('interrupts it also when the grace has ended', async () => {
      const worker = world.start(['worker', '--concurrency', '4', '--grace', '1']);
      await hang(world);
      const at = performance.now();
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
      expect(performance.now() - at).toBeLessThan(6000);
      expect(await claims(world)).toMatchObject({ claimed: 0 });
    });

    it('and another finishes the run', async () => {
      if (url() === undefined) {
        const spent = await world.sql`SELECT max(attempts_made)::int AS attempts FROM slotsync_queue.job`;
        expect(spent).toEqual([{ attempts: 0 }]);
      }
      world.sandbox.setFaults({});
      const worker = world.start(['worker', '--concurrency', '20']);
      await until(() => runStatus(world).then((status) => status === 'succeeded'), {
        timeoutMs: 20_000,
        describe: () => `the run to succeed: ${worker.output()}`,
      });
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
      expect(worker.output()).not.toContain('"attempt"');
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
      expect(await claims(world)).toEqual({ claimed: 0, doubted: 0 });
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
    });
  });
});

describe('three workers that come and go', () => {
  it('change nothing but the speed of a run', async () => {
    const rows = 300;
    const world = await rehearse({ rows, sandbox: { rate: 20, latencyMs: 60 } });
    const random = createRandom(7);
    const ended: Promise<{ code: number | null }>[] = [];
    try {
      await world.run(['sync', '--detach']);
      const workers: (Running | undefined)[] = [undefined, undefined, undefined];
      const stop = (worker: Running) => {
        worker.child.kill('SIGTERM');
        ended.push(worker.finished);
      };
      const isFinished = async () => (await runStatus(world)) === 'succeeded';
      const deadline = performance.now() + 40_000;
      while (!(await isFinished()) && performance.now() < deadline) {
        const at = Math.floor(random() * workers.length);
        const worker = workers[at];
        if (!worker) workers[at] = world.start(['worker', '--concurrency', '6']);
        else if (worker.output().includes('worker started')) {
          stop(worker);
          if (random() < 0.5) worker.child.kill('SIGINT');
          workers[at] = undefined;
        }
        await pause(200 + random() * 500);
      }
      for (const worker of workers) {
        if (!worker) continue;
        await until(() => worker.output().includes('worker started'), { describe: 'a worker to start' });
        stop(worker);
      }
      for (const { code } of await Promise.all(ended)) expect(code).toBe(0);

      expect(ended.length).toBeGreaterThan(3);
      expect(await runStatus(world)).toBe('succeeded');
      expect(world.sandbox.objects()).toHaveLength(2 * rows);
      for (const at of [1, rows / 2, rows]) {
        expect(world.sandbox.object(`room_R${at}`)?.fields).toContainEqual({
          fieldId: 'room.seats',
          values: [String(at)],
        });
        expect(world.sandbox.object(`course_${at}`)?.fields).toContainEqual({
          fieldId: 'course.room',
          values: [`room_R${at}`],
        });
      }
      const [records] = await world.sql`
        SELECT count(*)::int AS count, bool_and(status = 'synced') AS synced FROM slotsync.records`;
      expect(records).toEqual({ count: 2 * rows, synced: true });
      expect(await claims(world)).toEqual({ claimed: 0, doubted: 0 });
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
      expect(world.sandbox.refused()).toBe(0);
    } finally {
      await world.close();
    }
  }, 90_000);
});

/** Lets the service answer a little, and then nothing any more, with some requests on the wire. */
async function hang({ sandbox, puts }: Rehearsal): Promise<void> {
  sandbox.setFaults({});
  const before = puts().length;
  await until(() => puts().length > before, { describe: 'a batch to be written' });
  sandbox.setFaults({ hang: 1 });
  const then = sandbox.arrivals().length;
  await until(() => sandbox.arrivals().length > then + 1, { describe: 'requests to hang' });
}

async function claims({ sql }: Rehearsal) {
  const [row] = await sql`
    SELECT count(*) FILTER (WHERE claimed_by IS NOT NULL)::int AS claimed,
      count(*) FILTER (WHERE in_doubt)::int AS doubted FROM slotsync.records`;
  return row;
}

async function runStatus({ sql }: Rehearsal): Promise<string | undefined> {
  const [run] = await sql<{ status: string }[]>`SELECT status FROM slotsync.runs ORDER BY id DESC LIMIT 1`;
  return run?.status;
}
