// Sessions at the mirror. Every reading is one statement, in a transaction of its own that is READ ONLY at the server and
// is rolled back at its end; its end is not waited for. So nothing remains of what PostgreSQL permits in such a transaction: large objects (before
// version 16), settings of the session, notifications. Nothing depends on the session, so a connection pooler may use
// another one for each transaction.
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

/** Connections of one process to the mirror. */
const MOST_CONNECTIONS = 2;

/**
 * Rows are read by their keys, a hundred at a time, which the index serves best on any disk of today. Not for what COPY
 * reads whole, where this setting would rule out sorting in parallel.
 */
const BY_KEYS = { random_page_cost: 1.1 };

/** For statements that name nothing but what PostgreSQL brings along: whatever the role's search path finds before it is not called. */
const OF_CATALOGUE = { search_path: ['pg_catalog', 'pg_temp'] };

/** How long a statement may take, unless the setting says otherwise. */
const STATEMENT_SECONDS = 1800;

/** How long a question beside a reading may take: the reading waits for it. */
const ASK_SECONDS = 60;

/** Lowers the limit of the server, of the database or of the role, and raises none. */
const limitStatements = (seconds: number) =>
  `SELECT pg_catalog.set_config('statement_timeout', '${seconds}s', true)
    WHERE pg_catalog.current_setting('statement_timeout')::interval OPERATOR(pg_catalog.<) '1 millisecond'
      OR pg_catalog.current_setting('statement_timeout')::interval OPERATOR(pg_catalog.>) '${seconds} seconds'`;

/**
 * Without it PostgreSQL goes on with a statement whose client is gone until it has something to send. Not before version 14, and not
 * where the system cannot tell whether a client is there: Windows refuses the setting.
 */
const END_WITH_CLIENT = `SELECT pg_catalog.set_config('client_connection_check_interval', '10s', true)
  WHERE pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 140000
    AND pg_catalog.version() OPERATOR(pg_catalog.!~*) 'windows|mingw|msvc|visual c'`;

const SELECT_ENCODING = `SELECT pg_catalog.current_setting('server_encoding') AS encoding`;

/** Advisory locks of a session outlive its transactions. */
const END = 'ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()';

/** The source that a statement was written for, `SELECT * …`, and its columns as `describe` returns them. */
export interface WrittenFor {
  source: string;
  columns: string;
}

/** Runs one more statement. Its failure leaves the transaction as it was. */
export type Ask = (statement: string) => Promise<postgres.RowList<postgres.Row[]>>;

/** Runs a statement of its transaction. */
type Query = <T extends object>(statement: string) => PromiseLike<readonly T[]>;

/** How a statement is run, beside its text. */
export interface Reading extends RowSecurity {
  writtenFor?: WrittenFor | undefined;
  /** Runs in the same transaction, before the first row is read, while the locks are held that keep the source as it is. */
  before?: ((ask: Ask) => Promise<void>) | undefined;
}

/** The columns of a source are no longer those that a statement was written for. Nothing of it was read. */
export class ColumnsChanged extends Error {
  override readonly name = 'ColumnsChanged';
}

export type ReadOnlySessions = ReturnType<typeof openReadOnlySessions>;

/** Opens the mirror's sessions. `statementSeconds`: the longest that a statement may take. Nothing connects before the first reading; errors are the driver's. */
export function openReadOnlySessions(url: SettingText, statementSeconds = STATEMENT_SECONDS) {
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
   * A session in a transaction. Its beginning is waited for: a statement behind a BEGIN that somebody cancelled would run outside
   * of it, and could write.
   */
  async function begin(settings: Settings): Promise<Session> {
    if (isClosed) throw connectionClosed();
    const kept = idle.splice(0).filter((session) => session.isAlive() || void end(session));
    let session = kept.pop();
    for (const session of kept) idle.push(session);
    return waitWhileFull(async () => {
      const rested = session;
      const begun = rested ?? openSession(url, statementSeconds);
      session = undefined; // once more, with another one
      open.add(begun);
      try {
        await begun.begin(settings);
        return begun;
      } catch (error) {
        await end(begun);
        // The driver closes a connection that has rested, maybe at this moment.
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

  /** Yields what `work` reads with one statement. A session whose statement may be under way still is ended with it. */
  async function* within<T>(
    { rowSecurity }: RowSecurity,
    settings: Settings,
    work: (client: postgres.Sql) => AsyncIterable<T>,
  ): AsyncGenerator<T> {
    await takeTurn();
    let session: Session | undefined;
    let isOver = false;
    try {
      // Off: PostgreSQL raises an error instead of hiding rows, which would look as if they were deleted.
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
    /** The rows of one statement. Throws ColumnsChanged. */
    query: <T extends object = postgres.Row>(
      statement: string,
      { writtenFor, ...security }: Reading = {},
    ): Promise<T[]> =>
      one(security, async (client) => [
        ...(await unlessChanged(client, writtenFor, client.unsafe<T[]>(statement, [], ONE_STATEMENT))),
      ]),

    /** The rows of one statement over the catalogue, which names nothing of anybody's own. */
    ofCatalogue: async <T extends object>(statement: string): Promise<T[]> => [
      ...(await together((query) => query<T>(statement))),
    ],

    /** Runs such statements in one transaction. A failure ends it. */
    together,

    /** Asks in a transaction of its own. */
    ask: <T>(security: RowSecurity, work: (ask: Ask) => Promise<T>): Promise<T> =>
      one(security, (client) => work(askWithin(client))),

    /** The columns that a statement returns, and the types of its parameters. It is parsed, and not executed. */
    async describe(statement: string, security: RowSecurity) {
      const { columns, types } = await one(security, (client) => client.unsafe(statement).describe());
      return { columns, types, described: describeColumns(columns) };
    },

    /** The same of a source, `SELECT * …`, and planned: rights on tables are looked at when a statement is about to run. */
    async describeReadable(source: string, security: RowSecurity) {
      try {
        const { columns } = await one(security, (client) => withoutRows(client, source));
        return { columns, types: [], described: describeColumns(columns) };
      } catch (error) {
        // It has parameters, or cannot run at present: a materialized view without data. The columns need no more than a plan.
        if (!(error instanceof postgres.PostgresError)) throw error;
      }
      return one(security, async (client) => {
        const { columns, types } = await client.unsafe(source).describe();
        if (types.length === 0) await client.unsafe(`EXPLAIN ${source}`, [], ONE_STATEMENT);
        return { columns, types, described: describeColumns(columns) };
      });
    },

    /**
     * The rows of a query as lines of `COPY … TO STDOUT`, in blocks. Holds a connection until it ends or its consumer
     * stops. COPY takes its snapshot before it waits for locks: behind a load that truncates the table it would find no
     * row. So the query is parsed first, which waits, and its locks are kept until the end of the transaction. Throws
     * ColumnsChanged before the first block.
     */
    copy: (query: string, { writtenFor, before, ...security }: Reading): AsyncGenerator<string[]> =>
      within(security, {}, async function* (client) {
        await unlessChanged(client, writtenFor, client.unsafe(query).describe());
        await before?.(askWithin(client));
        yield* copyOut(client, `COPY (${query}) TO STDOUT`);
      }),

    /** Ends the sessions, with what they are reading. */
    async close(): Promise<void> {
      isClosed = true;
      await Promise.all([...open].map((session) => session.client.end({ timeout: 0 })));
    },
  };
}

/** Asks within a transaction, for a short time, and undoes what the statement did to it: its settings, and its failure. */
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

/** A SELECT that reads nothing; sent when it is waited for. */
const withoutRows = (client: postgres.Sql, select: string) =>
  client.unsafe(`${select} LIMIT 0`, [], ONE_STATEMENT);

const describeColumns = (columns: readonly postgres.Column<string>[]) =>
  JSON.stringify(columns.map(({ name, type }) => [name, type]));

/**
 * The result of a statement, once the columns are seen to be those that it was written for. They are asked for ahead of it,
 * without waiting: no row is read for that, and its locks keep the columns as they are until the transaction ends.
 */
async function unlessChanged<T>(
  client: postgres.Sql,
  writtenFor: WrittenFor | undefined,
  statement: PromiseLike<T>,
): Promise<T> {
  if (!writtenFor) return statement;
  const asked = withoutRows(client, writtenFor.source).execute();
  const result = Promise.resolve(statement);
  result.catch(() => undefined); // after a failure of the first, this one says nothing
  const { columns } = await asked;
  if (describeColumns(columns) === writtenFor.columns) return result;
  await result.catch(() => undefined);
  throw new ColumnsChanged();
}

type Session = ReturnType<typeof openSession>;
type Settings = Readonly<Record<string, string | number | readonly string[]>>;

/** A session is a connection: when that is lost, so is the session: another connection would have no transaction. */
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

    /** Begins the transaction. */
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

    /** Ends it. It fails with the connection only, and then whatever is sent next fails as well. */
    rollBack: (): void => void client.unsafe(END).catch(() => undefined),
  };
}
