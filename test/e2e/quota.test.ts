// Guarantee 1, as the service sees it: at most 20 requests arrive in any second, whatever runs at the same time. The bench
// measures the use of the quota on a machine of its own.
import { setTimeout as pause } from 'node:timers/promises';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { createDestination } from '../../src/destination/destination.js';
import { openLimiter } from '../../src/destination/quota/open-limiter.js';
import { mostInAnySecond, type Arrival } from '../../src/sandbox/quota.js';
import { start } from '../support/program.js';
import { CONFIGURATION, rehearseForTest } from '../support/rehearsal.js';
import { createDatabase, STORES } from '../support/services.js';
import { until } from '../support/wait.js';

describe.each(STORES)('four processes at once, with the quota on $store', ({ url, skip }) => {
  it.skipIf(skip)('send at most 20 requests together in any second', async () => {
    const rows = 800;
    // The run does not end before every process has something in work.
    const world = await rehearseForTest({ redisUrl: url, rows, sandbox: { latencyMs: 50 } });
    const options = ['--concurrency', '20'];
    const workers = await Promise.all([1, 2, 3].map(() => world.startWorker(options)));
    world.holdWrites();
    const sync = world.run(['sync', ...options]);
    await world.untilHeld(10);
    world.sandbox.openGate();
    const { code, stdout } = await sync;
    for (const { child } of workers) child.kill('SIGTERM');
    for (const { finished } of workers) expect((await finished).code).toBe(0);

    expect(stdout).toMatch(/^Run 1 (?:ended: )?succeeded/m);
    expect(code).toBe(0);
    expect(world.sandbox.objects()).toHaveLength(2 * rows);
    expect(world.sandbox.refused()).toBe(0);
    expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
  });
});

describe('a slot of the quota', () => {
  it('stays with its request for as long as the request may take', async () => {
    const world = await rehearseForTest({ rows: 1 });
    await world.configure(
      CONFIGURATION.replace('streams: {', 'service: { requestTimeoutMs: 90_000 },\n  streams: {'),
    );
    world.holdWrites();
    const sync = world.run(['sync']);
    await world.untilHeld(1);
    const [slot] = await world.sql<{ leaseMs: number }[]>`
      SELECT max(free_at) - max(seen_at) AS "leaseMs"
      FROM slotsync.quota_limiters, unnest(slot_free_at) AS free_at`;
    expect(slot?.leaseMs).toBeGreaterThanOrEqual(90_000);
    world.sandbox.openGate();
    expect((await sync).code).toBe(0);
  });
});

describe.each(STORES)('a service that was frozen and wakes, with the quota on $store', ({ url, skip }) => {
  it.skipIf(skip)('reads at most 20 requests in any second, including abandoned requests', async () => {
    const TIMEOUT_MS = 500;
    const log = pino({ level: 'silent' });
    const database = await createDatabase();
    const service = start(['sandbox', '--port', '0', '--rate', '0'], {});
    try {
      const [, baseUrl = ''] = await until(() => /API_BASE_URL=(\S+)/.exec(service.output()), {
        describe: () => `the service to start: ${service.output()}`,
      });
      const arrivals = async () =>
        (await (await fetch(`${baseUrl}/sandbox/arrivals`)).json()) as readonly Arrival[];
      const place = { redisUrl: url, stateUrl: database.url, key: baseUrl, rate: 20, log };
      const { limiter, disconnect } = await openLimiter({ ...place, leaseMs: TIMEOUT_MS + 61_000 });
      const destination = createDestination({
        api: { baseUrl, key: 'sandbox-key', organizationId: 'demo', region: 'EU_EES' },
        limiter,
        log,
        prefix: '/v1',
        requestTimeoutMs: TIMEOUT_MS,
        lateWriteSeconds: 60,
        tokenSeconds: 300,
        pageSize: 1000,
        errorBodies: 'json',
      });
      await destination.authenticate();
      const stopping = new AbortController();
      let givenUp = 0;
      const send = async () => {
        while (!stopping.signal.aborted)
          await destination
            .findObjects(['room_R1'], 'room', { lane: 'sync', signal: stopping.signal })
            .catch(() => void givenUp++);
      };
      service.child.kill('SIGSTOP');
      const sending = Promise.all(Array.from({ length: 30 }, send));
      await until(() => givenUp >= 20, { describe: () => `requests to be given up, now ${givenUp}` });
      await pause(1500); // a slot that was released would be free again, and used
      service.child.kill('SIGCONT');
      await until(async () => (await arrivals()).length >= 20, { describe: 'the requests to be read' });
      stopping.abort();
      await sending;
      expect(mostInAnySecond((await arrivals()).map(({ at }) => at))).toBeLessThanOrEqual(20);
      await destination.close();
      await limiter.close();
      await disconnect();
    } finally {
      service.child.kill('SIGKILL');
      await database.drop();
    }
  });
});
