// Opens every client of Redis. Each client has a name at the server, detects a server that no longer answers, follows a
// failover, and reads the password again when it connects.
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis, type ClusterOptions, type RedisOptions } from 'ioredis';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { withDeadline } from '../time/deadline.js';
import { type RedisAddress, parseRedisAddress } from './addresses.js';
import { currentText, type SettingText } from '../config/setting-text.js';
import { watchdog } from './watchdog.js';

export type RedisClient = Redis | Cluster;

/** Options whose answers have the form that the queue expects, in any version of the protocol. */
type Options = Omit<RedisOptions, 'replyMapping' | 'retryStrategy'> & { replyMapping: 'legacy' };

const CONNECT_WITHIN_MS = 5_000;
/**
 * If an answer is due and the server sends nothing for this time, the connection is closed and reopened: the server may
 * be frozen, or its host lost. Longer than the queue's longest blocking command, 10 s.
 */
const ANSWER_WITHIN_MS = 13_000;
/** Timeout of the first check of a server, from the DNS lookup to the last answer. */
const PROBE_WITHIN_MS = 10_000;
const LOOK_AGAIN_MS = 250;
/** Errors of a server that became a replica or is not ready yet. A new connection finds the primary. */
const NOT_THE_PRIMARY = /^(READONLY|UNBLOCKED|MASTERDOWN)/;
/** Errors of a server that accepts no writes, or none from this user. BullMQ's workers would retry without a pause. */
const TAKES_NO_WRITES = /^(NOREPLICAS|OOM|MISCONF|NOPERM)/;
const RECONNECT_AND_SEND_AGAIN = 2;

interface OpenOptions {
  /**
   * Number of reconnections after which a command fails. If null, the command waits without limit, also while the
   * server accepts no writes. The client of a Cluster always waits.
   */
  maxRetriesPerRequest: number | null;
  /**
   * If true, the client leaves the old primary once a Sentinel announces a new primary, even if the old primary still
   * answers. Requires a connection to each Sentinel.
   */
  leavesOldPrimary?: boolean;
  /** Called with the reason when a command is postponed and will be sent again. */
  onPostponed: (error: Error) => void;
}

/**
 * Opens a client that connects at once and reconnects until `disconnect` is called. `duty` becomes its name at the
 * server. The caller must listen for `error`. Throws UsageError if the address is invalid.
 */
export function openRedis(address: SettingText, duty: string, options: OpenOptions): RedisClient {
  const parsed = parseRedisAddress(currentText(address));
  const common: Options = {
    ...shared(parsed, duty),
    maxRetriesPerRequest: options.maxRetriesPerRequest,
    failoverDetector: options.leavesOldPrimary ?? false,
    reconnectOnError: (error) => {
      const waits = options.maxRetriesPerRequest === null && TAKES_NO_WRITES.test(error.message);
      if (!waits && !NOT_THE_PRIMARY.test(error.message)) return false;
      options.onPostponed(error);
      return RECONNECT_AND_SEND_AGAIN;
    },
  };
  if (parsed.kind === 'cluster') return new RedisCluster(address, common);
  const client = new Redis({
    ...common,
    // ioredis calls this method on the options that the next connection uses.
    retryStrategy(this: RedisOptions, times: number) {
      Object.assign(this, readPasswords(address));
      return reconnectAfterMs(times);
    },
    sentinelRetryStrategy: reconnectAfterMs,
  });
  tellWatchdog(client, parsed);
  return client;
}

/** Reports silent and unanswered connections to the watchdog. Not for a Cluster, whose nodes watch each other. */
function tellWatchdog(client: Redis, { nodes }: RedisAddress): void {
  const server = `Redis at ${nodes.map(({ host, port }) => `${host}:${port}`).join(', ')}`;
  let isAnswered = false;
  const answers = () => {
    isAnswered = true;
    watchdog.answers(server);
  };
  client.on('connecting', () => (isAnswered = false));
  client.on('connect', () => client.stream.on('data', answers));
  client.on('error', (error: Error) => {
    if (!/ETIMEDOUT|Socket timeout/.test(error.message)) return watchdog.answers(server);
    if (isAnswered) watchdog.silent(server);
    else watchdog.unanswered(server);
  });
}

/** A Cluster client that connects to each node with the current password. */
class RedisCluster extends Cluster {
  readonly #address: SettingText;
  readonly #options: Options;

  constructor(address: SettingText, redisOptions: Options) {
    const { nodes } = parseRedisAddress(currentText(address));
    super([...nodes], { redisOptions, ...clusterOptions(), clusterRetryStrategy: reconnectAfterMs });
    this.#address = address;
    this.#options = redisOptions;
    // Sets the passwords before a node's client connects.
    this.on('+node', (node: Redis) => Object.assign(node.options, readPasswords(address)));
  }

  /** Returns another RedisCluster. The queue duplicates its client for blocking commands. */
  override duplicate(_: unknown, { redisOptions: changes }: ClusterOptions = {}): never {
    const options: Options = { ...this.#options, ...changes, replyMapping: 'legacy' };
    return new RedisCluster(this.#address, options) as never;
  }
}

function clusterOptions() {
  return {
    // Keeps the host names unresolved, because certificates contain names.
    dnsLookup: (name, callback) => callback(null, name),
    slotsRefreshTimeout: CONNECT_WITHIN_MS,
    // While a replica is promoted, a command is sent again 16 times at this interval.
    retryDelayOnFailover: 500,
    retryDelayOnClusterDown: 500,
  } satisfies ClusterOptions;
}

/** Returns the options that permanent clients and the first check of a server share. */
function shared(parsed: RedisAddress, duty: string): Options {
  const { kind, nodes, user, password, database, sentinel, tls } = parsed;
  const [node] = nodes;
  const options: Options = {
    replyMapping: 'legacy',
    ...(user === undefined ? {} : { username: user }),
    ...(password === undefined ? {} : { password }),
    ...(kind === 'server' ? node : {}),
    ...(tls === false ? {} : { tls }),
    db: database,
    connectionName: `slotsync:${duty}`,
    connectTimeout: CONNECT_WITHIN_MS,
    socketTimeout: ANSWER_WITHIN_MS,
  };
  if (kind !== 'sentinel') return options;
  return {
    ...options,
    sentinels: [...nodes],
    name: sentinel.name,
    ...(sentinel.user === undefined ? {} : { sentinelUsername: sentinel.user }),
    ...(sentinel.password === undefined ? {} : { sentinelPassword: sentinel.password }),
    ...(tls === false ? {} : { sentinelTLS: tls, enableTLSForSentinelMode: true }),
    sentinelCommandTimeout: CONNECT_WITHIN_MS,
  };
}

/** Returns the passwords that the setting has now, or nothing if its file cannot be read. */
function readPasswords(address: SettingText): Pick<RedisOptions, 'password' | 'sentinelPassword'> {
  try {
    const { password, sentinel } = parseRedisAddress(currentText(address));
    return {
      ...(password === undefined ? {} : { password }),
      ...(sentinel.password === undefined ? {} : { sentinelPassword: sentinel.password }),
    };
  } catch {
    return {}; // the next connection uses the former passwords
  }
}

/** Returns the delay before a reconnection: doubling from 250 ms to 2 s, plus up to a quarter at random. */
function reconnectAfterMs(times: number): number {
  return Math.round(Math.min(2000, 250 * 2 ** Math.min(times - 1, 10)) * (1 + Math.random() / 4));
}

/** Deletes all keys with this prefix, which has a hash tag. Throws UsageError, and the errors of `requireRedis`. */
export async function deleteKeys(address: SettingText, prefix: string): Promise<void> {
  await requireRedis(address);
  const client = openRedis(address, 'reset', { maxRetriesPerRequest: 3, onPostponed: () => undefined });
  client.on('error', () => undefined); // the command that fails reports it
  try {
    await client.ping(); // makes a Cluster discover its nodes
    for (const node of client instanceof Cluster ? client.nodes('master') : [client])
      for await (const keys of node.scanStream({ match: `${prefix}:*`, count: 1000 }) as AsyncIterable<
        string[]
      >)
        if (keys.length > 0) await client.unlink(keys);
  } catch (error) {
    throw refusal(
      `keys could not be deleted (${messageOf(error)})`,
      `Grant the user SCAN and UNLINK. By hand: redis-cli --scan --pattern '${prefix}:*' | xargs redis-cli unlink`,
      error,
    );
  } finally {
    client.disconnect();
  }
}

/**
 * Checks that Redis answers, is what the address says, and grants the needed rights. Throws SlotsyncError if Redis does
 * not answer within ten seconds, and UsageError if Redis refuses.
 */
export async function requireRedis(address: SettingText): Promise<void> {
  const parsed = parseRedisAddress(currentText(address));
  // Disables ioredis's own INFO check, which writes a line to the terminal if the user may not call INFO.
  const checks = { lazyConnect: true, enableReadyCheck: false, maxRetriesPerRequest: 0 };
  const options: Options = { ...shared(parsed, 'probe'), ...checks };
  const client =
    parsed.kind === 'cluster'
      ? new Cluster([...parsed.nodes], {
          redisOptions: options,
          ...clusterOptions(),
          lazyConnect: true,
          clusterRetryStrategy: () => null,
        })
      : new Redis({ ...options, retryStrategy: null, sentinelRetryStrategy: () => null });
  // ioredis reports a refused connection by an event, and later only as a closed connection. Keeps the event's error.
  let reported: unknown;
  const report = (error: unknown) => (reported = error);
  for (const event of ['error', 'sentinelError', 'node error']) client.on(event, report);

  try {
    await withDeadline({ ms: PROBE_WITHIN_MS }, () => probeServer(client, parsed));
    if (reported !== undefined && parsed.kind === 'server') throw reported; // the server refused SELECT of the database
  } catch (error) {
    throw error instanceof SlotsyncError ? error : explainFault(reported ?? error, parsed);
  } finally {
    client.disconnect();
  }
}

async function probeServer(client: RedisClient, { kind }: RedisAddress): Promise<void> {
  await client.connect();
  let info = await client.info();
  for (; /^loading:1/m.test(info); info = await client.info()) await sleep(LOOK_AGAIN_MS);
  const mode = /^redis_mode:(\w+)/m.exec(info)?.[1];
  if (kind === 'server' && mode === 'sentinel')
    throw refusal('the server is a Sentinel', 'Write redis+sentinel://host:26379/name.');
  if (kind !== 'cluster' && mode === 'cluster')
    throw refusal('the server is a node of a Redis Cluster', 'Write redis+cluster://host:6379,host:6379.');
  const version = /^redis_version:((\d+)\.(\d+)\S*)/m.exec(info);
  const [, text, major, minor] = version ?? [];
  if (Number(major) < 6 || (major === '6' && Number(minor) < 2))
    throw refusal(`the server has version ${text}`, 'Redis 6.2 or later is required.');
  if (kind === 'server' && /^role:slave/m.test(info))
    throw refusal(
      'the server is a replica',
      'Name the primary, or Sentinels that know it: redis+sentinel://….',
    );
  for (const key of ['{slotsync:probe}:rights', 'slotsync:quota:probe'])
    await client.eval(TRY_RIGHTS, 1, key);
}

/** Lua script that tries all commands of the quota and one of each kind of the queue's commands. It leaves no key. */
const TRY_RIGHTS = `
redis.call('INFO', 'server')
redis.call('TIME')
redis.call('HSET', KEYS[1], 'a', 'b')
redis.call('DEL', KEYS[1])
redis.call('XADD', KEYS[1], '*', 'a', 'b')
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[1], 1, 'a')
redis.call('ZPOPMIN', KEYS[1])
redis.call('SET', KEYS[1], 'a', 'PX', 1000)
return redis.call('DEL', KEYS[1])
`;

/** Converts an error of the first check into an error that names the setting and the remedy. */
function explainFault(error: unknown, { kind, tls }: RedisAddress): SlotsyncError {
  const text = [messageOf(error), messageOf((error as { lastNodeError?: unknown }).lastNodeError ?? '')]
    .join(' ')
    .replaceAll(/\s+/g, ' ')
    .trim();
  const is = (pattern: RegExp) => pattern.test(`${codeOf(error)} ${text}`);
  if (is(/NOAUTH|HELLO must be called|WRONGPASS|invalid (username-)?password|AUTH failed/i))
    return refusal(
      'the server did not accept the user and password of the address',
      'Write the right user and password into the address, percent-encoded: user:password@host.',
      error,
    );
  if (is(/NOPERM|No permissions|can't run this command|can't access at least one/))
    return refusal(
      `the user lacks a right (${text.slice(0, 160)})`,
      'Give the user the rights that docs/deployment.md lists under Redis.',
      error,
    );
  if (is(/DB index|SELECT is not allowed|cluster support disabled|unknown command|No such master/i))
    return refusal(
      `the server does not fit the address (${text.slice(0, 160)})`,
      'Correct the scheme, the port, or the name or number at the end of the address.',
      error,
    );
  if (tls && is(/CERT|SELF_SIGNED|UNABLE_TO|altname|ERR_TLS|certificate/i))
    return refusal(
      `the server’s certificate is not accepted (${codeOf(error)})`,
      'Name the authority that signed it: ?sslrootcert=/path/ca.pem. If only the host’s name differs: &sslmode=verify-ca.',
      error,
    );
  // A TLS alert begins with byte 21.
  const isClosed = is(/ECONNRESET|EPIPE|Connection is closed|RESP type 21 /);
  const isNoTls = tls && is(/wrong version number|ERR_SSL|EPROTO|packet length/i);
  if (isNoTls || (!isClosed && is(/Protocol error|RESP type/)))
    return refusal(
      'the server does not speak the protocol of the address',
      'Correct the host, the port or the scheme: rediss:// with TLS, redis:// without.',
      error,
    );
  const reason = is(/ETIMEDOUT/)
    ? `no answer within ${PROBE_WITHIN_MS / 1000} s`
    : isClosed
      ? CLOSED[kind]
      : shortReason(error, text);
  return new SlotsyncError('queue_unreachable', `REDIS_URL: Redis cannot be reached (${reason})`, {
    remedy:
      'Check that Redis is running, and REDIS_URL with its scheme: rediss:// with TLS, redis:// without.',
    cause: error,
  });
}

/** Reasons of a closed connection. ioredis also reports unreachable Sentinels and nodes as a closed connection. */
const CLOSED = {
  server: 'the server closes the connection at once',
  sentinel: 'no Sentinel answers, or the primary does not',
  cluster: 'no node answers',
};

function shortReason(error: unknown, text: string): string {
  const code = codeOf(error);
  return code === 'unexpected' ? (/\bE[A-Z]{4,}/.exec(text)?.[0] ?? text.slice(0, 160)) : code;
}

function refusal(fault: string, remedy: string, cause?: unknown): UsageError {
  return new UsageError(`REDIS_URL: ${fault}`, { remedy, cause });
}
