// Reads the columns, types and rows of one source of the mirror. A source belongs to a stream or to the bookings.
import {
  keyExpression,
  toSourceColumns,
  type ColumnTypes,
  type Described,
  type SourceColumns,
} from './source-sql.js';
import { remedyFor } from '../errors/error-catalogue.js';
import { codeOf, messageOf, SlotsyncError } from '../errors/errors.js';
import { nearestName, suggestName } from '../text/nearest-name.js';
import { arrayLiteral, quoteLiteral } from '../text/sql-text.js';
import type { Row } from '../streams/config-schema.js';
import { templateColumns } from '../streams/external-id.js';
import { isShortenedKey } from '../streams/local-key.js';
import type { DeclaredSource, Source, Stream } from '../streams/stream.js';
import { keyColumns, readValue } from './column-values.js';
import { isKeyType, readsOwnText } from './mapped-text.js';
import { grantSelect } from './role-rights.js';
import { asMirrorError, isSourceFault, read } from './mirror-errors.js';
import {
  ColumnsChanged,
  type Ask,
  type ReadOnlySessions,
  type Reading,
  type WrittenFor,
} from './read-only-sessions.js';
import * as sourceSql from './source-sql.js';

export type NamedColumn = readonly [place: string, column: string];

export interface SourceRow {
  /** Local key of the row, or null if a part of the key is null. */
  key: string | null;
  /** Values by column name. All values are null if the row is too large to be read. */
  row: Row;
  computed: Record<string, unknown>;
  /** Size in bytes of a row that is too large to be read. Undefined for other rows. */
  bytes: number | undefined;
}

/** Maximum number of attempts to read a source whose columns change during the attempt. */
const MOST_TRIES = 3;

export type SourceReader = ReturnType<typeof createSourceReader>;

/** Creates the queries of a source in the given sessions. They throw SlotsyncError `mirror_…`. */
export function createSourceReader(sessions: ReadOnlySessions) {
  const known = new WeakMap<Source, Promise<SourceColumns & { writtenFor: WrittenFor }>>();

  function describe(source: Source) {
    const columns = readColumns(sessions, source);
    known.set(source, columns);
    columns.catch(() => known.delete(source));
    return columns;
  }

  const columnsOf = (source: Source) => known.get(source) ?? describe(source);

  /** Returns the declaration with the last known columns of its source. */
  const describedAs = async <D extends { source: Source }>(declared: D): Promise<Described<D>> => ({
    ...declared,
    ...(await columnsOf(declared.source)),
  });

  /**
   * Yields blocks of rows from the first statement that works. The statements are written for the last known columns of
   * the source. If the columns have changed, the statements are written again.
   */
  async function* readBlocks<D extends { source: Source }, T>(
    declared: D,
    statementsFor: (described: Described<D>) => readonly string[],
    run: (statement: string, reading: Reading) => AsyncIterable<T>,
  ): AsyncGenerator<T> {
    for (let tries = 1; ; tries++) {
      const { writtenFor, ...columns } = await columnsOf(declared.source);
      const statements = statementsFor({ ...declared, ...columns });
      try {
        const { rowSecurity } = declared.source;
        return yield* withFallback(statements, (statement) => run(statement, { rowSecurity, writtenFor }));
      } catch (error) {
        // Drops the cached columns after any error. A type may have been renamed, which the check of the columns does
        // not show.
        known.delete(declared.source);
        if (!(error instanceof ColumnsChanged) || tries === MOST_TRIES) throw error;
      }
    }
  }

  const select = <D extends { source: Source }, T extends object>(
    declared: D,
    statementsFor: (described: Described<D>) => readonly string[],
  ): AsyncGenerator<T[]> =>
    readBlocks(declared, statementsFor, async function* (statement, reading) {
      yield await sessions.query<T>(statement, reading);
    });

  return {
    describedAs,

    /** Yields blocks of result rows; the statements are tried as in `readBlocks`. */
    select,

    /** Yields blocks of COPY lines; statements are tried as in `readBlocks`. `before` runs before the first line. */
    copy: <D extends { source: Source }>(
      declared: D,
      statementsFor: (described: Described<D>) => readonly string[],
      before?: (ask: Ask) => Promise<void>,
    ): AsyncGenerator<string[]> =>
      readBlocks(declared, statementsFor, (statement, reading) =>
        sessions.copy(statement, { ...reading, before }),
      ),

    /** Returns faults of a source: why the source cannot be read, or what `faultsOf` finds in its columns. */
    async check(
      { source }: Pick<DeclaredSource, 'source'>,
      faultsOf: (types: ColumnTypes) => string[],
    ): Promise<string[]> {
      try {
        const { types } = await describe(source);
        return faultsOf(types);
      } catch (error) {
        if (isSourceFault(error))
          return [`from: ${messageOf(error)}${await suggest(sessions, source, error)}`];
        if (codeOf(error) !== 'mirror_row_security') throw error;
        return [`from: ${messageOf(error)}. ${remedyFor('mirror_row_security')}`];
      }
    },

    /** Returns rows by the first condition that works, each with the values of the SQL expressions as `computed`. */
    async readRows<D extends DeclaredSource>(
      declared: D,
      expressionsFor: (described: Described<D>) => Readonly<Record<string, string>>,
      conditionsFor: (described: Described<D>) => readonly string[],
    ): Promise<SourceRow[]> {
      let names: string[] = [];
      let types: ColumnTypes = new Map();
      const statementsFor = (described: Described<D>) => {
        const computed = {
          key: keyExpression(described),
          bytes: sourceSql.BYTES_TOO_MANY,
          ...expressionsFor(described),
        };
        [names, types] = [Object.keys(computed), described.types];
        return conditionsFor(described).map((condition) =>
          sourceSql.selectRows(declared, computed, condition),
        );
      };
      const rows = select<D, Row>(declared, statementsFor);
      return toSourceRows(await collect(rows), names, types);
    },
  };
}

async function readColumns(sessions: ReadOnlySessions, source: Source) {
  const statement = `SELECT * FROM ${sourceSql.relation(source)}`;
  const {
    columns,
    types: parameters,
    described,
  } = await read(() => sessions.describeReadable(statement, source));
  if (parameters.length > 0) throw new SlotsyncError('mirror_source', sourceSql.NO_PARAMETERS);
  refuseRepeated(columns.map(({ name }) => name));
  const oids = quoteLiteral(arrayLiteral(columns.map(({ type }) => String(type))));
  const types = await read(() =>
    sessions.query<{ oid: string; type: string }>(
      // Runs with the role's search path. `format_type` then adds the schema to a type name that the role would
      // resolve to another type.
      `SELECT oid::pg_catalog.text AS oid, pg_catalog.format_type(oid, -1) AS type FROM pg_catalog.pg_type
        WHERE oid OPERATOR(pg_catalog.=) ANY (${oids}::pg_catalog.oid[])`,
    ),
  );
  const typeNames = new Map(types.map(({ oid, type }) => [Number(oid), type]));
  const writtenFor = { source: statement, columns: described };
  return { ...toSourceColumns(columns, typeNames), writtenFor };
}

/** Returns a remedy that PostgreSQL does not name: the missing GRANT statements, or a table with a similar name. */
async function suggest(sessions: ReadOnlySessions, source: Source, fault: SlotsyncError): Promise<string> {
  if (fault.facts['sqlstate'] === '42501') {
    const [row] = await read(() =>
      sessions.ofCatalogue<{ role: string }>('SELECT quote_ident(current_user) AS role'),
    );
    return `; let the owner run: ${grantSelect([source], row?.role ?? '').join('; ')}`;
  }
  if (!('table' in source)) return '';
  const tables = await read(() =>
    sessions.ofCatalogue<{ name: string }>(`
      SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`),
  );
  const names = tables.map(({ name }) => name);
  const near = nearestName(source.table.join('.'), names);
  return near === undefined ? '' : `; did you mean ${near}?`;
}

/** Throws if two columns have the same name. The driver keeps only the later column, and SQL can name neither. */
function refuseRepeated(names: readonly string[]): void {
  const twice = new Set(names.filter((name, at) => names.indexOf(name) < at));
  if (twice.size === 0) return;
  const fault = `the query has ${[...twice].map((name) => `column ${name}`).join(' and ')} more than once; remove one, or rename it with AS`;
  throw new SlotsyncError('mirror_source', fault);
}

/** Returns SQL conditions that select these keys, the fastest first. */
export function keyConditions(
  described: Pick<Described<DeclaredSource>, 'key' | 'types'>,
  keys: readonly string[],
): string[] {
  const byText = sourceSql.matchKeysByText(described, arrayLiteral(keys));
  if (keys.some(isShortenedKey)) return [byText];
  const byColumns = sourceSql.matchKeys(described, keyColumns(described, keys));
  // The key texts already fit these types, so a failure must come from a row. The slower condition would not help.
  return described.key.every((name) => readsOwnText(described.types.get(name) ?? ''))
    ? [byColumns]
    : [byColumns, byText];
}

/**
 * Reads with the first condition. Falls back to the next condition if a key does not parse as its column's type, or the
 * type has no equality operator. After the first yielded block every error is final, since a retry would yield rows
 * twice.
 */
async function* withFallback<T>(
  conditions: readonly string[],
  readWhere: (condition: string) => AsyncIterable<T>,
): AsyncGenerator<T> {
  for (const [at, condition] of conditions.entries()) {
    let isBegun = false;
    try {
      for await (const block of readWhere(condition)) {
        isBegun = true;
        yield block;
      }
      return;
    } catch (error) {
      if (error instanceof ColumnsChanged) throw error;
      const reason = asMirrorError(error);
      if (isBegun || at === conditions.length - 1 || !isSourceFault(reason)) throw reason;
    }
  }
}

export async function collect<T>(blocks: AsyncIterable<readonly T[]>): Promise<T[]> {
  const all: (readonly T[])[] = [];
  for await (const block of blocks) all.push(block);
  return all.flat();
}

/** Returns a fault for each named column that does not exist, and for each key column that may hold several values. */
export function findMissingColumns(
  { key, externalId, fields }: DeclaredSource,
  others: readonly NamedColumn[],
  types: ColumnTypes,
): string[] {
  const named: readonly NamedColumn[] = [
    ...key.map((column) => ['key', column] as const),
    ...templateColumns(externalId).map((column) => ['externalId', column] as const),
    ...[...fields].flatMap(([fieldId, from]) =>
      typeof from === 'function'
        ? []
        : [[`fields['${fieldId}']`, typeof from === 'string' ? from : from.column] as const],
    ),
    ...others,
  ];
  return [...findAbsent(named, types), ...findUnfitKeys(key, types)];
}

/** Returns a fault for each key column that may hold several values: a reference to it would name each value. */
export function findUnfitKeys(key: readonly string[], types: ColumnTypes): string[] {
  return key.flatMap((column) => {
    const type = types.get(column) ?? '';
    if (isKeyType(type)) return [];
    return `key: column ${column} is ${type}, which can contain several values; convert it to text in a query`;
  });
}

/** Returns a fault for each field with the rule `add` whose column is not a list. */
export function findSingleValues({ fields, rules }: Stream, types: ColumnTypes): string[] {
  return [...rules].flatMap(([field, { add }]) => {
    const from = fields.get(field);
    const column = typeof from === 'object' ? from.column : from;
    const type = typeof column === 'string' ? types.get(column) : undefined;
    if (!add || type === undefined || type.endsWith('[]')) return [];
    return `fields['${field}']: \`add\` needs a list, but column ${String(column)} is ${type}; make it a list in a query, or use \`write\``;
  });
}

/** Returns a fault if the column of `graceDays` is neither a date nor a timestamp. */
export function findUntimed({ graceDays }: Stream, types: ColumnTypes): string[] {
  const [name, type] = typeof graceDays === 'object' ? [graceDays.column, types.get(graceDays.column)] : [];
  if (type === undefined || sourceSql.isTimeType(type)) return [];
  return [
    `graceDays.column: column ${name} is ${type}; name a date or a timestamp, or convert it in a query`,
  ];
}

/** Returns a fault for each named column that the source does not have. */
export function findAbsent(named: readonly NamedColumn[], types: ColumnTypes): string[] {
  return named
    .filter(([, column]) => !types.has(column))
    .map(
      ([place, column]) =>
        `${place}: there is no column ${column}; ${suggestName(column, [...types.keys()]) ?? 'the source has no columns'}`,
    );
}

/** Separates the computed columns from the source's own columns. All rows have the same columns as the first row. */
function toSourceRows(found: readonly Row[], names: readonly string[], types: ColumnTypes): SourceRow[] {
  const aliases = new Map(names.map((name) => [sourceSql.aliasOf(name), name]));
  const columns = Object.keys(found[0] ?? {}).filter((column) => !aliases.has(column));
  const typed = columns.map((column) => [column, types.get(column) ?? ''] as const);
  return found.map((given) => {
    const row: Record<string, unknown> = {};
    for (const [column, type] of typed) row[column] = readValue(given[column], type);
    const computed: Record<string, unknown> = {};
    for (const [alias, name] of aliases) computed[name] = given[alias];
    const { key, bytes } = computed as { key: string | null; bytes: number | null };
    return { key, row: row as Row, computed, bytes: bytes ?? undefined };
  });
}
