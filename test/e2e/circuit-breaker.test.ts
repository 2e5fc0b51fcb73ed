// When nothing can succeed, nothing is tried: wrong credentials cost a dozen requests, and the run goes on by itself.
import { describe, expect, it } from 'vitest';
import { rehearse } from '../support/rehearsal.js';
import { redisUrl } from '../support/services.js';
import { until } from '../support/wait.js';

const stores = [
  { store: 'PostgreSQL', url: () => undefined, skip: false },
  { store: 'Redis', url: redisUrl, skip: redisUrl() === undefined },
];

describe.each(stores)(
  'a worker whose key is refused in the middle of a run, with the queue on $store',
  ({ url, skip }) => {
    it.skipIf(skip)(
      'stops sending after about a dozen requests, says so once, and goes on by itself',
      async () => {
        const world = await rehearse({ redisUrl: url(), rows: 1000, sandbox: { rate: 20, latencyMs: 50 } });
        const worker = world.start(['worker']);
        try {
          await world.run(['sync', '--detach']);
          await until(() => world.puts().length >= 5, {
            timeoutMs: 20_000,
            describe: 'some batches to be written',
          });
          // From here on the service takes neither the token nor the key.
          world.sandbox.clearArrivals();
          world.sandbox.failNext({ fault: 'status', status: 401, times: 1000 });
          await until(() => worker.output().includes('sending stopped'), {
            timeoutMs: 20_000,
            describe: 'the stop',
          });
          await new Promise((resolve) => setTimeout(resolve, 3000));
          expect(world.sandbox.arrivals().length).toBeLessThan(40);
          expect(worker.output().split('sending stopped')).toHaveLength(2);

          world.sandbox.clearFailures();
          await until(() => world.sandbox.objects().length === 2000, {
            timeoutMs: 90_000,
            describe: 'the rest to arrive',
          });
          await until(async () => (await world.run(['runs', '1'])).stdout.includes('Run 1 succeeded'), {
            timeoutMs: 30_000,
            describe: 'the run to end',
          });
          const [dead] =
            await world.sql`SELECT count(*)::int AS count FROM slotsync.records WHERE status <> 'synced'`;
          expect(dead?.['count']).toBe(0);
        } finally {
          worker.child.kill('SIGTERM');
          await worker.finished;
          await world.close();
        }
      },
      150_000,
    );
  },
);

describe('a worker whose key is refused from the start', () => {
  it('keeps the run, costs a handful of requests, and does it when the key is right again', async () => {
    const world = await rehearse({ rows: 20, sandbox: { rate: 20 } });
    world.sandbox.failNext({ fault: 'status', status: 401, times: 1000 });
    const worker = world.start(['worker']);
    try {
      await world.run(['sync', '--detach']);
      await until(() => worker.output().includes('sending stopped'), {
        timeoutMs: 60_000,
        describe: 'the stop',
      });
      expect(world.sandbox.arrivals().length).toBeLessThan(20);
      world.sandbox.clearFailures();
      await until(() => world.sandbox.objects().length === 40, {
        timeoutMs: 60_000,
        describe: 'everything to arrive',
      });
    } finally {
      worker.child.kill('SIGTERM');
      await worker.finished;
      await world.close();
    }
  }, 150_000);
});
