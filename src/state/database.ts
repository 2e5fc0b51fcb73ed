// The state database: one client, typed tables, and one place where its failures are named.
import { sql, type SQL } from 'drizzle-orm';
import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import { parse as parseArray } from 'postgres-array';
import type { ErrorCode } from '../errors/error-catalogue.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { readConnectionFault } from '../connections/postgres-faults.js';
import { connectPostgres, waitWhileFull } from '../connections/postgres-connection.js';
import { openCopies } from '../connections/postgres-copy.js';
import type { SettingText } from '../config/setting-text.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';

type Database = PostgresJsDatabase;

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
export type Queries = Omit<Database, '$client'>;

export type State = ReturnType<typeof openState>;

/**
 * Opens the state; `duty` is what the server lists its connections by. Nothing connects before the first query. Transactions wait for a free connection, so none may wait
 * inside for a query outside of it.
 */
export function openState({
  url,
  connections = 2,
  duty = 'state',
}: {
  url: SettingText;
  connections?: number;
  duty?: string;
}) {
  const client = connectPostgres(url, duty, { max: connections });
  for (const [type, read] of ARRAYS) client.options.parsers[type] = (text: string) => parseArray(text, read);
  const db = nameFailures(markParameters(drizzle(client)));
  // drizzle has made them text. Whoever needs microseconds asks for ::text.
  client.options.parsers[TIMESTAMPTZ] = (text: string) => new Date(text);
  const copies = openCopies(() => connectPostgres(url, 'plan'));
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

/** Lets drizzle mark the places of parameters unmistakably; see `writeParameters`. */
function markParameters(db: Database): Database {
  // Not in drizzle's published types.
  const { dialect } = db as unknown as { dialect: { escapeParam(at: number): string } };
  dialect.escapeParam = (at) => `${MARK}${at}${MARK}`;
  return db;
}

/**
 * A statement with its parameters as literals of unknown type, of which the server decides as it does of parameters. Without
 * prepared statements the driver would first ask it for the types, which is a round trip for each statement, and nothing
 * could be sent behind it meanwhile.
 */
function writeParameters(statement: string, parameters: readonly unknown[]): string {
  const literals = (parameters as readonly Value[]).map(literalOf);
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

/**
 * Makes every failure of a query, and of a transaction itself, a SlotsyncError: drizzle's errors hold the statement and
 * its values. What the callback of a transaction throws passes unchanged.
 */
function nameFailures<T extends Pick<Database, '_' | 'transaction'>>(db: T): T {
  const { session } = db._;
  const prepareQuery = session.prepareQuery.bind(session);
  session.prepareQuery = (...query) => {
    const [{ sql: statement, params: parameters }] = query;
    const prepared = prepareQuery(...query);
    const execute = prepared.execute.bind(prepared);
    prepared.execute = async (values) => {
      try {
        Object.assign(prepared, { queryString: writeParameters(statement, parameters), params: [] });
        return await waitWhileFull(() => execute(values));
      } catch (error) {
        throw asStateError(error);
      }
    };
    return prepared;
  };

  const transaction = db.transaction.bind(db);
  db.transaction = async (work, config) => {
    let thrownByWork: unknown;
    const begin = () =>
      transaction(async (tx) => {
        try {
          return await work(nameFailures(tx));
        } catch (error) {
          thrownByWork = error;
          throw error;
        }
      }, config);
    try {
      return await waitWhileFull(begin);
    } catch (error) {
      throw error === thrownByWork ? error : asStateError(error);
    }
  };
  return db;
}

/** PostgreSQL's codes of failures that an operator mends: each has a remedy of its own. */
const OWN_CODES: Readonly<Record<string, ErrorCode>> = { 42501: 'state_rights', 25006: 'state_read_only' };

/** Whether a statement of the state names a table that is not there. */
export const isNoTable = (error: unknown) =>
  error instanceof SlotsyncError && error.facts['sqlstate'] === '42P01';

/** For clients that are not the state's own: the failure as a SlotsyncError `state_…`. */
export function asStateError(thrown: unknown): unknown {
  if (thrown instanceof SlotsyncError) return thrown;
  // drizzle wraps the driver's error in one whose message holds the parameters.
  const error = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const code = codeOf(error);
  const fault = readConnectionFault(error);
  return new SlotsyncError(
    fault === undefined ? (OWN_CODES[code] ?? 'state_failed') : `state_${fault.kind}`,
    `the state database ${fault?.said ?? `could not answer: ${messageOf(error)}`}`,
    { facts: { sqlstate: code }, cause: error },
  );
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
