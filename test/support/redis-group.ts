// Several Redis servers that replace each other: three servers watched by three Sentinels, and a Cluster of three primaries
// with a replica each. From the packages of the system, as an organization runs them.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { findFreePort } from './free-port.js';
import { startRedisServer, type RedisServer } from './redis-server.js';
import { until } from './wait.js';

const run = promisify(execFile);

/** The name of the primary at the Sentinels. */
const NAME = 'slotsync-primary';
const SENTINEL_PASSWORD = 'seen/by+all';

/** Sends a command to a server, as its default user. */
export async function ask(port: number, command: string, ...args: string[]): Promise<unknown> {
  const redis = new Redis({ port, lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
  redis.on('error', () => undefined); // the command throws
  try {
    await redis.connect();
    return await redis.call(command, ...args);
  } finally {
    redis.disconnect();
  }
}

/** The keys of these servers that begin so. */
export async function keysOf(servers: readonly RedisServer[], prefix: string): Promise<string[]> {
  const keys = await Promise.all(servers.map(({ port }) => ask(port, 'KEYS', `${prefix}*`)));
  return [...new Set((keys as string[][]).flat())].toSorted();
}

/** `user`: name, password and rights of the user that the address names, as in `ACL SETUSER`. */
export async function startSentinels(user: { name: string; password: string; rights: string }) {
  const servers: RedisServer[] = [];
  const sentinels: RedisServer[] = [];
  const close = async () => {
    await Promise.all([...sentinels, ...servers].map((server) => server.kill()));
  };
  try {
    const lines = [`user ${user.name} ${user.rights}`];
    for (let at = 0; at < 3; at++) {
      const [primary] = servers;
      servers.push(
        await startRedisServer({
          settings: {
            'min-replicas-to-write': 1,
            'min-replicas-max-lag': 3,
            'repl-diskless-sync-delay': 0,
            ...(primary ? { replicaof: `127.0.0.1 ${primary.port}` } : {}),
          },
          lines,
        }),
      );
    }
    const primary = servers[0] as RedisServer;
    await until(
      async () => /connected_slaves:2/.test(String(await ask(primary.port, 'INFO', 'replication'))),
      {
        describe: 'the replicas to follow',
      },
    );
    for (let at = 0; at < 3; at++)
      sentinels.push(
        await startRedisServer({
          isSentinel: true,
          settings: { requirepass: SENTINEL_PASSWORD },
          lines: [
            `sentinel monitor ${NAME} 127.0.0.1 ${primary.port} 2`,
            `sentinel down-after-milliseconds ${NAME} 5000`,
            `sentinel failover-timeout ${NAME} 20000`,
            `sentinel sentinel-pass ${SENTINEL_PASSWORD}`,
          ],
        }),
      );
  } catch (error) {
    await close();
    throw error;
  }

  const askSentinel = async (port: number, ...args: string[]) => {
    const redis = new Redis({ port, password: SENTINEL_PASSWORD, retryStrategy: null });
    redis.on('error', () => undefined);
    try {
      return await redis.call('SENTINEL', ...args);
    } finally {
      redis.disconnect();
    }
  };
  /** The primary, as each Sentinel sees it. */
  const primaries = () =>
    Promise.all(
      sentinels.map(async ({ port }) => {
        const [, at] = (await askSentinel(port, 'GET-MASTER-ADDR-BY-NAME', NAME)) as string[];
        return Number(at);
      }),
    );
  await until(
    async () => {
      const counts = await Promise.all(
        sentinels.map(async ({ port }) => {
          const seen = (await askSentinel(port, 'MASTER', NAME)) as string[];
          const of = (field: string) => Number(seen[seen.indexOf(field) + 1]);
          return of('num-other-sentinels') === 2 && of('num-slaves') === 2;
        }),
      );
      return counts.every(Boolean);
    },
    { describe: 'the Sentinels to know each other' },
  );

  const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return {
    url:
      `redis+sentinel://${user.name}:${encodeURIComponent(user.password)}@${hosts}/${NAME}` +
      `?sentinelPassword=${SENTINEL_PASSWORD.replace('/', '%2F')}`,
    servers,
    sentinels,
    /** The server that two Sentinels at least take for the primary. */
    async primary(): Promise<RedisServer> {
      const ports = (await primaries()).sort((a, b) => a - b);
      return servers.find(({ port }) => port === ports[1]) as RedisServer;
    },
    /**
     * As when the network parts: replicas and Sentinels lose a server, which still answers those who are connected and takes
     * writes. Ends when it is started again.
     */
    async cutOff({ port }: RedisServer): Promise<void> {
      await ask(port, 'CONFIG', 'SET', 'min-replicas-to-write', '0');
      const redis = new Redis({ port });
      redis.on('error', () => undefined);
      await redis.multi().acl('SETUSER', 'default', 'off').client('KILL', 'USER', 'default').exec();
      redis.disconnect();
    },
    /** Resolves when all Sentinels name another primary than this one, and it takes writes. */
    async untilReplaced(former: RedisServer): Promise<void> {
      await until(
        async () => {
          const ports = new Set(await primaries());
          const [port] = ports;
          if (ports.size !== 1 || port === undefined || port === former.port) return false;
          return (await ask(port, 'SET', 'written', 'x')) === 'OK';
        },
        { describe: 'the failover' },
      );
    },
    close,
  };
}

/** Three primaries with a replica each, made by `redis-cli --cluster create`. */
export async function startCluster(user: { name: string; password: string; rights: string }) {
  const nodes: RedisServer[] = [];
  const close = async () => {
    await Promise.all(nodes.map((node) => node.kill()));
  };
  const untilReady = () =>
    until(
      async () => {
        const infos = await Promise.all(nodes.map(({ port }) => ask(port, 'CLUSTER', 'INFO')));
        const roles = await Promise.all(nodes.map(({ port }) => ask(port, 'INFO', 'replication')));
        return (
          infos.every((info) => /cluster_state:ok/.test(String(info))) &&
          roles.filter((role) => /connected_slaves:1/.test(String(role))).length === 3
        );
      },
      { describe: 'the Cluster to be ready' },
    );
  try {
    for (let at = 0; at < 6; at++)
      nodes.push(
        await startRedisServer({
          settings: {
            'cluster-enabled': 'yes',
            // The default, 10000 more, may be no port at all.
            'cluster-port': await findFreePort(),
            'cluster-node-timeout': 5000,
            'repl-diskless-sync-delay': 0,
          },
          lines: [`user ${user.name} ${user.rights}`],
        }),
      );
    const addresses = nodes.map(({ port }) => `127.0.0.1:${port}`);
    await run('redis-cli', ['--cluster', 'create', ...addresses, '--cluster-replicas', '1', '--cluster-yes']);
    await untilReady();
  } catch (error) {
    await close();
    throw error;
  }

  /** The number of the node that answers for this key, as the others see it. */
  const portOf = async (key: string, without?: RedisServer): Promise<number> => {
    const slot = Number(
      await ask((nodes.find((node) => node !== without) as RedisServer).port, 'CLUSTER', 'KEYSLOT', key),
    );
    for (const { port } of nodes.filter((node) => node !== without)) {
      const ranges = (await ask(port, 'CLUSTER', 'SLOTS')) as [number, number, [string, number]][];
      const range = ranges.find(([first, last]) => first <= slot && slot <= last);
      if (range) return range[2][1];
    }
    throw new Error(`no node has slot ${slot}`);
  };
  return {
    url: `redis+cluster://${user.name}:${encodeURIComponent(user.password)}@${nodes
      .slice(0, 2)
      .map(({ port }) => `127.0.0.1:${port}`)
      .join(',')}`,
    nodes,
    /** Resolves when every primary has its replica. */
    untilReady,
    async primaryOf(key: string): Promise<RedisServer> {
      const port = await portOf(key);
      return nodes.find((node) => node.port === port) as RedisServer;
    },
    /** Resolves when another node than this one answers for the key. */
    untilReplaced: (former: RedisServer, key: string) =>
      until(async () => (await portOf(key, former)) !== former.port, { describe: 'the failover' }),
    close,
  };
}
