// The queues are kept on Redis if it is configured, else in the state database. Nothing outside this folder
// knows which.
import { DelayedError, Queue, Worker, type Job, type WorkerOptions } from 'bullmq';
import type { Logger } from '../process/logger.js';
import { QUEUES, type QueueName, QUEUE_SCHEMA, queuePrefix, type QueueStore } from './jobs.js';
import type { Queries } from '../state/database.js';
import { deleteKeys, openRedis, type RedisClient } from '../connections/redis-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { correctInPostgres, releaseMisdated } from './correct-times.js';
import { createSharedBackend } from './queue-pool.js';
import { withQueueClient } from './migrate-queue.js';

export type JobWorker = ReturnType<Bullmq['worker']>;

/** Removes the queues of a state from Redis; those in PostgreSQL go with their schema. */
export async function deleteQueues(store: QueueStore, stateId: string): Promise<void> {
  if ('redisUrl' in store) await deleteKeys(store.redisUrl, queuePrefix(stateId));
}

/** Clears the queue's log of events, which names jobs that are gone. */
export async function clearEvents(store: QueueStore, queue: Queue): Promise<void> {
  if ('redisUrl' in store) await queue.trimEvents(0);
  // BullMQ does not implement it for PostgreSQL.
  else
    await withQueueClient(store, (client) =>
      client.query(`DELETE FROM ${QUEUE_SCHEMA}.event WHERE queue = $1`, [queue.name]),
    );
}

export type Bullmq = ReturnType<typeof openBullmq>;

const LOG_AGAIN_MS = 10_000;
/**
 * Between two looks of an idle worker at its queue. In PostgreSQL each takes four statements, and finds what no notification has told.
 * Redis wakes it itself, unless its connection has fallen silent, which the next look notices.
 */
const DRAIN_SECONDS = { postgres: 30, redis: 10 };

/**
 * Opens queues and workers of one state; each is closed by whoever opened it, and then what they share. Each `configuration`
 * has queues of its own: so a job comes only to processes that may work it, and to them at once.
 */
export function openBullmq(store: QueueStore, stateId: string, log: Logger, configuration?: string) {
  const nameOf = (name: QueueName) =>
    configuration === undefined || name === QUEUES.changes ? name : `${name}-${configuration}`;
  /** When an error was last logged, by the beginning of its message: the rest of it may differ each time. */
  const logged = new Map<string, number>();
  const onError = ({ message }: Error) => {
    // Each queue and worker that shares the connection reports it, and some of them many times a second.
    const [kind, now] = [message.slice(0, 30), performance.now()];
    if (now - (logged.get(kind) ?? -Infinity) < LOG_AGAIN_MS) return;
    logged.set(kind, now);
    log.warn({ reason: message }, 'queue connection failed');
  };
  /** A client for all queues and a client for all workers; BullMQ adds one to each worker, which waits for jobs. */
  const clients = new Map<string, RedisClient>();
  const shareRedis = (address: SettingText, maxRetriesPerRequest: number | null) => {
    const duty = maxRetriesPerRequest === null ? 'worker' : 'producer';
    const client =
      clients.get(duty) ?? openRedis(address, duty, { maxRetriesPerRequest, onPostponed: onError });
    clients.set(duty, client);
    return client;
  };
  const isOnRedis = 'redisUrl' in store;
  const connect = (maxRetriesPerRequest: number | null) =>
    isOnRedis
      ? {
          prefix: queuePrefix(stateId),
          connection: shareRedis(store.redisUrl, maxRetriesPerRequest),
        }
      : { connection: {} }; // the backend has its own
  const shared = isOnRedis ? undefined : createSharedBackend(store.postgresUrl, QUEUE_SCHEMA);
  // BullMQ's types know one kind of connection for each backend; undefined is Redis.
  const backend = shared as never;

  return {
    queue(name: QueueName): Queue {
      // A producer that cannot reach Redis fails; the batch's row brings the job back later.
      const queue = new Queue(nameOf(name), connect(3), backend);
      queue.on('error', onError);
      return queue;
    },

    worker(
      name: QueueName,
      process: (job: Job, token: string | undefined) => Promise<void>,
      options: Pick<WorkerOptions, 'concurrency' | 'settings' | 'removeOnFail'>,
    ) {
      const config = {
        autorun: false,
        // A worker may die any number of times with the same job; the batch's row ends it, not the queue.
        maxStalledCount: 1000,
        // Other workers notice a dead one after this time; a live one renews its lock twice within it.
        lockDuration: 20_000,
        stalledInterval: 10_000,
        drainDelay: isOnRedis ? DRAIN_SECONDS.redis : DRAIN_SECONDS.postgres,
        removeOnComplete: { count: 0 },
        removeOnFail: { count: 0 },
        ...options,
        ...connect(null),
      };
      const worker = new Worker(nameOf(name), process, config, backend) as unknown as Worker;
      worker.on('error', onError);
      const ready = worker.waitUntilReady();
      ready.catch(() => undefined); // whoever waits for it gets the error
      return {
        waitUntilReady: () => ready,
        run: () => worker.run(),
        pause: () => worker.pause(true),
        resume: () => worker.resume(),
        /** Jobs in flight at once, from the next one on. */
        setConcurrency: (jobs: number) => void (worker.concurrency = jobs),
        /** Resolves when the jobs in flight have ended. */
        async close(): Promise<void> {
          // A connection that is being made when BullMQ closes stays open.
          await Promise.allSettled([ready]);
          await worker.close();
        },
      };
    },

    /** Corrects what a wrong clock has dated in these queues; `db`: the state, by whose time that is seen. */
    async correctTimes(queues: readonly Queue[], db: Queries): Promise<void> {
      if (!isOnRedis) return correctInPostgres(queues, db);
      for (const queue of queues) await releaseMisdated(queue, db);
    },

    /** Leaves a job to another attempt after this time, which is no failure: throws what says so to BullMQ. */
    async putOff(job: Job, afterMs: number, token: string | undefined): Promise<never> {
      await job.moveToDelayed(Date.now() + afterMs, token);
      throw new DelayedError();
    },

    /** To be called when every queue and worker is closed. */
    async close(): Promise<void> {
      for (const client of clients.values()) client.disconnect();
    },
  };
}
