// Connection to the state database: one client, typed tables, and the translation of errors to SlotsyncError.
import type postgres from 'postgres';
import { Column, is, sql, type Query, type SQL } from 'drizzle-orm';
import {
  PgDatabase,
  PgDialect,
  PgPreparedQuery,
  PgSession,
  PgTransaction,
  type PgTransactionConfig,
  type PreparedQueryConfig,
  type SelectedFieldsOrdered,
} from 'drizzle-orm/pg-core';
import type { PostgresJsQueryResultHKT } from 'drizzle-orm/postgres-js';
import { parse as parseArray } from 'postgres-array';
import type { ErrorCode } from '../errors/error-catalogue.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { readConnectionFault } from '../connections/postgres-faults.js';
import {
  connectPostgres,
  LONG_ANSWER_MS,
  waitWhileFull,
  inTransaction,
  type Transaction,
} from '../connections/postgres-connection.js';
import { openCopies } from '../connections/postgres-copy.js';
import type { SettingText } from '../config/setting-text.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';

/** Statement timeout. Exceeds the longest statement of a large state, such as one over a million held records. */
const STATEMENT_SECONDS = 600;
/** Statement timeout for statements that read all rows of a table. */
export const LONG_STATEMENT_SECONDS = 1800;

const TIMESTAMPTZ = 1184;
/** OIDs of array types that queries return (text, name, three integer types), and parsers of their elements. */
const ARRAYS: readonly (readonly [type: number, element: (text: string) => unknown])[] = [
  [1009, String],
  [1003, String],
  [1007, Number],
  [1016, Number],
  [1022, Number],
];

/** Database or open transaction. All of its failures throw a SlotsyncError with a code `state_…`. */
export type Queries = PgDatabase<PostgresJsQueryResultHKT>;

export type State = ReturnType<typeof openState>;

/**
 * Opens the state. It connects at the first query. `duty` is part of the connection's `application_name`. A transaction
 * must not wait for a query outside of it, because transactions may occupy all connections.
 */
export function openState({
  url,
  connections = 2,
  duty = 'state',
  statementSeconds = STATEMENT_SECONDS,
}: {
  url: SettingText;
  connections?: number;
  duty?: string;
  /** Maximum duration of a statement. One minute later, the client treats the connection as broken. */
  statementSeconds?: number;
}) {
  const answerWithinMs = (statementSeconds + 60) * 1000;
  const client = connectPostgres(url, duty, { max: connections }, { answerWithinMs });
  for (const [type, read] of ARRAYS) client.options.parsers[type] = (text: string) => parseArray(text, read);
  // A Date has milliseconds. Queries that need microseconds select `::text`.
  client.options.parsers[TIMESTAMPTZ] = (text: string) => new Date(text);
  const db = queriesOver(client, answerWithinMs);
  const copies = openCopies(() => connectPostgres(url, 'plan', {}, { answerWithinMs: LONG_ANSWER_MS }));
  return {
    db,
    client,
    url,
    /** Yields the lines of `COPY … TO STDOUT` in blocks, read over a separate connection. */
    async *copy(statement: string): AsyncGenerator<string[]> {
      try {
        yield* copies.read(statement);
      } catch (error) {
        throw asStateError(error);
      }
    },
    prepareCopy: copies.prepare,
    close: async () => void (await Promise.all([client.end({ timeout: 2 }), copies.close()])),
  };
}

/** Marks parameters in a statement. No statement can contain this character otherwise. */
const MARK = '\0';

/**
 * Inserts parameters as literals of unknown type, whose types PostgreSQL infers. With real parameters, the driver would
 * first ask for their types. That costs a round trip for each statement and prevents pipelining.
 */
class Dialect extends PgDialect {
  override escapeParam(at: number): string {
    return `${MARK}${at}${MARK}`;
  }
}
const dialect = new Dialect();

function writeParameters({ sql: statement, params }: Query): string {
  const literals = (params as readonly Value[]).map(literalOf);
  return statement.replace(PARAMETER, (_, at: string) => literals[Number(at)] ?? 'NULL');
}

type Value = string | number | bigint | boolean | null | undefined;

const PARAMETER = new RegExp(`${MARK}(\\d+)${MARK}`, 'g');

function literalOf(value: Value): string {
  if (value === null || value === undefined) return 'NULL';
  const text = String(value);
  // The character would end the statement.
  if (text.includes(MARK))
    throw Object.assign(new Error('the text contains the character NUL (0), which PostgreSQL cannot store'), {
      code: NO_TEXT,
    });
  return quoteLiteral(text);
}

/** SQLSTATE of a text that PostgreSQL cannot store. */
const NO_TEXT = '22021';

type Sending = Pick<postgres.Sql, 'unsafe'>;

/** Target of statements: any connection of a client, or a transaction. */
interface Place {
  send<T>(statement: (sql: Sending) => PromiseLike<T>): Promise<T>;
  begin<T>(work: (inner: Transaction) => Promise<T>): Promise<T>;
}

/**
 * Returns the statement that limits a transaction at the server. An idle transaction ends after a minute, because its
 * client may be gone unnoticed and its locks would remain for hours. The statement timeout is a minute shorter than the
 * client's, so that the failure has a reason. `SET LOCAL` is no query, so the isolation level can still be set.
 */
const limitTransaction = (answerWithinMs: number) =>
  `SET LOCAL idle_in_transaction_session_timeout = '1min'; SET LOCAL statement_timeout = ${answerWithinMs - 60_000}`;

/** Returns a Drizzle database over a client. Drizzle's own session would throw errors that contain values. */
export function queriesOver(client: postgres.Sql, answerWithinMs = LONG_ANSWER_MS): Queries {
  const limits = limitTransaction(answerWithinMs);
  const session = new Session({
    send: (statement) => waitWhileFull(async () => statement(client)),
    begin: (work) =>
      waitWhileFull(() =>
        inTransaction(client, (tx) => {
          // Not awaited, so that the driver sends this statement together with the first one.
          tx.send((within) => within.unsafe(limits)).catch(() => undefined);
          return work(tx);
        }),
      ),
  });
  return new PgDatabase(dialect, session, undefined);
}

class Session extends PgSession<PostgresJsQueryResultHKT> {
  readonly #place: Place;

  constructor(place: Place) {
    super(dialect);
    this.#place = place;
  }

  override prepareQuery<T extends PreparedQueryConfig>(
    query: Query,
    fields: SelectedFieldsOrdered | undefined,
  ): PgPreparedQuery<T> {
    const { send } = this.#place;
    return new Statement<T>(query, async (text) => {
      if (!fields) return send((sql) => sql.unsafe(text));
      const rows = await send((sql) => sql.unsafe(text).values());
      return rows.map((row) => toObject(fields, row));
    });
  }

  /** Runs a transaction. Translates its own failures to SlotsyncError, but not errors that `work` throws. */
  override async transaction<T>(
    work: (tx: OpenTransaction) => Promise<T>,
    config?: PgTransactionConfig,
  ): Promise<T> {
    let thrownByWork: unknown;
    try {
      return await this.#place.begin(async ({ send, savepoint }) => {
        try {
          const tx = new OpenTransaction(new Session({ send, begin: savepoint }));
          if (config) await tx.setTransaction(config);
          return await work(tx);
        } catch (error) {
          thrownByWork = error;
          throw error;
        }
      });
    } catch (error) {
      throw error === thrownByWork ? error : asStateError(error);
    }
  }
}

class OpenTransaction extends PgTransaction<PostgresJsQueryResultHKT> {
  override readonly transaction: Session['transaction'];

  constructor(session: Session) {
    super(dialect, session, undefined);
    this.transaction = (work) => session.transaction(work);
  }
}

class Statement<T extends PreparedQueryConfig> extends PgPreparedQuery<T> {
  readonly #send: (text: string) => Promise<unknown>;

  constructor(query: Query, send: (text: string) => Promise<unknown>) {
    super(query, undefined, undefined);
    this.#send = send;
  }

  override async execute(): Promise<T['execute']> {
    try {
      return await this.#send(writeParameters(this.query));
    } catch (error) {
      throw asStateError(error, this.query.sql);
    }
  }
}

function toObject(fields: SelectedFieldsOrdered, row: readonly unknown[]) {
  const values = fields.map(({ path, field }, at) => {
    const value = row[at];
    return [path.join('.'), value !== null && is(field, Column) ? field.mapFromDriverValue(value) : value];
  });
  return Object.fromEntries(values) as Record<string, unknown>;
}

/** SQLSTATE of a statement that was cancelled, by a timeout or by a person. */
const CANCELLED = '57014';

/** SQLSTATEs of failures that an operator can correct, with our error codes, which have their own remedies. */
const OWN_CODES: Readonly<Record<string, ErrorCode>> = {
  42501: 'state_rights',
  25006: 'state_read_only',
  [CANCELLED]: 'state_timeout',
};

export const isNoTable = (error: unknown) =>
  error instanceof SlotsyncError && error.facts['sqlstate'] === '42P01';

/** SQLSTATEs of a missing table, column and function. */
const ABSENT: unknown[] = ['42P01', '42703', '42883'];

/** Executes a query. Returns undefined if an older schema lacks a table, column or function of the query. */
export async function ifPresent<T>(db: Queries, ask: (tx: Queries) => Promise<T>): Promise<T | undefined> {
  try {
    return await db.transaction(ask);
  } catch (error) {
    if (error instanceof SlotsyncError && ABSENT.includes(error.facts['sqlstate'])) return undefined;
    throw error;
  }
}

/** Translates a failure to a SlotsyncError with a code `state_…`. `statement` is the failed statement, if known. */
export function asStateError(thrown: unknown, statement = ''): unknown {
  if (thrown instanceof SlotsyncError) return thrown;
  // Drizzle wraps the driver's error in an error whose message contains the parameters.
  const error = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const code = codeOf(error);
  const fault = readConnectionFault(error);
  const failed =
    code === CANCELLED ? `ended a statement (${describeStatement(statement)})` : 'could not answer';
  return new SlotsyncError(
    fault === undefined ? (OWN_CODES[code] ?? 'state_failed') : `state_${fault.kind}`,
    `the state database ${fault?.said ?? `${failed}: ${messageOf(error)}`}`,
    { facts: { sqlstate: code }, cause: error },
  );
}

/** Returns the kind and tables of a statement, without values. Example: `UPDATE of runs, batches`. */
function describeStatement(statement: string): string {
  const [kind = 'SELECT'] =
    /\b(INSERT|UPDATE|DELETE)(?=( INTO| FROM)?\s+"?slotsync\b)/i.exec(statement) ?? [];
  const tables = [...statement.matchAll(/\bslotsync"?\."?(\w+)/g)].map(([, table]) => table);
  return [kind.toUpperCase(), [...new Set(tables)].join(', ')].filter(Boolean).join(' of ');
}

/** Executes a statement: `query<Row>(db)\`SELECT …\``. Its column aliases name the fields of a row. */
export function query<T>(db: Pick<Queries, 'execute'>) {
  return async (strings: TemplateStringsArray, ...values: unknown[]) =>
    (await db.execute(sql(strings, ...values))) as unknown as T[];
}

/** Executes a statement. Returns the number of rows that it changed or locked. */
export function queryCount(db: Pick<Queries, 'execute'>) {
  return async (...statement: Ask<unknown>): Promise<number> =>
    ((await query(db)(...statement)) as unknown as { count: number }).count;
}

/**
 * Executes statements as one transaction in a single round trip. Returns the rows of each statement that has rows. No
 * statement can use the result of another.
 */
export async function queryTogether(
  db: Pick<Queries, 'execute'>,
  statements: readonly SQL[],
): Promise<Record<string, unknown>[][]> {
  if (statements.length === 0) return [];
  // The driver merges a result without rows into the previous result. The leading `SELECT` avoids that for the first
  // statement, and its result is removed.
  const answers = (await db.execute(sql.join([sql`SELECT`, ...statements], sql.raw(';\n')))) as unknown;
  return 'command' in (answers as object) ? [] : (answers as Record<string, unknown>[][]).slice(1);
}

type Ask<T> = Parameters<ReturnType<typeof query<T>>>;

/** Executes a statement. Returns its first row, or undefined. */
export function queryFirst<T>(db: Pick<Queries, 'execute'>) {
  return async (...statement: Ask<T>): Promise<T | undefined> => (await query<T>(db)(...statement))[0];
}

/** Executes a statement that always returns one row, such as an aggregate. */
export function queryOne<T>(db: Pick<Queries, 'execute'>) {
  return async (...statement: Ask<T>): Promise<T> => {
    const row = await queryFirst<T>(db)(...statement);
    if (row === undefined) throw new Error('a statement of the state returned no row');
    return row;
  };
}

/** Executes a statement with one column. Returns the value of each row. */
export function queryColumn<T>(db: Pick<Queries, 'execute'>) {
  return async (...statement: Ask<Record<string, T>>): Promise<T[]> =>
    (await query<Record<string, T>>(db)(...statement)).flatMap((row) => Object.values(row));
}

/** Executes a statement that always returns one row with one column, such as a count. Returns the value. */
export function queryValue<T>(db: Pick<Queries, 'execute'>) {
  return async (...statement: Ask<Record<string, T>>): Promise<T> =>
    Object.values(await queryOne<Record<string, T>>(db)(...statement))[0] as T;
}

/** Returns the database's time, which dates everything in the state. In a transaction, this is its start. */
export const readClock = (db: Pick<Queries, 'execute'>) => queryValue<Date>(db)`SELECT now()`;

/**
 * Returns the age of a time as an interval. Both times are by this host's clock, so the age is correct even if the
 * clock is wrong.
 */
export const agoOf = (time: Date, now = Date.now()) => `${Math.max(0, now - time.getTime())} milliseconds`;

/**
 * Returns `ANY (…)` for a list of values, for which PostgreSQL uses the index. For `IN (SELECT …)` over a JSON list, it
 * would scan the table.
 */
export function anyOf(values: readonly (string | number)[], type: 'text' | 'bigint' = 'text'): SQL {
  return sql`ANY (${arrayLiteral(values.map(String))}::${sql.raw(type)}[])`;
}

export type RowOf<Table extends { $inferSelect: object }> = {
  [Column in keyof Table['$inferSelect']]: ReadAs<Table['$inferSelect'][Column]>;
};
type ReadAs<Value> = Value extends bigint ? string : Value;

/** Maximum wait for a lock, because a waiting query occupies one of the state's few connections. */
const LONGEST_LOCK_MS = 1000;

/**
 * Calls `read` in a new transaction with a single snapshot. `limitMs` is a statement timeout, so that queries for
 * people and monitoring do not delay the work.
 */
export async function inSnapshot<T>(
  db: Queries,
  read: (tx: Queries) => Promise<T>,
  { limitMs }: { limitMs?: number | undefined } = {},
): Promise<T> {
  return db.transaction(async (tx) => {
    // PostgreSQL accepts `SET TRANSACTION` only before the first query.
    await tx.execute(
      sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; ${limitingReading(limitMs)}`,
    );
    return read(tx);
  });
}

/** Disables JIT for the transaction. With `limitMs`, also limits its statements and its waiting for locks. */
export const limitReading = async (tx: Queries, limitMs?: number): Promise<unknown> =>
  tx.execute(limitingReading(limitMs));

function limitingReading(limitMs: number | undefined): SQL {
  // JIT compilation takes longer than the queries, which look up many single records.
  const always = sql`SELECT set_config('jit', 'off', true)`;
  if (limitMs === undefined) return always;
  return sql`${always}, set_config('statement_timeout', ${String(limitMs)}, true),
    set_config('lock_timeout', ${String(Math.min(limitMs, LONGEST_LOCK_MS))}, true)`;
}
