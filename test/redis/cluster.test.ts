// Guarantees 1, 3
// Redis as a Cluster of three: a whole run, in the middle of which the nodes of the quota and of the queue die.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readDocumentedAcl } from '../support/redis-acl.js';
import { startCluster } from '../support/redis-group.js';
import { isRedisInstalled } from '../support/redis-server.js';
import { rehearse } from '../support/rehearsal.js';
import { SMALL_BATCHES } from '../support/small-batches.js';
import { until } from '../support/wait.js';

const ROWS = 500;

describe.skipIf(!(await isRedisInstalled()))('a run on a Redis Cluster', () => {
  let cluster: Awaited<ReturnType<typeof startCluster>>;
  beforeAll(async () => {
    cluster = await startCluster(await readDocumentedAcl());
  });
  afterAll(() => cluster?.close());

  it('loses no batch and keeps the quota when the node of the quota or of the queue dies', async () => {
    const world = await rehearse({ redisUrl: cluster.url, rows: ROWS, sandbox: { latencyMs: 20 } });
    try {
      await world.configure(SMALL_BATCHES);
      const workers = await Promise.all([1, 2].map(() => world.startWorker()));
      const sync = world.start(['sync']);
      /** Or until the run is over, where the servers are slower than the requests. */
      const sent = (count: number) =>
        until(() => world.puts().length >= count || sync.child.exitCode !== null, {
          describe: () =>
            `${count} requests, of ${world.puts().length}: ${sync.output()} ${workers.map((one) => one.output()).join('')}`,
        });
      const [binding] = await world.sql<{ stateId: string }[]>`
        SELECT state_id AS "stateId" FROM slotsync.destination`;

      for (const key of [`slotsync:quota:${world.sandbox.url} demo`, `{slotsync:${binding?.stateId}}:`]) {
        await sent(world.puts().length + 40);
        const node = await cluster.primaryOf(key);
        await node.crash();
        await cluster.untilReplaced(node, key);
        await sent(world.puts().length + 40);
        await node.restart('lost');
        await cluster.untilReady();
      }

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
