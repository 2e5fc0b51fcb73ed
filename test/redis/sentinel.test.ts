// Guarantees 1, 3
// Redis behind three Sentinels: the primary dies, and is replaced while it is well, in the middle of a run.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readDocumentedAcl } from '../support/redis-acl.js';
import { startSentinels } from '../support/redis-group.js';
import { isRedisInstalled } from '../support/redis-server.js';
import { rehearse } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

const ROWS = 500;

describe.skipIf(!(await isRedisInstalled()))('Sentinels: a run during which the primary', () => {
  let group: Awaited<ReturnType<typeof startSentinels>>;
  beforeAll(async () => {
    group = await startSentinels(await readDocumentedAcl());
  });
  afterAll(() => group?.close());

  it('is replaced, dies and freezes loses no batch and exceeds no second of the quota', async () => {
    const world = await rehearse({ redisUrl: group.url, rows: ROWS, sandbox: { latencyMs: 20 } });
    try {
      await world.configure(SMALL_BATCHES);
      const workers = await Promise.all([1, 2].map(() => world.startWorker()));
      const sync = world.start(['sync']);
      const sent = (count: number) =>
        until(() => world.puts().length >= count, {
          describe: () =>
            `${count} requests, of ${world.puts().length}: ${sync.output()} ${workers.map((one) => one.output()).join('')}`,
        });

      await sent(40);
      const first = await group.primary();
      await group.failOver();
      await group.untilReplaced(first);

      await sent(world.puts().length + 40);
      const second = await group.primary();
      await second.crash();
      await group.untilReplaced(second);
      await sent(world.puts().length + 40);

      const { code, stdout } = await sync.finished;
      for (const { child } of workers) child.kill('SIGTERM');
      for (const { finished } of workers) expect((await finished).code).toBe(0);
      expect(stdout).toContain('Run 1 succeeded');
      expect(code).toBe(0);
      expect(world.sandbox.objects()).toHaveLength(2 * ROWS);
      expect(world.sandbox.refused()).toBe(0);
      expect(world.sandbox.mostInAnySecond()).toBeLessThanOrEqual(20);
    } finally {
      await world.close();
    }
  });
});

/** One or two objects a request, so that a failover finds work in every state. */
const SMALL_BATCHES = `
import { defineConfig } from 'slotsync';
export default defineConfig({
  streams: {
    courses: {
      from: 'courses', key: 'id', type: 'course', externalId: 'course_{id}', batchSize: 2, owns: 'object',
      fields: { 'course.name': 'name' },
    },
    rooms: {
      from: 'rooms', key: 'code', type: 'room', externalId: 'room_{code}', batchSize: 2, owns: 'object',
      fields: { 'room.name': 'name', 'room.seats': (row) => row.seats },
    },
  },
});
`;
