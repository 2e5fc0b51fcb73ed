// The limiters side by side, each as its users run it: one instance in every process, one store behind them all.
import { setMaxListeners } from 'node:events';
import Bottleneck from 'bottleneck';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { RateLimiterQueue, RateLimiterRedis } from 'rate-limiter-flexible';
import { createLimiter, type SlotStore } from '../src/destination/quota/limiter.js';
import { createPostgresStore } from '../src/destination/quota/postgres-store.js';
import { createRedisStore } from '../src/destination/quota/redis-store.js';
import type { QuotaRules } from '../src/destination/quota/quota-rules.js';
import { RATE } from './judge.js';
import type { Urgency } from './judged-server.js';

export interface SchemeOptions {
  redisUrl: string;
  postgresUrl: string;
  /** Processes of one key share one quota. */
  key: string;
  /** Requests this process always has waiting or on the wire. */
  concurrency: number;
  /** Where requests wait in the store: how many of them this process puts there. */
  backlog: number;
  /** Grants as fast as it can, for what one grant costs. */
  unlimited: boolean;
  send(lane: Urgency, waitedMs: number): Promise<void>;
}

export interface Scheme {
  /** Keeps `concurrency` requests of the worse lane going from now on. */
  start(): void;
  /** Wishes for one request of the better lane. */
  ask(): Promise<void>;
  /** Whether any process may send what this one wishes for. */
  isShared: boolean;
  close(): Promise<unknown>;
}

type Open = (options: SchemeOptions) => Promise<Scheme>;

const NO_LIMIT = 1_000_000;

export const SCHEMES = {
  'slotsync on Redis': async (options) => {
    const redis = new Redis(options.redisUrl, { maxRetriesPerRequest: 1 });
    const store = createRedisStore({ redis, key: options.key, rate: RATE, rules: rulesOf(options) });
    return slots(options, store, async () => redis.disconnect());
  },
  'slotsync on PostgreSQL': async (options) => {
    const sql = postgres(options.postgresUrl, { max: 2, onnotice: () => undefined });
    const store = createPostgresStore({ sql, key: options.key, rate: RATE, rules: rulesOf(options) });
    return slots(options, store, () => sql.end({ timeout: 1 }));
  },
  'BullMQ 20 per 1000 ms': (options) => bullmq(options, { max: RATE, duration: 1000 }),
  'BullMQ 1 per 50 ms': (options) => bullmq(options, { max: 1, duration: 1000 / RATE }),
  'Bottleneck clustered': bottleneck,
  'rate-limiter-flexible': flexible,
} as const satisfies Record<string, Open>;

export type SchemeName = keyof typeof SCHEMES;
export const SCHEME_NAMES = Object.keys(SCHEMES) as SchemeName[];

function rulesOf({ unlimited }: SchemeOptions): Partial<QuotaRules> {
  return unlimited ? { paceMs: 0, holdMs: 0, bootGuardMs: 0 } : {};
}

function slots(options: SchemeOptions, store: SlotStore, disconnect: () => Promise<void>): Scheme {
  const limiter = createLimiter({ store });
  const stopping = new AbortController();
  setMaxListeners(0, stopping.signal); // every waiter listens
  return looping(
    options,
    async (lane, send) => {
      const slot = await limiter.take(lane === 'better' ? 'incremental' : 'backfill', stopping.signal);
      try {
        if (slot.usable()) await send();
      } finally {
        void slot.release();
      }
    },
    async () => {
      stopping.abort();
      await limiter.close();
      await disconnect();
    },
  );
}

async function bottleneck(options: SchemeOptions): Promise<Scheme> {
  const redis = connect(options);
  const limiter = new Bottleneck({
    id: options.key,
    connection: new Bottleneck.IORedisConnection({ client: redis }),
    ...(options.unlimited
      ? {}
      : {
          reservoir: RATE,
          reservoirRefreshAmount: RATE,
          reservoirRefreshInterval: 1000,
          minTime: 1000 / RATE,
        }),
  });
  await limiter.ready();
  return looping(
    options,
    (lane, send) => limiter.schedule({ priority: lane === 'better' ? 0 : 9 }, send),
    async () => {
      void limiter.stop({ dropWaitingJobs: true }).catch(() => undefined);
      await limiter.disconnect(false);
    },
  );
}

async function flexible(options: SchemeOptions): Promise<Scheme> {
  const redis = connect(options);
  const points = options.unlimited ? NO_LIMIT : RATE;
  const limiter = new RateLimiterRedis({ storeClient: redis, keyPrefix: options.key, points, duration: 1 });
  const queue = new RateLimiterQueue(limiter);
  return looping(
    options,
    async (_, send) => {
      await queue.removeTokens(1); // it knows no lanes
      await send();
    },
    async () => redis.disconnect(),
  );
}

function connect({ redisUrl }: SchemeOptions): Redis {
  const redis = new Redis(redisUrl);
  redis.on('error', () => undefined);
  return redis;
}

/** For limiters that are asked by whoever wants to send. */
function looping(
  { concurrency, send }: SchemeOptions,
  request: (lane: Urgency, send: () => Promise<void>) => Promise<void>,
  disconnect: () => Promise<void>,
): Scheme {
  const closing = new AbortController();
  const requestOnce = async (lane: Urgency) => {
    const wished = performance.now();
    try {
      await request(lane, () => send(lane, performance.now() - wished));
    } catch (error) {
      if (!closing.signal.aborted) throw error;
    }
  };
  const loop = async () => {
    while (!closing.signal.aborted) await requestOnce('worse');
  };
  return {
    start() {
      for (let at = 0; at < concurrency; at++) void loop();
    },
    ask: () => requestOnce('better'),
    isShared: false,
    close() {
      closing.abort();
      return disconnect();
    },
  };
}

/** Here requests are jobs, and the limiter decides when a worker gets one. */
async function bullmq(options: SchemeOptions, limiter: { max: number; duration: number }): Promise<Scheme> {
  const connection = { url: options.redisUrl, maxRetriesPerRequest: null };
  const queue = new Queue<{ wishedAt: number }>(options.key, { connection });
  const worker = new Worker<{ wishedAt: number }>(
    options.key,
    (job) => options.send(job.name === 'better' ? 'better' : 'worse', wallNow() - job.data.wishedAt),
    {
      connection,
      autorun: false,
      concurrency: options.concurrency,
      limiter: options.unlimited ? { max: NO_LIMIT, duration: 1000 } : limiter,
      removeOnComplete: { count: 0 },
    },
  );
  queue.on('error', () => undefined);
  worker.on('error', () => undefined);
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]);
  await queue.addBulk(
    Array.from({ length: options.backlog }, () => ({
      name: 'worse',
      data: { wishedAt: wallNow() },
      opts: { priority: 10 },
    })),
  );
  return {
    start: () => void worker.run(),
    isShared: true,
    ask: async () => void (await queue.add('better', { wishedAt: wallNow() }, { priority: 1 })),
    close: () => Promise.all([worker.close(true), queue.close()]),
  };
}

/** The job may run in another process than it was wished for. */
function wallNow(): number {
  return performance.timeOrigin + performance.now();
}
