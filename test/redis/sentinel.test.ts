// Guarantees 1, 3
// Redis behind three Sentinels: the primary is lost in three ways in the middle of a run.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openRedis, type RedisClient } from '../../src/connections/redis-connection.js';
import { readDocumentedAcl } from '../support/redis-acl.js';
import { ask, startSentinels } from '../support/redis-group.js';
import { isRedisInstalled } from '../support/redis-server.js';
import { rehearse } from '../support/rehearsal.js';
import { SMALL_BATCHES } from '../support/small-batches.js';
import { until } from '../support/wait.js';

const ROWS = 1000;

describe.skipIf(!(await isRedisInstalled()))('a run on Redis behind Sentinels', () => {
  let group: Awaited<ReturnType<typeof startSentinels>>;
  beforeAll(async () => {
    group = await startSentinels(await readDocumentedAcl());
  });
  afterAll(() => group?.close());

  it('leaves a primary that is cut off with the connection of the quota, although it still answers', async () => {
    const options = { maxRetriesPerRequest: 1, onPostponed: () => undefined };
    const leaving = openRedis(group.url, 'quota', { ...options, leavesOldPrimary: true });
    const staying = openRedis(group.url, 'producer', options);
    const portOf = async (redis: RedisClient) =>
      Number(/tcp_port:(\d+)/.exec(await redis.info('server'))?.[1]);
    try {
      for (const redis of [leaving, staying]) redis.on('error', () => undefined);
      const first = await group.primary();
      expect([await portOf(leaving), await portOf(staying)]).toEqual([first.port, first.port]);
      await group.cutOff(first);
      await group.untilReplaced(first);
      const { port } = await group.primary();
      await until(async () => (await portOf(leaving)) === port, { describe: 'the new primary to be used' });
      // The old one still answers.
      expect(await portOf(staying)).toBe(first.port);
      await first.restart('lost');
      await untilFollowed({ port });
    } finally {
      leaving.disconnect();
      staying.disconnect();
    }
  });

  it('loses no batch and keeps the quota when the primary is cut off, dies and freezes', async () => {
    const world = await rehearse({ redisUrl: group.url, rows: ROWS, sandbox: { latencyMs: 20 } });
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

      await sent(40);
      const first = await group.primary();
      await group.cutOff(first);
      await group.untilReplaced(first);
      // It knows only the new primary; the others were connected to the old one.
      workers.push(await world.startWorker());
      await sent(world.puts().length + 60);
      await first.restart('lost');

      const second = await group.primary();
      await untilFollowed(second);
      await second.crash();
      await group.untilReplaced(second);
      await sent(world.puts().length + 40);
      await second.restart('lost');

      const third = await group.primary();
      await untilFollowed(third);
      third.freeze();
      await group.untilReplaced(third);
      third.thaw();
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

/** Resolves when both other servers follow this one. */
const untilFollowed = ({ port }: { port: number }) =>
  until(async () => /connected_slaves:2/.test(String(await ask(port, 'INFO', 'replication'))), {
    describe: 'the other servers to follow',
  });
