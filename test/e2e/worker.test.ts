// Workers as an operator runs them: watched over HTTP, stopped in two steps.
import { beforeAll, describe, expect, it } from 'vitest';
import { findFreePort } from '../support/free-port.js';
import { rehearseOnce } from '../support/rehearsals.js';
import { createDatabase, STORES } from '../support/services.js';
import { until } from '../support/wait.js';

const ROWS = 200;

describe('a worker that is watched over HTTP', () => {
  const world = rehearseOnce({ rows: 40, sandbox: { rate: 20 } });

  it('serves its health and metrics, and is not ready once a database is gone', async () => {
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

      await world.run(['sync', '--detach'], settings);
      // The worker has begun one itself, as the streams are new: the other run follows it.
      const metrics = await until(
        async () => {
          const text = await (await ask('/metrics')).text();
          const isDone = text.includes('slotsync_run_duration_seconds{kind="sync",status="succeeded"}');
          return isDone && text.includes('slotsync_queue_jobs{lane="sync"} 0\n') && text;
        },
        { intervalMs: 250, describe: () => `the run to be told: ${worker.output()}` },
      );
      for (const line of [
        `slotsync_requests_total{endpoint="objects",status="200"} ${world.puts().length}`,
        'slotsync_requests_total{endpoint="authenticate",status="200"} 1',
        'slotsync_records_total{stream="rooms",outcome="synced"} 40',
        'slotsync_records_total{stream="courses",outcome="synced"} 40',
        'slotsync_source_up{source="state"} 1',
      ])
        expect(metrics).toContain(`${line}\n`);
      expect(metrics).toMatch(/slotsync_quota_wait_seconds_count\{lane="sync"\} [1-9]/);
      expect(metrics).toMatch(/slotsync_quota_slots\{state="free"\} \d+/);
      expect(metrics).toMatch(/slotsync_last_success_seconds\{stream="rooms"\} \d+\.?\d*\n/);
      expect(metrics).not.toMatch(/sandbox-key|Bearer|demo|postgres:\/\//);

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
        { describe: 'the metrics to say so' },
      );
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
    } finally {
      await state.drop();
    }
  });
});

describe.each(STORES)('a worker that is stopped, with the queue on $store', ({ url, skip }) => {
  describe.skipIf(skip)('in two steps', () => {
    const world = rehearseOnce({ redisUrl: url, rows: ROWS });
    beforeAll(async () => void (await world.read('sync --detach')));

    it('finishes batches in flight after the first signal, and leaves nothing claimed', async () => {
      world.holdWrites(3);
      const worker = world.start(['worker', '--concurrency', '4']);
      await world.untilHeld();
      worker.child.kill('SIGTERM');
      await world.untilStopping(worker);
      world.sandbox.openGate();
      const { code } = await worker.finished;
      expect(code).toBe(0);
      expect(await world.claims()).toEqual({ claimed: 0, inDoubt: 0 });
      const [{ synced } = {}] =
        await world.sql`SELECT count(*)::int AS synced FROM slotsync.records WHERE status = 'synced'`;
      expect(world.sandbox.objects()).toHaveLength(synced as number);
      expect(synced).toBeLessThan(2 * ROWS);
    });

    it('returns its batches at once after the second signal, without using an attempt', async () => {
      world.holdWrites();
      const worker = world.start(['worker', '--concurrency', '4']);
      await world.untilHeld(2);
      worker.child.kill('SIGTERM');
      await world.untilStopping(worker);
      worker.child.kill('SIGINT');
      // It waits for no answer: none comes while the gate is closed.
      const { code } = await worker.finished;
      expect(code).toBe(0);
      expect(worker.output()).not.toContain('it is retried');
      expect((await world.claims()).claimed).toBe(0);
    });

    it('returns its batches when the grace has ended', async () => {
      world.sandbox.openGate();
      world.holdWrites();
      const worker = world.start(['worker', '--concurrency', '2', '--grace', '1']);
      await world.untilHeld();
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
      expect(world.sandbox.gate().held).toBeGreaterThan(0);
      expect((await world.claims()).claimed).toBe(0);
    });

    it('leaves its run to another worker, which finishes the run', async () => {
      if (url === undefined) {
        const spent = await world.sql`SELECT max(attempts_made)::int AS attempts FROM slotsync_queue.job`;
        expect(spent).toEqual([{ attempts: 0 }]);
      }
      world.sandbox.openGate();
      const worker = world.start(['worker', '--concurrency', '20']);
      const succeeded = () => world.sql`SELECT FROM slotsync.runs WHERE status = 'succeeded'`;
      await until(async () => (await succeeded()).length === 1, {
        describe: () => `the run to succeed: ${worker.output()}`,
      });
      worker.child.kill('SIGTERM');
      expect((await worker.finished).code).toBe(0);
      expect(worker.output()).not.toContain('"attempt"');
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
      expect(await world.claims()).toEqual({ claimed: 0, inDoubt: 0 });
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
    });
  });
});
