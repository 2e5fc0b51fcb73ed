// The queue's connections to PostgreSQL. BullMQ opens for each queue and each worker a pool and a listening connection of its
// own: two dozen for one process. Here all of them share one small pool. The first opens it, the last closes it.
import type { EventEmitter } from 'node:events';
import { PostgresConnection, PostgresQueueBackend, type BackendFactory, type PgPool } from 'bullmq';
import pg from 'pg';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { quoteIdentifier } from '../text/sql-text.js';

/** Connections of a process; a single one listens for new jobs, in a process that works them. */
const CONNECTIONS = 3;
/** For one of them to be free. Whether the server answers at all was seen before. */
const WAIT_WITHIN_MS = 30_000;
/** All times in milliseconds. */
const SILENCE = {
  /** For an answer, all of which are short: a connection over which none arrives is closed, and another one opened. */
  answerMs: 60_000,
  /** How often the connection that only listens is asked whether it still answers. */
  askMs: 30_000,
};
/** BullMQ's channel, whose notifications name a queue. */
const JOBS_CHANNEL = 'bullmq_jobs';

type ListenClient = Awaited<ReturnType<PostgresConnection['getListenClient']>>;

/** Waits while the server has too many connections. */
class WaitingPool extends pg.Pool {
  override connect = ((callback?: Parameters<pg.Pool['connect']>[0]) =>
    callback ? super.connect(callback) : waitWhileFull(() => super.connect())) as pg.Pool['connect'];
  override query = ((...statement: Parameters<pg.Pool['query']>) =>
    waitWhileFull(async () => super.query(...statement))) as unknown as pg.Pool['query'];
}

/** Counts who uses it, and ends the pool with the last of them. */
class SharedConnection extends PostgresConnection {
  users = 0;
  private readonly forget: () => void;
  private readonly askMs: number;
  private listening: ListenClient | undefined;

  constructor(pool: pg.Pool, schema: string, askMs: number, forget: () => void) {
    super(pool as unknown as PgPool);
    this.forget = forget;
    this.askMs = askMs;
    // BullMQ takes a schema's name only together with a pool of its own making.
    Object.assign(this, { schema });
    this.setMaxListeners(0); // each queue and each worker listens
  }

  /** The listening client, whose statements wait for each other: several workers send theirs at once. */
  override async getListenClient(): Promise<ListenClient> {
    const client = await super.getListenClient();
    if (this.listening === client) return client;
    this.listening = client;
    const query = client.query.bind(client);
    let last: Promise<unknown> = Promise.resolve();
    client.query = (text, params) => {
      const result = last.then(() => query(text, params));
      last = result.catch(() => undefined);
      return result;
    };
    this.askWhileListening(client as unknown as pg.PoolClient);
    return client;
  }

  private askWhileListening(client: pg.PoolClient): void {
    const ask = async () => {
      try {
        await client.query('SELECT 1');
      } catch (error) {
        clearInterval(timer);
        // As when the connection fails: BullMQ closes it, and listens over another one.
        if (client.listenerCount('error') > 0) client.emit('error', error);
      }
    };
    const timer = setInterval(() => void ask(), this.askMs).unref();
    client.once('end', () => clearInterval(timer));
  }

  /** Workers that wait for a job of this queue look for one, as if a notification had come. */
  wake(queue: string): void {
    const client = this.listening as unknown as EventEmitter | undefined;
    client?.emit('notification', { channel: JOBS_CHANNEL, payload: queue });
  }

  override async close(): Promise<void> {
    if (--this.users > 0) return;
    this.forget();
    await super.close();
    await this.pool.end();
  }
}

/**
 * A backend for BullMQ whose queues and workers share their connections; `schema` holds BullMQ's tables. `wake`: its workers
 * of a queue look for a job.
 */
export function createSharedBackend(address: SettingText, schema: string, { answerMs, askMs } = SILENCE) {
  let shared: SharedConnection | undefined;

  const open = () => {
    // Not a parameter of the connection, which poolers refuse. Each connection waits for it.
    const setSchema = (client: pg.ClientBase) =>
      client.query(`SET search_path TO ${quoteIdentifier(schema)}`);
    const pool = new WaitingPool({
      ...pgConfig(address, 'queue'),
      max: CONNECTIONS,
      connectionTimeoutMillis: WAIT_WITHIN_MS,
      query_timeout: answerMs,
      onConnect: setSchema as never,
    });
    return new SharedConnection(pool, schema, askMs, () => (shared = undefined));
  };

  const backend = ((name, options) => {
    shared ??= open();
    shared.users++;
    return new PostgresQueueBackend(shared, name, options as never);
  }) satisfies BackendFactory;
  return { backend, wake: (queue: string) => shared?.wake(queue) };
}
