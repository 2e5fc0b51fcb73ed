// Opens the queues on Redis if it is configured, otherwise in the state database. No code outside this folder depends
// on which of them is used.
import { DelayedError, Queue, Worker, type Job, type WorkerOptions } from 'bullmq';
import type { Logger } from '../process/logger.js';
import { QUEUES, type QueueName, QUEUE_SCHEMA, queuePrefix, type QueueStore } from './jobs.js';
import { anyOf, query, readClock, type Queries } from '../state/database.js';
import { deleteKeys, openRedis, type RedisClient } from '../connections/redis-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { createSharedBackend } from './queue-pool.js';
import { withQueueClient } from './migrate-queue.js';

export type JobWorker = ReturnType<Bullmq['worker']>;

/** Removes the queues of a state from Redis. Queues in PostgreSQL are removed together with their schema. */
export async function deleteQueues(store: QueueStore, stateId: string): Promise<void> {
  if ('redisUrl' in store) await deleteKeys(store.redisUrl, queuePrefix(stateId));
}

/** Clears the queue's log of events, which names deleted jobs. */
export async function clearEvents(store: QueueStore, queue: Queue): Promise<void> {
  if ('redisUrl' in store) await queue.trimEvents(0);
  // BullMQ does not implement `trimEvents` for PostgreSQL.
  else
    await withQueueClient(store, (client) =>
      client.query(`DELETE FROM ${QUEUE_SCHEMA}.event WHERE queue = $1`, [queue.name]),
    );
}

export type Bullmq = ReturnType<typeof openBullmq>;

const LOG_AGAIN_MS = 10_000;
/**
 * Seconds after which an idle worker checks its queue. In PostgreSQL a check takes four statements, and finds jobs
 * whose notification was lost. With Redis, a new job wakes the worker, and the check detects a connection that died
 * without an error.
 */
const DRAIN_SECONDS = { postgres: 30, redis: 10 };

/**
 * Opens queues and workers of one state. The caller closes each of them, and then what they share. Each `configuration`
 * has queues of its own, so that a job reaches only processes that may work it.
 */
export function openBullmq(store: QueueStore, stateId: string, log: Logger, configuration?: string) {
  const nameOf = (name: QueueName) =>
    configuration === undefined || name === QUEUES.changes ? name : `${name}-${configuration}`;
  /** Time when an error was last logged, by the beginning of its message. The rest may differ each time. */
  const logged = new Map<string, number>();
  const onError = ({ message }: Error) => {
    // Every queue and worker on the connection reports the same error, some of them many times a second.
    const [kind, now] = [message.slice(0, 30), performance.now()];
    if (now - (logged.get(kind) ?? -Infinity) < LOG_AGAIN_MS) return;
    logged.set(kind, now);
    log.warn({ reason: message }, 'queue connection failed');
  };
  /** A client for all queues, and a client for all workers. BullMQ adds one per worker that waits for jobs. */
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
      : { connection: {} }; // the backend has its own connections
  const shared = isOnRedis ? undefined : createSharedBackend(store.postgresUrl, QUEUE_SCHEMA);
  // BullMQ's types allow one kind of connection for each backend. Undefined selects Redis.
  const backend = shared as never;

  return {
    queue(name: QueueName): Queue {
      // Adding a job fails if Redis cannot be reached. A later sweep creates the job from the batch's row.
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
        // The same job may be interrupted any number of times by killed workers. The batch's row ends the attempts, not
        // the queue.
        maxStalledCount: 1000,
        // Time after which other workers take the job of a killed worker. A running worker renews its lock twice within
        // this time.
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
      ready.catch(() => undefined); // `waitUntilReady` throws the error
      return {
        waitUntilReady: () => ready,
        run: () => worker.run(),
        pause: () => worker.pause(true),
        resume: () => worker.resume(),
        /** Sets the number of jobs in flight at once. Takes effect at the next job. */
        setConcurrency: (jobs: number) => void (worker.concurrency = jobs),
        /** Closes the worker when the jobs in flight have ended. */
        async close(): Promise<void> {
          // If BullMQ closes while a connection is being opened, that connection stays open.
          await Promise.allSettled([ready]);
          await worker.close();
        },
      };
    },

    /** Corrects times that a wrong clock has set in these queues. `db` is the state, whose clock is authoritative. */
    async correctTimes(queues: readonly Queue[], db: Queries): Promise<void> {
      if (!isOnRedis) return correctInPostgres(queues, db);
      for (const queue of queues) await releaseMisdated(queue, db);
    },

    /** Delays a job without counting a failed attempt. Throws DelayedError, as BullMQ requires. */
    async putOff(job: Job, afterMs: number, token: string | undefined): Promise<never> {
      await job.moveToDelayed(Date.now() + afterMs, token);
      throw new DelayedError();
    },

    /** Closes the shared clients. Call this after every queue and worker is closed. */
    async close(): Promise<void> {
      for (const client of clients.values()) client.disconnect();
    },
  };
}

/** Limit that is longer than any retry delay and any lock. */
const LONGEST_MS = 2 * 60 * 1000;

/**
 * Promotes the delayed jobs of a queue if a job is due later than any delay can be, or has been due for that
 * long. BullMQ sets delays, and on PostgreSQL also locks, by the clock of the process. If that clock is wrong, a job waits
 * until the wrong time, and a job of a killed process stays locked until then.
 */
async function releaseMisdated(queue: Queue, db: Queries): Promise<void> {
  const delayed = await queue.getDelayedCount();
  if (delayed === 0) return;
  const now = (await readClock(db)).getTime();
  const isLate = (await queue.getDelayedCount(now + LONGEST_MS)) < delayed;
  const isOverdue = (await queue.getDelayedCount(now - LONGEST_MS)) > 0;
  if (isLate || isOverdue) await queue.promoteJobs();
}

/**
 * Corrects queues in PostgreSQL. Promotes misdated jobs, as `releaseMisdated` does. Also shortens locks, and the time
 * until BullMQ's next check for stalled jobs, if they are longer than a lock can be.
 */
async function correctInPostgres(queues: readonly Queue[], db: Queries): Promise<void> {
  const names = anyOf(queues.map(({ name }) => name));
  const misdated = await query<{ name: string }>(db)`
    WITH time AS (SELECT (extract(epoch FROM now()) * 1000)::bigint AS now_ms),
    limits AS (SELECT now_ms - ${LONGEST_MS}::bigint AS earliest, now_ms + ${LONGEST_MS}::bigint AS latest FROM time),
    locks AS (
      UPDATE slotsync_queue.job SET locked_until_ms = latest FROM limits
      WHERE queue = ${names} AND state = 'active' AND locked_until_ms > latest),
    checks AS (
      UPDATE slotsync_queue.meta SET value = '0' FROM limits
      WHERE queue = ${names} AND field = 'stalled-check'
        AND CASE WHEN field = 'stalled-check' THEN value::bigint > latest END)
    SELECT DISTINCT queue AS name FROM slotsync_queue.job, limits
    WHERE queue = ${names} AND state = 'delayed' AND NOT process_at_ms BETWEEN earliest AND latest`;
  for (const queue of queues) if (misdated.some(({ name }) => name === queue.name)) await queue.promoteJobs();
}
