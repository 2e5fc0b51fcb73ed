// The circuit breaker over a whole worker: wrong credentials cost a dozen requests, and the run continues when the service
// answers again.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findFreePort } from '../support/free-port.js';
import { rehearse } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

describe.concurrent.each(STORES)(
  'the circuit breaker when the key is refused, with the queue on $store',
  ({ url, skip }) => {
    it.skipIf(skip)(
      'stops sending in mid-run after about a dozen requests, logs this once, and resumes',
      async () => {
        const rows = 400;
        const world = await rehearse({ redisUrl: url, rows, sandbox: { gate: { method: 'PUT', after: 5 } } });
        try {
          const port = await findFreePort();
          const worker = await world.startWorker([], { HTTP_PORT: String(port) });
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
          const status = async () => (await world.run(['status', '--full'])).stdout;
          await until(async () => (await status()).includes('Nothing has been sent since'), {
            intervalMs: 250,
            describe: 'the status to say that nothing is sent',
          });
          expect(await status()).toMatch(
            /Nothing has been sent since \d{4}-.* UTC: unauthorized\n[^]*worker on .*, process \d+, for \d+ \w+: /,
          );
          expect(await status()).toMatch(/Last answer of the service: HTTP 401, .*; the last success \d{4}-/);
          const ready = await fetch(`http://127.0.0.1:${port}/readyz`);
          expect(ready.status).toBe(503);
          expect(await ready.json()).toEqual({
            ready: false,
            notReady: { sending: 'unauthorized' },
            sendingStopped: {
              since: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
              code: 'unauthorized',
              meaning: 'the service did not accept the key, or does not permit the request',
            },
          });

          world.sandbox.clearFailures();
          await until(() => world.sandbox.objects().length === 2 * rows, { describe: 'the rest to arrive' });
          await until(async () => (await world.run(['runs', '1'])).stdout.includes('Run 1 succeeded'), {
            intervalMs: 250,
            describe: 'the run to end',
          });
          const [other] =
            await world.sql`SELECT count(*)::int AS count FROM slotsync.records WHERE status <> 'synced'`;
          expect(other?.['count']).toBe(0);
          expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200);
          expect(await status()).not.toContain('Sending stopped');
        } finally {
          await world.close();
        }
      },
    );
  },
);

describe.concurrent('the circuit breaker when the key is wrong from the start', () => {
  it('keeps the run at a cost of a few requests, and sends it once the key file has the right key', async () => {
    const world = await rehearse({ rows: 20 });
    try {
      const file = path.join(world.folder, 'api_key');
      await writeFile(file, 'withdrawn-key', { mode: 0o600 });
      const worker = await world.startWorker([], { API_KEY: undefined, API_KEY_FILE: file });
      await world.run(['sync', '--detach']);
      await until(() => worker.output().includes('sending stopped'), { describe: 'the stop' });
      expect(world.sandbox.arrivals().length).toBeLessThan(20);
      await writeFile(file, 'sandbox-key');
      await until(() => world.sandbox.objects().length === 40, { describe: 'everything to arrive' });
      expect(worker.output()).not.toMatch(/withdrawn-key|sandbox-key/);
    } finally {
      await world.close();
    }
  });
});

// Guarantee 11
describe.concurrent('a command that waits for its run while the service fails', () => {
  it('says within five seconds that the service is down, and ends after --timeout', async () => {
    const world = await rehearse({ rows: 5 });
    try {
      const sync = world.start(['sync', '--timeout', '1'], {
        API_BASE_URL: `http://127.0.0.1:${await findFreePort()}`,
      });
      await until(() => sync.output().includes('"code":"service_unreachable"'), { describe: 'a failure' });
      const failedAt = performance.now();
      await until(() => /Nothing has been sent since .*: service_unreachable: /.test(sync.output()), {
        describe: () => `the reason: ${sync.output()}`,
      });
      expect(performance.now() - failedAt).toBeLessThan(5000);
      const { code, stderr } = await sync.finished;
      expect(code).toBe(1);
      expect(stderr).toMatch(/Stopping after 1 min, as --timeout says[^]*To continue: slotsync sync/);
      expect((await world.run(['sync'])).code).toBe(0);
    } finally {
      await world.close();
    }
  });

  it('says since when and why nothing is sent, also when it is interrupted', async () => {
    const world = await rehearse({ rows: 150 });
    try {
      world.sandbox.failNext({
        path: 'objects',
        method: 'PUT',
        fault: 'status',
        status: 503,
        times: 'always',
      });
      const sync = world.start(['sync']);
      const reason = /Nothing has been sent since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: service_failed: .*503/;
      await until(() => reason.test(sync.output()), { describe: () => `the reason: ${sync.output()}` });
      sync.child.kill('SIGINT');
      const { code, stderr } = await sync.finished;
      expect(code).toBe(1);
      expect(stderr).toMatch(new RegExp(`${reason.source}.*\\nStopped\\. Accepted records are stored`));
    } finally {
      await world.close();
    }
  });
});
