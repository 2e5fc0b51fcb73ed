// Every client of PostgreSQL is opened here, so that each is named at the server, connects in a bounded time, and uses
// the same reading of the address, whichever driver it is.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { codeOf, UsageError } from '../errors/errors.js';
import { endsWithin } from '../process/lifecycle.js';
import { TOO_MANY_CONNECTIONS } from './postgres-faults.js';
import { createSockets } from './postgres-socket.js';
import { createQuestions } from './server-questions.js';
import { closeSilentConnections, SILENCE } from './silent-connections.js';
import { watchStatements, type Statement } from './statements.js';
import { watchTransactions } from './transactions.js';
import { parsePostgresAddress } from './postgres-address.js';
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

/** For the request to cancel a statement, and the server's answer to it. */
const CANCEL_WITHIN_S = 1;

type ConnectionRules = Partial<typeof SILENCE> & {
  reconnects?: boolean;
  serverId?: () => string | undefined;
};

/**
 * Opens a client of postgres.js with one connection, unless `options` say otherwise. `duty` is what the server lists it
 * by. Nothing connects before the first query. Unless it `reconnects`, every statement fails after its connection is lost.
 * Connections that fall silent are closed; of the last argument this takes the times, and the server's identity where an
 * address may lead to several. Throws UsageError when the address cannot be used.
 */
export function connectPostgres<T extends Record<string, postgres.PostgresType> = {}>(
  address: SettingText,
  duty: string,
  options: postgres.Options<T> = {},
  { reconnects = true, serverId, ...times }: ConnectionRules = {},
) {
  const { client, sockets } = openClient(address, duty, options, reconnects);
  const statements = watchStatements(client, sockets.listen);
  watchTransactions(client);
  endStatementsWithClient(client, statements);
  const probe = () => openClient(address, 'probe').client;
  const watched = { statements, sockets, ...createQuestions(probe, nameOf(duty), serverId) };
  const unwatch = closeSilentConnections(watched, { ...SILENCE, ...times });
  const { end } = client;
  client.end = (how) => end(how).finally(unwatch);
  return client;
}

function openClient<T extends Record<string, postgres.PostgresType> = {}>(
  address: SettingText,
  duty: string,
  options: postgres.Options<T> = {},
  reconnects = true,
) {
  const { connection, ...others } = options;
  const server = serverOf(address);
  const sockets = createSockets(server, reconnects);
  const client = postgres<T>({
    ...server,
    socket: sockets.open,
    keep_alive: KEEP_ALIVE_MS / 1000,
    max: 1,
    connect_timeout: CONNECT_WITHIN_MS / 1000,
    idle_timeout: IDLE_MS / 1000,
    // A pooler may send the next statement over another connection, which does not know a prepared one.
    prepare: false,
    // Else each connection asks for the types of all arrays before its first statement. Few clients read arrays.
    fetch_types: false,
    onnotice: () => undefined,
    // Times are read as ISO, whatever the server, the database or the role prints.
    connection: { application_name: nameOf(duty), DateStyle: 'ISO, YMD', ...connection },
    ...others,
  } as postgres.Options<T>);
  return { client, sockets };
}

/**
 * `end` of the client cancels its statements that have not ended within the timeout. When a connection closes, PostgreSQL goes
 * on with the statement until it has something to send: a view may compute for hours.
 */
function endStatementsWithClient(client: postgres.Sql, underWay: ReadonlySet<Statement>): void {
  const { end } = client;
  client.end = async ({ timeout }: { timeout?: number } = {}) => {
    if (timeout === undefined) return end();
    const ended = end({ timeout: timeout + CANCEL_WITHIN_S });
    if (!(await endsWithin(ended, timeout * 1000))) for (const statement of underWay) statement.cancel();
    return ended;
  };
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
      // While the other one is in a transaction, the first gets its connection back only if that is its own.
      const isShared = await other.begin(async (tx) => {
        const { pid } = await ask(tx);
        return pid === first.pid || (await ask(client)).pid !== first.pid;
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
