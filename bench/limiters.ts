// The quota's limiter and what a user of BullMQ would take instead, each as its users run it: one instance in every
// process, one store behind them all.
import { setMaxListeners } from 'node:events';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { createLimiter, type SlotStore } from '../src/destination/quota/limiter.js';
import { createPostgresStore } from '../src/destination/quota/postgres-store.js';
import { createRedisStore } from '../src/destination/quota/redis-store.js';
import { RATE } from './figures.js';

export interface LimiterOptions {
  redisUrl: string;
  postgresUrl: string;
  /** Processes of one key share one quota. */
  key: string;
  /** Requests this process always has waiting. */
  concurrency: number;
  /** The number of requests that this process puts into the store, where requests wait there. */
  backlog: number;
}

/** Resolves when the limiter is ready; calling the result starts sending, until the process ends. */
type Open = (options: LimiterOptions, send: () => Promise<void>) => Promise<() => void>;

export const LIMITERS: Record<string, Open> = {
  'slotsync on Redis': async (options, send) => {
    const redis = new Redis(options.redisUrl, { maxRetriesPerRequest: 1 });
    return sendInSlots(options, createRedisStore({ redis, key: options.key, rate: RATE }), send);
  },
  'slotsync on PostgreSQL': async (options, send) => {
    const sql = postgres(options.postgresUrl, { max: 2, onnotice: () => undefined });
    return sendInSlots(options, createPostgresStore({ sql, key: options.key, rate: RATE }), send);
  },
  'BullMQ: 20 jobs in 1000 ms': (options, send) => sendAsJobs(options, { max: RATE, duration: 1000 }, send),
  'BullMQ: 1 job in 50 ms': (options, send) => sendAsJobs(options, { max: 1, duration: 1000 / RATE }, send),
};

function sendInSlots(
  { concurrency }: LimiterOptions,
  store: SlotStore,
  send: () => Promise<void>,
): () => void {
  const limiter = createLimiter({ store });
  const signal = new AbortController().signal;
  setMaxListeners(0, signal); // every waiting request listens
  const sendForever = async () => {
    for (;;) {
      const slot = await limiter.take('backfill', signal);
      if (slot.usable()) await send();
      void slot.release();
    }
  };
  return () => {
    for (let sender = 0; sender < concurrency; sender++) void sendForever();
  };
}

async function sendAsJobs(
  { redisUrl, key, concurrency, backlog }: LimiterOptions,
  limiter: { max: number; duration: number },
  send: () => Promise<void>,
): Promise<() => void> {
  const connection = { url: redisUrl, maxRetriesPerRequest: null };
  const queue = new Queue(key, { connection });
  const removeOnComplete = { count: 0 };
  const worker = new Worker(key, send, {
    connection,
    autorun: false,
    concurrency,
    limiter,
    removeOnComplete,
  });
  queue.on('error', () => undefined);
  worker.on('error', () => undefined);
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()]);
  await queue.addBulk(Array.from({ length: backlog }, () => ({ name: 'request', data: {} })));
  return () => void worker.run();
}
