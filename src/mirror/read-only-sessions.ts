// Opens sessions at the mirror. Every query is one statement in its own READ ONLY transaction, which is rolled back
// without waiting. The rollback also undoes what PostgreSQL permits in such a transaction: large objects (before
// version 16), settings, notifications. No query depends on its session, so a pooler may use another connection for
// each transaction.
import postgres from 'postgres';
import { connectPostgres, waitWhileFull } from '../connections/postgres-connection.js';
import { describeEncoding, ENCODING, ENCODING_REMEDY } from '../connections/postgres-faults.js';
import { connectionClosed } from '../connections/postgres-socket.js';
import { copyOut, ONE_STATEMENT } from '../connections/postgres-copy.js';
import type { SettingText } from '../config/setting-text.js';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import type { RowSecurity } from '../streams/source.js';
import { quoteLiteral } from '../text/sql-text.js';
import { VALUE_TYPES } from './column-values.js';
import { SESSION_FORMATS } from './source-sql.js';

const MOST_CONNECTIONS = 2;

/**
 * Planner setting for queries of about a hundred keys, which an index serves best on any current disk. Not used for
 * COPY of a whole source, where it would prevent a parallel sort.
 */
const BY_KEYS = { random_page_cost: 1.1 };

/** Search path for catalogue statements. It prevents calls of functions with the same names in the role's own path. */
const OF_CATALOGUE = { search_path: ['pg_catalog', 'pg_temp'] };

const STATEMENT_SECONDS = 1800;

/** Timeout of a side statement, such as the query of the load. The main query of the transaction waits for it. */
const ASK_SECONDS = 60;

/** Returns SQL that sets the statement timeout, unless the server, the database or the role has a shorter timeout. */
const limitStatements = (seconds: number) =>
  `SELECT pg_catalog.set_config('statement_timeout', '${seconds}s', true)
    WHERE pg_catalog.current_setting('statement_timeout')::interval OPERATOR(pg_catalog.<) '1 millisecond'
      OR pg_catalog.current_setting('statement_timeout')::interval OPERATOR(pg_catalog.>) '${seconds} seconds'`;

/**
 * Makes PostgreSQL cancel a statement whose client has disconnected. Otherwise the statement runs until it has rows to
 * send. The setting needs PostgreSQL 14, and a server on Windows rejects it.
 */
const END_WITH_CLIENT = `SELECT pg_catalog.set_config('client_connection_check_interval', '10s', true)
  WHERE pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 140000
    AND pg_catalog.version() OPERATOR(pg_catalog.!~*) 'windows|mingw|msvc|visual c'`;

const SELECT_ENCODING = `SELECT pg_catalog.current_setting('server_encoding') AS encoding`;

/** Ends a transaction and releases advisory locks of the session, which would outlive the transaction. */
const END = 'ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()';

/** Source (`SELECT * …`) that a statement was written for, and its columns then, to detect a change of the columns. */
export interface WrittenFor {
  source: string;
  columns: string;
}

/** Runs a side statement in a query's transaction. If the statement fails, the transaction continues unchanged. */
export type Ask = (statement: string) => Promise<postgres.RowList<postgres.Row[]>>;

type Query = <T extends object>(statement: string) => PromiseLike<readonly T[]>;

export interface Reading extends RowSecurity {
  writtenFor?: WrittenFor | undefined;
  /** Called in the query's transaction before the first row is read. Locks already protect the source's columns. */
  before?: ((ask: Ask) => Promise<void>) | undefined;
}

/** Thrown if a source no longer has the columns that a statement was written for. No row was returned. */
export class ColumnsChanged extends Error {
  override readonly name = 'ColumnsChanged';
}

export type ReadOnlySessions = ReturnType<typeof openReadOnlySessions>;

/** Opens the mirror's sessions; the first query connects. Throws the driver's errors. */
export function openReadOnlySessions(url: SettingText, statementSeconds = STATEMENT_SECONDS) {
  const { within, close } = openPool(url, statementSeconds);

  async function one<T>(
    security: RowSecurity,
    work: (client: postgres.Sql) => PromiseLike<T>,
    settings: Settings = BY_KEYS,
  ): Promise<T> {
    const results = within(security, settings, async function* (client) {
      yield await work(client);
    });
    let result: T | undefined;
    for await (result of results);
    return result as T;
  }

  const together = <T>(work: (query: Query) => PromiseLike<T>): Promise<T> =>
    one({}, (client) => work((statement) => client.unsafe(statement, [], ONE_STATEMENT)), OF_CATALOGUE);

  return {
    /** Returns the rows of one statement. Throws ColumnsChanged if the source's columns have changed. */
    query: <T extends object = postgres.Row>(
      statement: string,
      { writtenFor, ...security }: Reading = {},
    ): Promise<T[]> =>
      one(security, async (client) => [
        ...(await unlessChanged(client, writtenFor, client.unsafe<T[]>(statement, [], ONE_STATEMENT))),
      ]),

    /** Returns the rows of one statement that reads only PostgreSQL's catalogue. */
    ofCatalogue: async <T extends object>(statement: string): Promise<T[]> => [
      ...(await together((query) => query<T>(statement))),
    ],

    /** Runs several catalogue statements in one transaction. A failure ends the transaction. */
    together,

    /** Runs `work` in a transaction. Its argument runs one side statement with a short timeout. */
    ask: <T>(security: RowSecurity, work: (ask: Ask) => Promise<T>): Promise<T> =>
      one(security, (client) => work(askWithin(client))),

    /** Returns the types of a statement's parameters. PostgreSQL parses the statement, but does not run it. */
    parametersOf: (statement: string, security: RowSecurity): Promise<number[]> =>
      one(security, async (client) => (await client.unsafe(statement).describe()).types),

    /**
     * Returns the columns and parameter types of a source (`SELECT * …`). PostgreSQL checks the rights on its tables
     * only when a statement is planned or run, so the source is also read without rows, or planned.
     */
    async describeReadable(source: string, security: RowSecurity) {
      try {
        const { columns } = await one(security, (client) => withoutRows(client, source));
        return { columns, types: [], described: describeColumns(columns) };
      } catch (error) {
        // The statement has parameters or cannot run now, for example on a materialized view without data. A plan is
        // enough.
        if (!(error instanceof postgres.PostgresError)) throw error;
      }
      return one(security, async (client) => {
        const { columns, types } = await client.unsafe(source).describe();
        if (types.length === 0) await client.unsafe(`EXPLAIN ${source}`, [], ONE_STATEMENT);
        return { columns, types, described: describeColumns(columns) };
      });
    },

    /**
     * Yields the rows of a query as lines of `COPY … TO STDOUT`, in blocks. Holds a connection until the consumer
     * stops. Throws ColumnsChanged before the first block.
     *
     * COPY takes its snapshot before it waits for locks. After a load that truncates the table, COPY would find no row.
     * Therefore the query is parsed first: parsing waits for the locks, and the transaction keeps them.
     */
    copy: (query: string, { writtenFor, before, ...security }: Reading): AsyncGenerator<string[]> =>
      within(security, {}, async function* (client) {
        await unlessChanged(client, writtenFor, client.unsafe(query).describe());
        await before?.(askWithin(client));
        yield* copyOut(client, `COPY (${query}) TO STDOUT`);
      }),

    close,
  };
}

/** Opens the few sessions that all queries share. A query waits for its turn, and takes an idle session if there is one. */
function openPool(url: SettingText, statementSeconds: number) {
  const idle: Session[] = [];
  const open = new Set<Session>();
  const waiting: (() => void)[] = [];
  let taken = 0;
  let isClosed = false;

  async function takeTurn(): Promise<void> {
    if (taken < MOST_CONNECTIONS) taken++;
    else await new Promise<void>((resolve) => waiting.push(resolve));
  }

  /**
   * Returns a session with an open transaction. The BEGIN is awaited: a statement sent after a cancelled BEGIN would
   * run outside a transaction and could write.
   */
  async function begin(settings: Settings): Promise<Session> {
    if (isClosed) throw connectionClosed();
    const kept = idle.splice(0).filter((session) => session.isAlive() || void end(session));
    let session = kept.pop();
    for (const session of kept) idle.push(session);
    return waitWhileFull(async () => {
      const rested = session;
      const begun = rested ?? openSession(url, statementSeconds);
      session = undefined; // a retry opens another session
      open.add(begun);
      try {
        await begun.begin(settings);
        return begun;
      } catch (error) {
        await end(begun);
        // The driver may have closed the idle session just before its reuse. The transaction then begins in another
        // session.
        if (rested && codeOf(error) === 'CONNECTION_CLOSED') return begin(settings);
        throw error;
      }
    });
  }

  function giveBack(): void {
    const next = waiting.shift();
    if (next) next();
    else taken--;
  }

  async function end(session: Session): Promise<void> {
    open.delete(session);
    await session.client.end({ timeout: 0 });
  }

  /** Yields the results of `work` within one transaction. A session whose statement may still run is closed. */
  async function* within<T>(
    { rowSecurity }: RowSecurity,
    settings: Settings,
    work: (client: postgres.Sql) => AsyncIterable<T>,
  ): AsyncGenerator<T> {
    await takeTurn();
    let session: Session | undefined;
    let isOver = false;
    try {
      // With `off`, PostgreSQL raises an error instead of hiding rows. Hidden rows would look like deleted rows.
      const row_security = rowSecurity === 'filtered' ? 'on' : 'off';
      session = await begin({ ...SESSION_FORMATS, ...settings, row_security });
      yield* work(session.client);
      isOver = true;
    } catch (error) {
      isOver = error instanceof postgres.PostgresError || error instanceof ColumnsChanged;
      throw error;
    } finally {
      if (session && isOver) {
        session.rollBack();
        idle.push(session);
      } else if (session) await end(session);
      giveBack();
    }
  }

  async function close(): Promise<void> {
    isClosed = true;
    await Promise.all([...open].map((session) => session.client.end({ timeout: 0 })));
  }

  return { within, close };
}

/** Returns a function that runs side statements with a short timeout. A savepoint undoes settings and failures. */
const askWithin =
  (client: postgres.Sql): Ask =>
  async (statement) => {
    await client.unsafe(`SAVEPOINT slotsync_ask; ${limitStatements(ASK_SECONDS)}`);
    try {
      return await client.unsafe(statement, [], ONE_STATEMENT);
    } finally {
      await client.unsafe('ROLLBACK TO SAVEPOINT slotsync_ask');
    }
  };

/** Prepares a SELECT that returns no rows. The driver sends it only when it is awaited or executed. */
const withoutRows = (client: postgres.Sql, select: string) =>
  client.unsafe(`${select} LIMIT 0`, [], ONE_STATEMENT);

const describeColumns = (columns: readonly postgres.Column<string>[]) =>
  JSON.stringify(columns.map(({ name, type }) => [name, type]));

/**
 * Returns the result of a statement, or throws ColumnsChanged if the source has other columns than the statement was
 * written for. A query for the columns is sent first and not awaited. It reads no row, and its locks keep the columns
 * unchanged until the transaction ends.
 */
async function unlessChanged<T>(
  client: postgres.Sql,
  writtenFor: WrittenFor | undefined,
  statement: PromiseLike<T>,
): Promise<T> {
  if (!writtenFor) return statement;
  const asked = withoutRows(client, writtenFor.source).execute();
  const result = Promise.resolve(statement);
  result.catch(() => undefined); // the failure of the column query is thrown instead
  const { columns } = await asked;
  if (describeColumns(columns) === writtenFor.columns) return result;
  await result.catch(() => undefined);
  throw new ColumnsChanged();
}

type Session = ReturnType<typeof openSession>;
type Settings = Readonly<Record<string, string | number | readonly string[]>>;

/** Opens a session. The session ends with its connection, because a new connection would have no transaction. */
function openSession(url: SettingText, statementSeconds: number) {
  let isAlive = true;
  const client = connectPostgres(
    url,
    'mirror',
    {
      max: 1,
      max_lifetime: null,
      types: VALUE_TYPES,
      onclose: () => void (isAlive = false),
    },
    { reconnects: false, answerWithinMs: (statementSeconds + 60) * 1000 },
  ) as unknown as postgres.Sql;

  return {
    client,
    isAlive: () => isAlive,

    async begin(settings: Settings): Promise<void> {
      const set = Object.entries(settings).map(
        ([name, value]) =>
          `SET LOCAL ${name} = ${[value]
            .flat()
            .map((one) => quoteLiteral(String(one)))
            .join(', ')}`,
      );
      const begin = [
        'BEGIN READ ONLY',
        ...set,
        limitStatements(statementSeconds),
        END_WITH_CLIENT,
        SELECT_ENCODING,
      ].join('; ');
      const results = (await client.unsafe(begin)) as unknown as readonly { encoding: string }[][];
      const encoding = results.at(-1)?.[0]?.encoding;
      if (encoding !== undefined && encoding !== ENCODING)
        throw new SlotsyncError('mirror_refused', `the mirror ${describeEncoding(encoding)}`, {
          remedy: ENCODING_REMEDY,
        });
    },

    /** Rolls back without waiting. This fails only with the connection, and then the next statement fails too. */
    rollBack: (): void => void client.unsafe(END).catch(() => undefined),
  };
}
