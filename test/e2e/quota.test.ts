// Guarantee 1, as the service sees it: whatever runs at the same time, at most 20 requests arrive in any second.
import { describe, expect, it } from 'vitest';
import { rehearse } from '../support/rehearsal.js';
import { redisUrl } from '../support/services.js';

const stores = [
  { store: 'PostgreSQL', url: () => undefined, skip: false },
  { store: 'Redis', url: redisUrl, skip: redisUrl() === undefined },
];

describe.each(stores)('four processes at once, with the quota on $store', ({ url, skip }) => {
  it.skipIf(skip)(
    'together send at most 20 requests in any second, and nearly all that the quota allows',
    async () => {
      const latencyMs = 50;
      const world = await rehearse({
        redisUrl: url(),
        rows: 2000,
        sandbox: { rate: 20, window: 'sliding', latencyMs },
      });
      try {
        const workers = [1, 2, 3].map(() => world.start(['worker', '--concurrency', '20']));
        const sync = await world.run(['sync']);
        for (const { child } of workers) child.kill('SIGTERM');
        await Promise.all(workers.map(({ finished }) => finished));

        expect(sync.code).toBe(0);
        expect(world.sandbox.objects()).toHaveLength(4000);
        expect(world.sandbox.refused()).toBe(0);
        expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
        const arrivals = world.sandbox.arrivals().map(({ at }) => at);
        const writing = arrivals.filter((at) => at > (arrivals.at(-1) ?? 0) - 8000);
        const rate = writing.length / 8;
        expect(rate).toBeGreaterThan(0.9 * (20 / (1 + latencyMs / 1000)));
      } finally {
        await world.close();
      }
    },
    120_000,
  );
});
