// The queue's connections to PostgreSQL. BullMQ opens for each queue and each worker a pool and a listening connection of its
// own: two dozen for one process. Here all of them share one small pool. The first opens it, the last closes it.
import { PostgresConnection, PostgresQueueBackend, type BackendFactory, type PgPool } from 'bullmq';
import pg from 'pg';
import { pgConfig, waitWhileFull } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { quoteIdentifier } from '../text/sql-text.js';

/** Connections of a process; a single one listens for new jobs, in a process that works them. */
const CONNECTIONS = 3;
/** For one of them to be free. Whether the server answers at all was seen before. */
const WAIT_WITHIN_MS = 30_000;
/** For an answer in milliseconds, all of which are short: a connection over which none arrives is closed, and another one opened. */
const ANSWER_WITHIN_MS = 60_000;

/** A worker that waits for a delayed job looks for others after this time at the latest: a notification may have been lost. */
const LOOK_AGAIN_SECONDS = 30;

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
  readonly #forget: () => void;

  constructor(pool: pg.Pool, schema: string, forget: () => void) {
    super(pool as unknown as PgPool);
    this.#forget = forget;
    // BullMQ takes a schema's name only together with a pool of its own making.
    Object.assign(this, { schema });
    this.setMaxListeners(0); // each queue and each worker listens
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
   * Asks first whether the connection that listens still answers. If the answer is late, pg closes it and BullMQ listens over
   * another one. Otherwise each job of an idle worker would wait until the worker looks again.
   */
  override async waitForJob(blockTimeout: number) {
    if (!this.connection.isClosing && !this.closing) {
      const listening = await this.connection.getListenClient();
      listening.query('SELECT 1').catch(() => undefined); // BullMQ hears of the closed connection
    }
    return super.waitForJob(blockTimeout);
  }
}

/** A backend for BullMQ whose queues and workers share their connections. `schema` holds BullMQ's tables. */
export function createSharedBackend(
  address: SettingText,
  schema: string,
  answerWithinMs = ANSWER_WITHIN_MS,
): BackendFactory {
  let shared: SharedConnection | undefined;

  const open = () => {
    // Not a parameter of the connection, which poolers refuse. Each connection waits for it.
    const setSchema = (client: pg.ClientBase) =>
      client.query(`SET search_path TO ${quoteIdentifier(schema)}`);
    const pool = new WaitingPool({
      ...pgConfig(address, 'queue'),
      max: CONNECTIONS,
      connectionTimeoutMillis: WAIT_WITHIN_MS,
      query_timeout: answerWithinMs,
      // Workers send statements over the listening connection at once. It also closes a connection whose answer is late.
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
