// Opens every client and every transaction of PostgreSQL. Each client has a name at the server and a connect timeout,
// and both drivers interpret the address in the same way.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { codeOf, UsageError } from '../errors/errors.js';
import { TOO_MANY_CONNECTIONS } from './postgres-faults.js';
import { createSockets, connectionClosed } from './postgres-socket.js';
import type { Silence } from './watchdog.js';
import { parsePostgresAddress } from './addresses.js';
import { currentText, type SettingText } from '../config/setting-text.js';

/** Connect timeout, from the first packet to the server's readiness. */
const CONNECT_WITHIN_MS = 8000;
const IDLE_MS = 10_000;
/** Idle time after which TCP keep-alive probes the server. The probes also keep the connection in firewalls. */
const KEEP_ALIVE_MS = 30_000;
/** Attempts to detect a pooler's transaction mode. Its other clients can make an attempt look like session mode. */
const POOLING_ATTEMPTS = 12;
/** Limits for retrying a statement while the server has too many connections. */
const FULL = { untilMs: 60_000, pauseMs: { first: 250, most: 4000 } };

/** A connection is closed if nothing arrives for this time, which is longer than short statements take. */
const ANSWER_WITHIN_MS = 2 * 60_000;
/** Answer timeout for slow statements, for example a schema change or a query whose consumer pauses. */
export const LONG_ANSWER_MS = 31 * 60_000;

/**
 * Opens a client of postgres.js; the first query connects. The client has one connection, unless `options` say
 * otherwise. `duty` becomes its name at the server. Unless the client `reconnects`, every statement fails after its
 * connection is lost. `end` with a timeout also closes connections that the server does not close. Throws UsageError if
 * the address is invalid.
 */
export function connectPostgres<T extends Record<string, postgres.PostgresType> = {}>(
  address: SettingText,
  duty: string,
  { connection, ...options }: postgres.Options<T> = {},
  {
    reconnects = true,
    answerWithinMs = ANSWER_WITHIN_MS,
    ...silence
  }: Partial<Silence> & { reconnects?: boolean } = {},
) {
  const server = serverOf(address);
  const connectWithinMs = options.connect_timeout ? options.connect_timeout * 1000 : CONNECT_WITHIN_MS;
  const sockets = createSockets(server, { ...silence, answerWithinMs, connectWithinMs, reconnects });
  const client = postgres<T>({
    ...server,
    ssl: false, // the sockets are encrypted
    socket: sockets.open,
    keep_alive: KEEP_ALIVE_MS / 1000,
    max: 1,
    connect_timeout: connectWithinMs / 1000,
    idle_timeout: IDLE_MS / 1000,
    // A pooler may send the next statement over another connection, which lacks the prepared statement.
    prepare: false,
    // Otherwise each connection would query the types of all arrays before its first statement. Few clients read
    // arrays.
    fetch_types: false,
    onnotice: () => undefined,
    // Times must arrive in ISO format, whatever the settings of the server, the database or the role.
    connection: { application_name: nameOf(duty), DateStyle: 'ISO, YMD', ...connection },
    ...options,
  } as postgres.Options<T>);
  const { end } = client;
  client.end = async (how) => {
    await end(how);
    if (how?.timeout !== undefined) sockets.destroy();
  };
  return client;
}

/** Returns the configuration for a client or pool of pg. Throws UsageError if the address is invalid. */
export function pgConfig(address: SettingText, duty: string) {
  return {
    ...serverOf(address),
    application_name: nameOf(duty),
    connectionTimeoutMillis: CONNECT_WITHIN_MS,
    idleTimeoutMillis: IDLE_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
  };
}

const nameOf = (duty: string) => `slotsync ${duty}`;

/** Returns the options that postgres.js and pg both have, under the same names. */
function serverOf(address: SettingText) {
  const { tls, password, user, host, port, database } = parsePostgresAddress(currentText(address));
  // Each new connection reads the password again, so that a password that was replaced in its file is used.
  const readPassword = () => parsePostgresAddress(currentText(address)).password ?? '';
  // If the address has no password, both drivers use PGPASSWORD.
  return {
    host,
    port,
    database,
    user,
    ssl: tls,
    ...(password === undefined ? {} : { password: readPassword }),
  };
}

/**
 * Runs `run` again while the server has too many connections: the server has then executed nothing. Throws that error
 * after a minute, and any other error at once. Not for use inside an open transaction.
 */
export async function waitWhileFull<T>(run: () => Promise<T>, untilMs = FULL.untilMs): Promise<T> {
  const startedAt = performance.now();
  for (let pauseMs = FULL.pauseMs.first; ; pauseMs = Math.min(pauseMs * 2, FULL.pauseMs.most)) {
    try {
      return await run();
    } catch (error) {
      // drizzle wraps the driver's error in `cause`.
      const isFull = [error, error instanceof Error && error.cause].some(
        (each) => codeOf(each) === TOO_MANY_CONNECTIONS,
      );
      if (!isFull || performance.now() - startedAt + pauseMs > untilMs) throw error;
      // Randomizes the pause, so that processes that were refused together do not return together.
      await pause(pauseMs * (0.5 + Math.random() / 2));
    }
  }
}

/** Kind of pooler between slotsync and the server. A pooler lends a connection for each session or transaction. */
export type Pooling = 'none' | 'session' | 'transaction';

/** Detects a pooler and its mode with two connections. Throws the driver's errors. */
export async function findPooling(address: SettingText): Promise<Pooling> {
  const [client, other] = [connectPostgres(address, 'probe'), connectPostgres(address, 'probe')];
  const ask = async (sql: Pick<postgres.Sql, 'unsafe'>) => {
    const answer = await sql.unsafe<{ pid: number }[]>('SELECT pg_backend_pid() AS pid');
    return { pid: answer[0]?.pid, announced: answer.state.pid };
  };
  try {
    const first = await waitWhileFull(() => ask(client));
    // A pooler announces process ids of its own, not the server's.
    if (first.pid === first.announced) return 'none';
    for (let attempt = 0; attempt < POOLING_ATTEMPTS; attempt++) {
      // A pooler in transaction mode lends the connection that was returned last. After this statement, that is the
      // connection of this statement.
      const own = await ask(client);
      // `other` now holds a connection in a transaction. If that is `client`'s connection, or if `client` gets another
      // one, the pooler shares connections between sessions.
      const isShared = await inTransaction(other, async (tx) => {
        const { pid } = await tx.send(ask);
        return pid === own.pid || (await ask(client)).pid !== own.pid;
      });
      if (isShared) return 'transaction';
    }
    return 'session';
  } finally {
    await Promise.all([client, other].map((sql) => sql.end({ timeout: 1 })));
  }
}

export function refuseTransactionPooling(): never {
  throw new UsageError(
    'STATE_DATABASE_URL goes through a pooler in transaction mode, where the queue cannot listen for jobs',
    { remedy: 'Name the server itself or a pooler in session mode, or set REDIS_URL.' },
  );
}

// postgres.js 3.4.9 sends the ROLLBACK or the next statement of a transaction even after its connection has closed.
// Nobody can catch the resulting error, and the process ends (porsager/postgres#1154). Therefore nothing more is sent,
// and the driver never learns that the work has ended. The driver has already failed the transaction by then.

/** An open transaction, or a savepoint within a transaction. */
export interface Transaction {
  /** Sends a statement. Throws CONNECTION_CLOSED if the connection is lost. */
  send<Result>(statement: (sql: postgres.TransactionSql) => PromiseLike<Result>): Promise<Result>;
  savepoint<Result>(work: (inner: Transaction) => Promise<Result>): Promise<Result>;
}

/** Runs `work` in a transaction. Throws the errors of `work`, and CONNECTION_CLOSED if the connection is lost. */
export async function inTransaction<T>(
  client: Pick<postgres.Sql, 'begin'>,
  work: (tx: Transaction) => Promise<T>,
): Promise<T> {
  let isLost = false;
  let fail: (reason: Error) => void = () => undefined;
  const lost = new Promise<never>((_, reject) => (fail = reject));
  lost.catch(() => undefined); // the race in `savepoint` throws the error
  const lose = () => {
    isLost = true;
    fail(connectionClosed());
  };

  /** Runs the work that is handed to the driver. The promise never settles if the connection is lost. */
  async function endless<R>(run: () => Promise<R>): Promise<R> {
    try {
      const result = await run();
      if (!isLost) return result;
    } catch (error) {
      if (!isLost) throw error;
    }
    return new Promise<never>(() => undefined);
  }

  const guard = (sql: postgres.TransactionSql): Transaction => ({
    async send(statement) {
      if (isLost) throw connectionClosed();
      try {
        return await statement(sql);
      } catch (error) {
        if (codeOf(error).startsWith('CONNECTION_')) lose();
        throw error;
      }
    },
    savepoint: <R>(inner: (nested: Transaction) => Promise<R>) =>
      Promise.race([
        lost,
        sql.savepoint((nested: postgres.TransactionSql) => endless(() => inner(guard(nested)))) as Promise<R>,
      ]),
  });

  try {
    return (await client.begin((sql) => endless(() => work(guard(sql))))) as T;
  } finally {
    lose(); // nothing may be sent after the transaction
  }
}
