// Opens the queue's connections to PostgreSQL. BullMQ would open a pool and a listening connection for each queue and
// each worker: two dozen in one process. Here all share one small pool, which the last user closes.
import { PostgresConnection, PostgresQueueBackend, type BackendFactory, type PgPool } from 'bullmq';
import pg from 'pg';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { quoteIdentifier } from '../text/sql-text.js';

/** Maximum number of connections of a process. In a process with workers, one connection listens for new jobs. */
const CONNECTIONS = 3;
/** Timeout for a free connection of the pool. That the server answers at all was checked before. */
const WAIT_WITHIN_MS = 30_000;
/** Answer timeout; ordinary answers are short. A connection without an answer is closed and replaced. */
const ANSWER_WITHIN_MS = 60_000;

/** Longest wait for a delayed job. Then the worker checks for other jobs, whose notification may have been lost. */
const LOOK_AGAIN_SECONDS = 30;

/** A pool that waits while the server has too many connections. */
class WaitingPool extends pg.Pool {
  override connect = ((callback?: Parameters<pg.Pool['connect']>[0]) =>
    callback ? super.connect(callback) : waitWhileFull(() => super.connect())) as pg.Pool['connect'];
  override query = ((...statement: Parameters<pg.Pool['query']>) =>
    waitWhileFull(async () => super.query(...statement))) as unknown as pg.Pool['query'];
}

/** A connection that counts its users. The last user closes the pool. */
class SharedConnection extends PostgresConnection {
  users = 0;
  readonly #forget: () => void;

  constructor(pool: pg.Pool, schema: string, forget: () => void) {
    super(pool as unknown as PgPool);
    this.#forget = forget;
    // BullMQ accepts a schema's name only together with a pool that it creates itself.
    Object.assign(this, { schema });
    this.setMaxListeners(0); // each queue and each worker adds a listener
  }

  override async close(): Promise<void> {
    if (--this.users > 0) return;
    this.#forget();
    await super.close();
    await this.pool.end();
  }
}

class Backend extends PostgresQueueBackend {
  override get maximumBlockTimeout(): number {
    return LOOK_AGAIN_SECONDS;
  }

  /**
   * First checks whether the listening connection still answers. If the answer is late, pg closes the connection, and
   * BullMQ listens over another. Otherwise each job of an idle worker would wait until the worker's next check.
   */
  override async waitForJob(blockTimeout: number) {
    if (!this.connection.isClosing && !this.closing) {
      const listening = await this.connection.getListenClient();
      listening.query('SELECT 1').catch(() => undefined); // BullMQ handles the closed connection itself
    }
    return super.waitForJob(blockTimeout);
  }
}

/** Creates a BullMQ backend whose queues and workers share their connections. `schema` contains BullMQ's tables. */
export function createSharedBackend(
  address: SettingText,
  schema: string,
  answerWithinMs = ANSWER_WITHIN_MS,
): BackendFactory {
  let shared: SharedConnection | undefined;

  const open = () => {
    // Sets the schema by a statement, since poolers refuse it as a connection parameter. Each new connection waits for
    // this.
    const setSchema = (client: pg.ClientBase) =>
      client.query(`SET search_path TO ${quoteIdentifier(schema)}`);
    const pool = new WaitingPool({
      ...pgConfig(address, 'queue'),
      max: CONNECTIONS,
      connectionTimeoutMillis: WAIT_WITHIN_MS,
      query_timeout: answerWithinMs,
      // Workers send concurrent statements over the listening connection. The option also closes a connection whose
      // answer is late.
      pipeline: true,
      onConnect: setSchema as never,
    });
    return new SharedConnection(pool, schema, () => (shared = undefined));
  };

  return (name, options) => {
    shared ??= open();
    shared.users++;
    return new Backend(shared, name, options as never);
  };
}
