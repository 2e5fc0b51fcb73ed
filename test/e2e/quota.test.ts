// Guarantee 1, as the service sees it: whatever runs at the same time, at most 20 requests arrive in any second. How much
// of the quota is used is measured by the bench, where nothing else uses the machine.
import { describe, expect, it } from 'vitest';
import { CONFIGURATION, rehearse } from '../support/rehearsal.js';
import { STORES } from '../support/services.js';

describe.each(STORES)('quota: four processes at once, with the quota on $store', ({ url, skip }) => {
  it.skipIf(skip)('send together at most 20 requests in any second', async () => {
    const rows = 800;
    // The run does not end before every process has something in work.
    const world = await rehearse({ redisUrl: url, rows, sandbox: { latencyMs: 50 } });
    try {
      const options = ['--concurrency', '20'];
      const workers = await Promise.all([1, 2, 3].map(() => world.startWorker(options)));
      world.holdWrites();
      const sync = world.start(['sync', ...options]);
      await world.untilHeld(10);
      world.sandbox.openGate();
      const { code, stdout } = await sync.finished;
      for (const { child } of workers) child.kill('SIGTERM');
      for (const { finished } of workers) expect((await finished).code).toBe(0);

      expect(stdout).toContain('Run 1 succeeded');
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * rows);
      expect(world.sandbox.refused()).toBe(0);
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
    } finally {
      await world.close();
    }
  });
});

describe('quota: a slot', () => {
  it('belongs to its request for as long as the request may take', async () => {
    const world = await rehearse({ rows: 1 });
    try {
      await world.configure(
        CONFIGURATION.replace('streams: {', 'service: { requestTimeoutMs: 90_000 },\n  streams: {'),
      );
      world.holdWrites();
      const sync = world.start(['sync']);
      await world.untilHeld(1);
      const [slot] = await world.sql<{ leaseMs: number }[]>`
        SELECT max(free_at) - max(seen_at) AS "leaseMs"
        FROM slotsync.quota_limiters, unnest(slot_free_at) AS free_at`;
      expect(slot?.leaseMs).toBeGreaterThanOrEqual(90_000);
      world.sandbox.openGate();
      expect((await sync.finished).code).toBe(0);
    } finally {
      await world.close();
    }
  });
});
