// The circuit breaker over a whole worker: wrong credentials cost a dozen requests, and the run continues when the service
// answers again.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { findFreePort } from '../support/free-port.js';
import { rehearseIn } from '../support/rehearsals.js';
import { STORES } from '../support/services.js';
import { until } from '../support/wait.js';

describe.concurrent.each(STORES)(
  'the circuit breaker when the key is refused, with the queue on $store',
  ({ url, skip }) => {
    it.skipIf(skip)(
      'stops sending in mid-run after about a dozen requests, logs this once, and resumes',
      async (test) => {
        const rows = 400;
        const gate = { method: 'PUT', after: 5 };
        const world = await rehearseIn(test, { redisUrl: url, rows, sandbox: { gate } });
        const port = await findFreePort();
        const worker = await world.startWorker([], { HTTP_PORT: String(port) });
        await world.read('sync --detach');
        await world.untilHeld();
        // From here on the service takes neither the token nor the key.
        world.sandbox.clearArrivals();
        world.sandbox.failNext({ fault: 'status', status: 401, times: 1000 });
        world.sandbox.openGate();
        await until(() => worker.output().includes('sending stopped'), { describe: 'the stop' });
        const stoppedAt = performance.now();
        const isProbe = ({ path, at }: { path: string; at: number }) =>
          at > stoppedAt && path.endsWith('/authenticate');
        await until(() => world.sandbox.arrivals().some(isProbe), { describe: 'a probe' });
        expect(world.sandbox.arrivals().length).toBeLessThan(40);
        expect(worker.output().split('sending stopped')).toHaveLength(2);
        const status = () => world.read('status --full');
        await until(async () => (await status()).includes('Nothing has been sent since'), {
          intervalMs: 250,
          describe: 'the status to say that nothing is sent',
        });
        await world.ends(
          'status --full',
          0,
          /Nothing has been sent since \d{4}-.* UTC: unauthorized\n[^]*worker on .*, process \d+, for \d+ \w+: /,
          /Last answer of the service: HTTP 401, .*; the last success \d{4}-/,
        );
        const ready = await fetch(`http://127.0.0.1:${port}/readyz`);
        expect(ready.status).toBe(503);
        expect(await ready.json()).toMatchObject({
          notReady: { sending: 'unauthorized' },
          sendingStopped: { code: 'unauthorized' },
        });

        world.sandbox.clearFailures();
        await until(() => world.sandbox.objects().length === 2 * rows, { describe: 'the rest to arrive' });
        const succeeded = () => world.sql`SELECT FROM slotsync.runs WHERE status = 'succeeded'`;
        await until(async () => (await succeeded()).length > 0, { describe: 'the run to end' });
        expect(await world.sql`SELECT FROM slotsync.records WHERE status <> 'synced'`).toEqual([]);
        expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200);
        expect(await status()).not.toContain('Nothing has been sent since');
      },
    );
  },
);

describe.concurrent('the circuit breaker when the key is wrong from the start', () => {
  it('keeps the run at a cost of a few requests, and sends it once the key file has the right key', async (test) => {
    const world = await rehearseIn(test, { rows: 20 });
    const file = path.join(world.folder, 'api_key');
    await writeFile(file, 'withdrawn-key', { mode: 0o600 });
    const worker = await world.startWorker([], { API_KEY: undefined, API_KEY_FILE: file });
    await world.read('sync --detach');
    await until(() => worker.output().includes('sending stopped'), { describe: 'the stop' });
    expect(world.sandbox.arrivals().length).toBeLessThan(20);
    await writeFile(file, 'sandbox-key');
    await until(() => world.sandbox.objects().length === 40, { describe: 'everything to arrive' });
    expect(worker.output()).not.toMatch(/withdrawn-key|sandbox-key/);
  });
});

// Guarantee 11
describe.concurrent('a command that waits for its run while the service fails', () => {
  it('says within five seconds that the service is down, and ends after --timeout', async (test) => {
    const world = await rehearseIn(test, { rows: 5 });
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
    await world.read('sync');
  });

  it('says since when and why nothing is sent, also when it is interrupted', async (test) => {
    const world = await rehearseIn(test, { rows: 150 });
    const failing = { fault: 'status', status: 503, times: 'always' } as const;
    world.sandbox.failNext({ path: 'objects', method: 'PUT', ...failing });
    const sync = world.start(['sync']);
    const reason = /Nothing has been sent since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: service_failed: .*503/;
    await until(() => reason.test(sync.output()), { describe: () => `the reason: ${sync.output()}` });
    sync.child.kill('SIGINT');
    const { code, stderr } = await sync.finished;
    expect(code).toBe(1);
    expect(stderr).toMatch(new RegExp(`${reason.source}.*\\nStopped\\. Accepted records are stored`));
  });
});
