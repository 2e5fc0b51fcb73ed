// The state database: one client, typed tables, and one place where its failures are named.
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
import type postgres from 'postgres';
import { parse as parseArray } from 'postgres-array';
import type { ErrorCode } from '../errors/error-catalogue.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { readConnectionFault } from '../connections/postgres-faults.js';
import { connectPostgres, LONG_ANSWER_MS, waitWhileFull } from '../connections/postgres-connection.js';
import { openCopies } from '../connections/postgres-copy.js';
import { inTransaction, type Transaction } from '../connections/transactions.js';
import type { SettingText } from '../config/setting-text.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';

/** Longer than a statement of a large state takes, such as one over a million held records. */
const STATEMENT_SECONDS = 600;
/** For a statement over all rows of a table. */
export const LONG_STATEMENT_SECONDS = 1800;

/** Numbers of types in PostgreSQL. */
const TIMESTAMPTZ = 1184;
/** The lists that statements of the state answer, and what their elements are: text, names, and numbers of three types. */
const ARRAYS: readonly (readonly [type: number, element: (text: string) => unknown])[] = [
  [1009, String],
  [1003, String],
  [1007, Number],
  [1016, Number],
  [1022, Number],
];

/** A database or an open transaction in it. Whatever fails throws a SlotsyncError `state_…`. */
export type Queries = PgDatabase<PostgresJsQueryResultHKT>;

export type State = ReturnType<typeof openState>;

/**
 * Opens the state; `duty` is what the server lists its connections by. Nothing connects before the first query. Transactions wait for a free connection, so none may wait
 * inside for a query outside of it.
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
  /** How long a statement may take. The connection counts as silent a minute later. */
  statementSeconds?: number;
}) {
  const answerWithinMs = (statementSeconds + 60) * 1000;
  const client = connectPostgres(url, duty, { max: connections }, { answerWithinMs });
  for (const [type, read] of ARRAYS) client.options.parsers[type] = (text: string) => parseArray(text, read);
  // A statement that needs microseconds asks for ::text.
  client.options.parsers[TIMESTAMPTZ] = (text: string) => new Date(text);
  const db = queriesOver(client, answerWithinMs);
  const copies = openCopies(() => connectPostgres(url, 'plan', {}, { answerWithinMs: LONG_ANSWER_MS }));
  return {
    db,
    client,
    url,
    /** The lines of `COPY … TO STDOUT` in blocks, read over a connection beside those of the queries. */
    async *copy(statement: string): AsyncGenerator<string[]> {
      try {
        yield* copies.read(statement);
      } catch (error) {
        throw asStateError(error);
      }
    },
    /** Connects for the next `copy`. */
    prepareCopy: copies.prepare,
    close: async () => void (await Promise.all([client.end({ timeout: 2 }), copies.close()])),
  };
}

/** No statement can hold this character otherwise. */
const MARK = '\0';

/**
 * Statements are sent with their parameters as literals of unknown type, of which the server decides as it does of parameters.
 * Without prepared statements the driver would first ask it for the types, which is a round trip for each statement, and nothing
 * could be sent behind it meanwhile. So drizzle marks the places of parameters unmistakably.
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

/** A parameter as drizzle's columns and our statements give it. */
type Value = string | number | bigint | boolean | null | undefined;

const PARAMETER = new RegExp(`${MARK}(\\d+)${MARK}`, 'g');

function literalOf(value: Value): string {
  if (value === null || value === undefined) return 'NULL';
  const text = String(value);
  // It would end the statement in the middle.
  if (text.includes(MARK)) throw Object.assign(new Error('a text has the character 0'), { code: NO_TEXT });
  return quoteLiteral(text);
}

/** PostgreSQL's code of a text that it cannot store. */
const NO_TEXT = '22021';

type Sending = Pick<postgres.Sql, 'unsafe'>;

/** The place where statements are sent: any connection of a client, or a transaction. */
interface Place {
  send<T>(statement: (sql: Sending) => PromiseLike<T>): Promise<T>;
  begin<T>(work: (inner: Transaction) => Promise<T>): Promise<T>;
}

/**
 * The limits of a transaction at the server. One that rests for longer is ended, because its connection may be closed without
 * the server's hearing of it: otherwise its locks would stay for hours. A statement ends a minute before the client takes the
 * connection for silent, so that its failure has a reason. Nothing that counts as a query, before which a transaction may
 * still choose its isolation level.
 */
const limitTransaction = (answerWithinMs: number) =>
  `SET LOCAL idle_in_transaction_session_timeout = '1min'; SET LOCAL statement_timeout = ${answerWithinMs - 60_000}`;

/** drizzle's queries over a client. drizzle's own session would throw errors that hold the statement and its values. */
export function queriesOver(client: postgres.Sql, answerWithinMs = LONG_ANSWER_MS): Queries {
  const limits = limitTransaction(answerWithinMs);
  const session = new Session({
    send: (statement) => waitWhileFull(async () => statement(client)),
    begin: (work) =>
      waitWhileFull(() =>
        inTransaction(client, (tx) => {
          // Not waited for: it is sent together with the first statement.
          tx.send((within) => within.unsafe(limits)).catch(() => undefined);
          return work(tx);
        }),
      ),
  });
  return new PgDatabase(dialect, session, undefined);
}

/** Sends statements, and names their failures. */
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

  /** Names a failure of the transaction itself. An error of the work passes unchanged. */
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

/** A row of a typed query, whose fields are columns and expressions. */
function toObject(fields: SelectedFieldsOrdered, row: readonly unknown[]) {
  const values = fields.map(({ path, field }, at) => {
    const value = row[at];
    return [path.join('.'), value !== null && is(field, Column) ? field.mapFromDriverValue(value) : value];
  });
  return Object.fromEntries(values) as Record<string, unknown>;
}

/** PostgreSQL's code of a statement that took too long, or that somebody has cancelled. */
const CANCELLED = '57014';

/** PostgreSQL's codes of failures that an operator mends: each has a remedy of its own. */
const OWN_CODES: Readonly<Record<string, ErrorCode>> = {
  42501: 'state_rights',
  25006: 'state_read_only',
  [CANCELLED]: 'state_timeout',
};

/** Whether a statement of the state names a table that is not there. */
export const isNoTable = (error: unknown) =>
  error instanceof SlotsyncError && error.facts['sqlstate'] === '42P01';

/** The failure as a SlotsyncError `state_…`. `statement`: where it is known. */
export function asStateError(thrown: unknown, statement = ''): unknown {
  if (thrown instanceof SlotsyncError) return thrown;
  // drizzle wraps the driver's error in one whose message holds the parameters.
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

/** The kind of a statement and its tables, such as `UPDATE of runs, batches`. It holds no value. */
function describeStatement(statement: string): string {
  const [kind = 'SELECT'] =
    /\b(INSERT|UPDATE|DELETE)(?=( INTO| FROM)?\s+"?slotsync\b)/i.exec(statement) ?? [];
  const tables = [...statement.matchAll(/\bslotsync"?\."?(\w+)/g)].map(([, table]) => table);
  return [kind.toUpperCase(), [...new Set(tables)].join(', ')].filter(Boolean).join(' of ');
}

/** Runs a statement: `query<Row>(db)\`SELECT …\``. The rows are as it names its columns. */
export function query<T>(db: Pick<Queries, 'execute'>) {
  return async (strings: TemplateStringsArray, ...values: unknown[]) =>
    (await db.execute(sql(strings, ...values))) as unknown as T[] & { count: number };
}

/**
 * Runs statements as one transaction in a single round trip, which keeps no connection from others, and returns the rows of
 * each that answers any: SELECT, or with RETURNING. PostgreSQL carries out what one message holds as a whole or not at all.
 * None may need what another one answers.
 */
export async function queryTogether(
  db: Pick<Queries, 'execute'>,
  statements: readonly SQL[],
): Promise<Record<string, unknown>[][]> {
  if (statements.length === 0) return [];
  // The driver has one answer for statements without rows and the one before them: the first has rows, and is left out.
  const answers = (await db.execute(sql.join([sql`SELECT`, ...statements], sql.raw(';\n')))) as unknown;
  return 'command' in (answers as object) ? [] : (answers as Record<string, unknown>[][]).slice(1);
}

/** Runs a statement that always answers one row, as aggregates do. */
export function queryOne<T>(db: Pick<Queries, 'execute'>) {
  return async (...statement: Parameters<ReturnType<typeof query<T>>>) => {
    const [row] = await query<T>(db)(...statement);
    if (row === undefined) throw new Error('a statement of the state answered no row');
    return row;
  };
}

/** The time by which everything in the state is dated and due, since the clocks of hosts differ. In a transaction: its beginning. */
export async function readClock(db: Pick<Queries, 'execute'>): Promise<Date> {
  return (await queryOne<{ now: Date }>(db)`SELECT now() AS now`).now;
}

/** How long ago it was, by the clock of this host that dated it: an interval that is right also where the clock is not. */
export const agoOf = (time: Date, now = Date.now()) => `${Math.max(0, now - time.getTime())} milliseconds`;

/**
 * `= ANY (…)` of these texts or numbers. The planner sees how many there are and takes the index; for `IN (SELECT …)` over
 * a JSON list it would read the whole table.
 */
export function anyOf(values: readonly (string | number)[], type: 'text' | 'bigint' = 'text'): SQL {
  return sql`ANY (${arrayLiteral(values.map(String))}::${sql.raw(type)}[])`;
}

/** The rows of a table as `query` reads them: hashes are cast to text. */
export type RowOf<Table extends { $inferSelect: object }> = {
  [Column in keyof Table['$inferSelect']]: ReadAs<Table['$inferSelect'][Column]>;
};
type ReadAs<Value> = Value extends bigint ? string : Value;
