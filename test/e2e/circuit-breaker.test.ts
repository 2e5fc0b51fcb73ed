// The circuit breaker over a whole worker: wrong credentials cost a dozen requests, and the run continues when the
// service accepts them again.
import { describe, expect, it } from 'vitest';
import { rehearse } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

describe.each(STORES)('circuit breaker: the key is refused, with the queue on $store', ({ url, skip }) => {
  it.skipIf(skip)(
    'in the middle of a run: sending stops after about a dozen requests, is reported once, and resumes',
    async () => {
      const rows = 400;
      const world = await rehearse({ redisUrl: url, rows, sandbox: { gate: { method: 'PUT', after: 5 } } });
      try {
        const worker = await world.startWorker();
        await world.run(['sync', '--detach']);
        await world.untilHeld();
        // From here on the service takes neither the token nor the key.
        world.sandbox.clearArrivals();
        world.sandbox.failNext({ fault: 'status', status: 401, times: 1000 });
        world.sandbox.openGate();
        await until(() => worker.output().includes('sending stopped'), { describe: 'the stop' });
        const isProbe = ({ path }: { path: string }) => path.endsWith('/authenticate');
        const stoppedAt = performance.now();
        await until(() => world.sandbox.arrivals().some((one) => one.at > stoppedAt && isProbe(one)), {
          describe: 'a probe',
        });
        expect(world.sandbox.arrivals().length).toBeLessThan(40);
        expect(worker.output().split('sending stopped')).toHaveLength(2);

        world.sandbox.clearFailures();
        await until(() => world.sandbox.objects().length === 2 * rows, { describe: 'the rest to arrive' });
        await until(async () => (await world.run(['runs', '1'])).stdout.includes('Run 1 succeeded'), {
          intervalMs: 250,
          describe: 'the run to end',
        });
        const [other] =
          await world.sql`SELECT count(*)::int AS count FROM slotsync.records WHERE status <> 'synced'`;
        expect(other?.['count']).toBe(0);
      } finally {
        await world.close();
      }
    },
  );
});

describe('circuit breaker: the key is refused from the start', () => {
  it('keeps the run, costs a handful of requests, and does it when the key is accepted', async () => {
    const world = await rehearse({ rows: 20 });
    try {
      world.sandbox.failNext({ fault: 'status', status: 401, times: 1000 });
      const worker = await world.startWorker();
      await world.run(['sync', '--detach']);
      await until(() => worker.output().includes('sending stopped'), { describe: 'the stop' });
      expect(world.sandbox.arrivals().length).toBeLessThan(20);
      world.sandbox.clearFailures();
      await until(() => world.sandbox.objects().length === 40, { describe: 'everything to arrive' });
    } finally {
      await world.close();
    }
  });
});
