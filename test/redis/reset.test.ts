// Reset with the queue on a Cluster or behind Sentinels removes the keys of one state from every server, and no other keys.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readDocumentedAcl } from '../support/redis-acl.js';
import { ask, keysOf, startCluster, startSentinels } from '../support/redis-group.js';
import { isRedisInstalled, type RedisServer } from '../support/redis-server.js';
import { rehearse } from '../support/rehearsal.js';
import { until } from '../support/wait.js';

interface Group {
  url: string;
  servers: readonly RedisServer[];
  primaryOf(key: string): Promise<RedisServer>;
  close(): Promise<void>;
}
type User = Awaited<ReturnType<typeof readDocumentedAcl>>;
const GROUPS: Record<string, (user: User) => Promise<Group>> = {
  'a Cluster': async (user) => {
    const { nodes, ...cluster } = await startCluster(user);
    return { ...cluster, servers: nodes };
  },
  Sentinels: async (user) => {
    const group = await startSentinels(user);
    return { ...group, primaryOf: group.primary };
  },
};

describe.skipIf(!(await isRedisInstalled())).each(Object.entries(GROUPS))(
  'reset with the queue on %s',
  (_, start) => {
    let group: Group;
    beforeAll(async () => {
      group = await start(await readDocumentedAcl());
    });
    afterAll(() => group?.close());

    it('removes only the keys of its own state, which then starts anew', async () => {
      const world = await rehearse({ redisUrl: group.url, rows: 3, sandbox: { rate: 0 } });
      try {
        expect((await world.run(['sync'])).code).toBe(0);
        expect((await world.run(['sync', '--detach'])).code).toBe(0);
        const [bound] = await world.sql<
          { id: string }[]
        >`SELECT state_id::text AS id FROM slotsync.destination`;
        const mine = () => keysOf(group.servers, `{slotsync:${bound?.id}}:`);
        expect(await mine()).not.toEqual([]);
        const other = '{slotsync:another}:queue';
        await ask((await group.primaryOf(other)).port, 'SET', other, '1');

        expect(await world.run(['reset', '--yes'])).toMatchObject({ code: 0, stderr: '' });
        await until(async () => (await mine()).length === 0, { describe: 'the replicas to follow' });
        expect(await keysOf(group.servers, other)).toEqual([other]);
        expect((await world.run(['migrate'])).code).toBe(0);
        expect((await world.run(['sync'])).code).toBe(0);
      } finally {
        await world.close();
      }
    });
  },
);
