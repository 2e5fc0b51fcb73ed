// The queues are kept on Redis if it is configured, else in the state database. Nothing outside this folder
// knows which.
import { DelayedError, Queue, runMigrations, Worker, type Job, type WorkerOptions } from 'bullmq';
import pg from 'pg';
import type { Logger } from '../process/logger.js';
import { QUEUES, type QueueName, QUEUE_SCHEMA, queuePrefix, type QueueStore } from './jobs.js';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import { query, type Queries } from '../state/database.js';
import { deleteKeys, openRedis, type RedisClient } from '../connections/redis-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { arrayLiteral } from '../text/sql-text.js';
import { correctInPostgres, releaseMisdated } from './correct-times.js';
import { createSharedBackend } from './queue-pool.js';

export type JobWorker = ReturnType<Bullmq['worker']>;

/** Brings the queue's own tables up to date, where it has any. The caller has the lock of migrations. */
export async function migrateQueue(store: QueueStore): Promise<void> {
  if (!('postgresUrl' in store)) return;
  await withClient(store, async (client) => {
    const { rows } = await client.query<{ exists: boolean }>(
      'SELECT to_regnamespace($1) IS NOT NULL AS exists',
      [QUEUE_SCHEMA],
    );
    // Statements of BullMQ's that are left out: one needs the right to create schemas also where the schema exists, and any role
    // that may connect can take the lock of the other.
    const isSkipped = (text: string) =>
      (rows[0]?.exists && text.startsWith('CREATE SCHEMA IF NOT EXISTS')) ||
      text.startsWith('SELECT pg_advisory_xact_lock');
    const ask = async (text: string, values?: unknown[]) =>
      isSkipped(text) ? { rows: [] } : client.query(text, values);
    await runMigrations({ query: ask } as never, QUEUE_SCHEMA);
    await client.query(OWN_LOCKS);
  });
}

/**
 * A single key is the hash of a text, which may name a job or what another program deduplicates by: a row for each would grow
 * without end. So 65536 keys that follow each other share a row. Their order stays, by which BullMQ takes several.
 */
const GROUP_OF_KEY = 'key >> 16';

/**
 * Lets BullMQ's functions lock rows of a table in the queue's own schema. They lock by advisory locks, which any role that may
 * connect can take: it could hold up every job. Those that only try a lock keep it: nothing waits for them. It may be run again,
 * after BullMQ's own migrations.
 */
const OWN_LOCKS = `
  CREATE TABLE IF NOT EXISTS ${QUEUE_SCHEMA}.lock_key (key bigint PRIMARY KEY);
  ${lockFunction('lock_key', 'key bigint', GROUP_OF_KEY, 'UPDATE')}
  ${lockFunction('lock_key_shared', 'key bigint', GROUP_OF_KEY, 'KEY SHARE')}
  ${lockFunction('lock_key_shared', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'KEY SHARE')}
  ${lockFunction('lock_key', 'high int, low int', '(high::bigint << 32) | (low::bigint & 4294967295)', 'UPDATE')}
  DO $do$
  DECLARE
    locking regprocedure;
  BEGIN
    FOR locking IN SELECT p.oid FROM pg_proc AS p
      WHERE p.pronamespace = '${QUEUE_SCHEMA}'::regnamespace AND p.prosrc ~ 'pg_advisory_xact_lock'
    LOOP
      EXECUTE regexp_replace(pg_get_functiondef(locking), 'pg_advisory_xact_lock(_shared)?\\(', '${QUEUE_SCHEMA}.lock_key\\1(', 'g');
    END LOOP;
  END $do$;`;

/** Until the end of the transaction, as BullMQ's are. Who uses a key for the first time has it alone, whichever lock it is. */
function lockFunction(
  name: string,
  parameters: string,
  key: string,
  strength: 'UPDATE' | 'KEY SHARE',
): string {
  return `CREATE OR REPLACE FUNCTION ${QUEUE_SCHEMA}.${name}(${parameters}) RETURNS void LANGUAGE plpgsql AS $lock$
  DECLARE
    wanted CONSTANT bigint := ${key};
  BEGIN
    INSERT INTO ${QUEUE_SCHEMA}.lock_key AS l (key) VALUES (wanted) ON CONFLICT DO NOTHING;
    PERFORM FROM ${QUEUE_SCHEMA}.lock_key AS l WHERE l.key = wanted FOR ${strength};
  END $lock$;`;
}

/** Removes the queues of a state from Redis; those in PostgreSQL go with their schema. */
export async function deleteQueues(store: QueueStore, stateId: string): Promise<void> {
  if ('redisUrl' in store) await deleteKeys(store.redisUrl, queuePrefix(stateId));
}

/** Clears the queue's log of events, which names jobs that are gone. */
export async function clearEvents(store: QueueStore, queue: Queue): Promise<void> {
  if ('redisUrl' in store) await queue.trimEvents(0);
  // BullMQ does not implement it for PostgreSQL.
  else
    await withClient(store, (client) =>
      client.query(`DELETE FROM ${QUEUE_SCHEMA}.event WHERE queue = $1`, [queue.name]),
    );
}

/** An answer of PostgreSQL may take this long: an index of a large queue is built. */
const ANSWER_MS = 10 * 60_000;

async function withClient(
  { postgresUrl }: { postgresUrl: SettingText },
  work: (client: pg.Client) => Promise<unknown>,
): Promise<void> {
  const client = await waitWhileFull(async () => {
    const opened = new pg.Client({ ...pgConfig(postgresUrl, 'queue'), query_timeout: ANSWER_MS });
    await opened.connect();
    return opened;
  });
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

export type Bullmq = ReturnType<typeof openBullmq>;

const LOG_AGAIN_MS = 10_000;
/**
 * Between two looks of an idle worker at its queue. In PostgreSQL each takes four statements; a notification wakes it, and where
 * one was lost, the sweep. Redis wakes it itself, unless its connection has fallen silent, which the next look notices.
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
  const onPostgres = isOnRedis ? undefined : createSharedBackend(store.postgresUrl, QUEUE_SCHEMA);
  // BullMQ's types know one kind of connection for each backend; undefined is Redis.
  const backend = onPostgres?.backend as never;

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

    /** Wakes workers of this process where jobs wait: the notification of a job may have been lost. Redis keeps its own. */
    async wakeWorkers(db: Queries): Promise<void> {
      if (!onPostgres) return;
      for (const queue of await listWaiting(Object.values(QUEUES).map(nameOf), db)) onPostgres.wake(queue);
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

/** The queues in PostgreSQL, of these, in which a job could be taken now. */
async function listWaiting(queues: readonly string[], db: Queries): Promise<string[]> {
  const waiting = await query<{ name: string }>(db)`
    SELECT name FROM unnest(${arrayLiteral(queues)}::text[]) AS queue (name)
    WHERE EXISTS (SELECT FROM slotsync_queue.job AS j WHERE j.queue = queue.name AND j.state = 'waiting')`;
  return waiting.map(({ name }) => name);
}
