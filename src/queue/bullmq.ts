// Where the queues are kept: on Redis when there is one, else in the state database. Nothing outside this
// folder knows which.
import {
  assertSchemaCompatibility,
  createPostgresBackend,
  Queue,
  runMigrations,
  SchemaMigrationRequiredError,
  SchemaVersionMismatchError,
  Worker,
  type Job,
  type WorkerOptions,
} from 'bullmq';
import { Redis } from 'ioredis';
import pg from 'pg';
import { codeOf, SlotsyncError, UsageError } from '../errors.js';
import type { Logger } from '../logger.js';
import type { QueueName } from './jobs.js';
import { QUEUE_SCHEMA, queuePrefix, type QueueStore } from './queue-address.js';

export type AnyQueue = Pick<
  Queue,
  | 'add'
  | 'addBulk'
  | 'getJobCounts'
  | 'upsertJobScheduler'
  | 'getJobScheduler'
  | 'removeJobScheduler'
  | 'on'
  | 'close'
  | 'waitUntilReady'
>;
export type AnyWorker = Pick<Worker, 'on' | 'close' | 'run' | 'waitUntilReady' | 'pause' | 'resume'>;
export type Process = (job: Job, token: string | undefined) => Promise<void>;

/** Brings the queue's own tables up to date, where it has any. */
export async function migrateQueue(store: QueueStore): Promise<void> {
  if ('redisUrl' in store) return;
  const client = new pg.Client({ connectionString: store.postgresUrl });
  await client.connect();
  try {
    await runMigrations(client, QUEUE_SCHEMA);
  } finally {
    await client.end();
  }
}

/**
 * Throws SlotsyncError when Redis cannot be reached, and UsageError unless the queue's own tables, where it has any, are
 * there and not newer than this program. BullMQ itself would wait for either without end.
 */
export async function requireQueueStore(store: QueueStore): Promise<void> {
  if ('redisUrl' in store) return requireRedis(store.redisUrl);
  const client = new pg.Client({ connectionString: store.postgresUrl });
  await client.connect();
  try {
    await assertSchemaCompatibility(client, QUEUE_SCHEMA);
  } catch (error) {
    if (error instanceof SchemaMigrationRequiredError) {
      throw new UsageError('the state database has no queue tables yet', {
        remedy: 'Run `slotsync migrate`.',
      });
    }
    if (error instanceof SchemaVersionMismatchError) {
      throw new UsageError('the queue tables are newer than this program', {
        remedy: 'Update slotsync on this machine to the version that migrated them.',
      });
    }
    throw error;
  } finally {
    await client.end();
  }
}

async function requireRedis(url: string): Promise<void> {
  const redis = new Redis(url, { lazyConnect: true, connectTimeout: 5000, retryStrategy: () => null });
  redis.on('error', () => undefined); // connect() below throws it
  try {
    await redis.connect();
    await redis.ping();
  } catch (error) {
    throw new SlotsyncError('queue_unreachable', `Redis cannot be reached (${codeOf(error)})`, {
      cause: error,
    });
  } finally {
    redis.disconnect();
  }
}

export function openBackend(store: QueueStore, stateId: string, log: Logger) {
  const prefix = queuePrefix(stateId);
  const postgres = (max: number) =>
    'postgresUrl' in store ? { connectionString: store.postgresUrl, schema: QUEUE_SCHEMA, max } : undefined;
  const onError = (error: Error) => log.warn({ reason: error.message }, 'queue connection failed');

  return {
    queue(name: QueueName): AnyQueue {
      const config = postgres(2);
      const queue = (config
        ? new Queue(name, { connection: config }, createPostgresBackend)
        : new Queue(name, {
            prefix,
            // A producer that cannot reach Redis says so; the batch's row brings the job back later.
            connection: { url: (store as { redisUrl: string }).redisUrl, maxRetriesPerRequest: 3 },
          })) as unknown as AnyQueue;
      queue.on('error', onError);
      return queue;
    },

    worker(
      name: QueueName,
      process: Process,
      options: Pick<WorkerOptions, 'concurrency' | 'settings' | 'removeOnFail'>,
    ): AnyWorker {
      const config = postgres(4);
      const common = {
        autorun: false,
        // A worker may die any number of times with the same job; the batch's row ends it, not the queue.
        maxStalledCount: 1000,
        // How soon others notice: the lock is renewed twice in its time.
        lockDuration: 20_000,
        stalledInterval: 10_000,
        removeOnComplete: { count: 0 },
        removeOnFail: { count: 0 },
        ...options,
      };
      const worker = (config
        ? new Worker(name, process, { ...common, connection: config }, createPostgresBackend)
        : new Worker(name, process, {
            ...common,
            prefix,
            connection: { url: (store as { redisUrl: string }).redisUrl, maxRetriesPerRequest: null },
          })) as unknown as AnyWorker;
      worker.on('error', onError);
      return worker;
    },
  };
}

export type Backend = ReturnType<typeof openBackend>;
