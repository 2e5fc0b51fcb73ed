// Every client of PostgreSQL is opened here, so that each is named at the server, connects in a bounded time, and uses
// the same reading of the address, whichever driver it is.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { codeOf, UsageError } from '../errors/errors.js';
import { TOO_MANY_CONNECTIONS } from './postgres-faults.js';
import { createSockets } from './postgres-socket.js';
import { inTransaction } from './transactions.js';
import type { Silence } from './watchdog.js';
import { parsePostgresAddress } from './addresses.js';
import { currentText, type SettingText } from '../config/setting-text.js';

/** How long a connection may take, from the first packet to the server's readiness. */
const CONNECT_WITHIN_MS = 8000;
/** Idle connections are closed after this time. */
const IDLE_MS = 10_000;
/** The system asks after this time whether the other side of an idle connection is there, which also keeps it in firewalls. */
const KEEP_ALIVE_MS = 30_000;
/** Others that use the pooler can make one attempt look like session mode. */
const POOLING_ATTEMPTS = 12;
/** How long a statement is tried again while the server has too many connections. */
const FULL = { untilMs: 60_000, pauseMs: { first: 250, most: 4000 } };

/** A connection over which nothing arrives for this time is closed: longer than short statements take. */
const ANSWER_WITHIN_MS = 2 * 60_000;
/** The same for statements that may take long: a schema is changed, or a reader of many rows pauses. */
export const LONG_ANSWER_MS = 31 * 60_000;

/**
 * Opens a client of postgres.js with one connection, unless `options` say otherwise. `duty` is what the server lists it
 * by. Nothing connects before the first query. Unless it `reconnects`, every statement fails after its connection is lost.
 * Its `end` with a timeout also closes connections that the server does not close. Throws UsageError when the address cannot be
 * used.
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
    // A pooler may send the next statement over another connection, which does not know a prepared one.
    prepare: false,
    // Else each connection asks for the types of all arrays before its first statement. Few clients read arrays.
    fetch_types: false,
    onnotice: () => undefined,
    // Times are read as ISO, whatever the server, the database or the role prints.
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

/** The same for pg, as the configuration of a client or a pool. Throws UsageError when the address cannot be used. */
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

/** Options that have the same name in both drivers. */
function serverOf(address: SettingText) {
  const { tls, password, user, host, port, database } = parsePostgresAddress(currentText(address));
  // Asked for by each new connection, so that a password that was replaced in its file is used by the next one.
  const readPassword = () => parsePostgresAddress(currentText(address)).password ?? '';
  // Without one, both drivers look at PGPASSWORD.
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
 * Runs `work` again while the server has too many connections, since nothing of it was carried out. Throws that error
 * after a minute, and any other at once. Not for work that has begun inside a transaction.
 */
export async function waitWhileFull<T>(run: () => Promise<T>, untilMs = FULL.untilMs): Promise<T> {
  const startedAt = performance.now();
  for (let pauseMs = FULL.pauseMs.first; ; pauseMs = Math.min(pauseMs * 2, FULL.pauseMs.most)) {
    try {
      return await run();
    } catch (error) {
      // drizzle wraps the driver's error.
      const isFull = [error, error instanceof Error && error.cause].some(
        (each) => codeOf(each) === TOO_MANY_CONNECTIONS,
      );
      if (!isFull || performance.now() - startedAt + pauseMs > untilMs) throw error;
      // Processes that were refused together do not come back together.
      await pause(pauseMs * (0.5 + Math.random() / 2));
    }
  }
}

/** The kind of pooler between this program and the server: it lends a client a connection for each session or transaction. */
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
    // A pooler announces numbers of its own.
    if (first.pid === first.announced) return 'none';
    for (let attempt = 0; attempt < POOLING_ATTEMPTS; attempt++) {
      // A pooler lends the connection that came back last: the one of this statement, unless the session keeps it.
      const own = await ask(client);
      // While the other one is in a transaction, the first gets its connection back only if that is its own.
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

/** Refuses to keep the queue behind such a pooler. */
export function refuseTransactionPooling(): never {
  throw new UsageError(
    'STATE_DATABASE_URL goes through a pooler in transaction mode, where the queue cannot listen for jobs',
    { remedy: 'Name the server itself or a pooler in session mode, or set REDIS_URL.' },
  );
}
