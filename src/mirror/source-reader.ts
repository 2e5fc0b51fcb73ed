// Reads one source of the mirror, that of a stream or that of the bookings: its columns and their types, and its rows.
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

/** A column, and the place in the declaration that names it. */
export type NamedColumn = readonly [place: string, column: string];

export interface SourceRow {
  /** Null when a part of the key is. */
  key: string | null;
  /** Every column is null where `bytes` has a value. */
  row: Row;
  computed: Record<string, unknown>;
  /** The size of a row that is too large to be read; undefined for the others. */
  bytes: number | undefined;
}

/** Times that a reading is begun while the columns of its source change. */
const MOST_TRIES = 3;

export type SourceReader = ReturnType<typeof createSourceReader>;

/** Readings in the given sessions. Errors are SlotsyncError `mirror_…`. */
export function createSourceReader(sessions: ReadOnlySessions) {
  const known = new WeakMap<Source, Promise<SourceColumns & { writtenFor: WrittenFor }>>();

  function describe(source: Source) {
    const columns = readColumns(source);
    known.set(source, columns);
    columns.catch(() => known.delete(source));
    return columns;
  }

  async function readColumns(source: Source) {
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
        // With the search path of the role: a name by which the role finds another type is printed with its schema.
        `SELECT oid::pg_catalog.text AS oid, pg_catalog.format_type(oid, -1) AS type FROM pg_catalog.pg_type
          WHERE oid OPERATOR(pg_catalog.=) ANY (${oids}::pg_catalog.oid[])`,
      ),
    );
    const typeNames = new Map(types.map(({ oid, type }) => [Number(oid), type]));
    const writtenFor = { source: statement, columns: described };
    return { ...toSourceColumns(columns, typeNames), writtenFor };
  }

  const columnsOf = (source: Source) => known.get(source) ?? describe(source);

  /** The declaration with the columns of its source as they were last seen. */
  const describedAs = async <D extends { source: Source }>(declared: D): Promise<Described<D>> => ({
    ...declared,
    ...(await columnsOf(declared.source)),
  });

  /**
   * Blocks of a reading with the first statement that works. Statements are written for the columns as they were last seen,
   * and written anew when the columns are others by now.
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
        // A type may have another name by now, which its column does not show.
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

  /** The way out of a fault, where PostgreSQL's words do not name it. */
  async function suggest(source: Source, fault: SlotsyncError): Promise<string> {
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

  return {
    describedAs,

    /** Rows of the statements; see `readBlocks`. */
    select,

    /** The same as blocks of lines of COPY. `before`: runs in the same transaction, before the first of them. */
    copy: <D extends { source: Source }>(
      declared: D,
      statementsFor: (described: Described<D>) => readonly string[],
      before?: (ask: Ask) => Promise<void>,
    ): AsyncGenerator<string[]> =>
      readBlocks(declared, statementsFor, (statement, reading) =>
        sessions.copy(statement, { ...reading, before }),
      ),

    /** Faults of the source: that it cannot be read, or those that `faultsOf` finds in its columns as they are now. */
    async check(
      { source }: Pick<DeclaredSource, 'source'>,
      faultsOf: (types: ColumnTypes) => string[],
    ): Promise<string[]> {
      try {
        const { types } = await describe(source);
        return faultsOf(types);
      } catch (error) {
        if (isSourceFault(error)) return [`from: ${messageOf(error)}${await suggest(source, error)}`];
        if (codeOf(error) !== 'mirror_row_security') throw error;
        return [`from: ${messageOf(error)}. ${remedyFor('mirror_row_security')}`];
      }
    },

    /** Rows that a condition selects, the first that works; each with the SQL expressions. */
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

/** A row has only the later one of two columns with the same name, and no statement can name either. */
function refuseRepeated(names: readonly string[]): void {
  const twice = new Set(names.filter((name, at) => names.indexOf(name) < at));
  if (twice.size === 0) return;
  const fault = `the query has ${[...twice].map((name) => `column ${name}`).join(' and ')} more than once; leave one out, or name it anew with AS`;
  throw new SlotsyncError('mirror_source', fault);
}

/** Conditions that select these keys, the fastest first. */
export function keyConditions(
  described: Pick<Described<DeclaredSource>, 'key' | 'types'>,
  keys: readonly string[],
): string[] {
  const byText = sourceSql.matchKeysByText(described, arrayLiteral(keys));
  if (keys.some(isShortenedKey)) return [byText];
  const byColumns = sourceSql.matchKeys(described, keyColumns(described, keys));
  // Without a text that may not read as its type, a failure is that of a row: no reading without the index helps.
  return described.key.every((name) => readsOwnText(described.types.get(name) ?? ''))
    ? [byColumns]
    : [byColumns, byText];
}

/**
 * Reads with the first condition; with the next one where a text does not read as its column's type, or the type has no
 * equality: neither is needed without an index. Blocks that were handed over are not read a second time: after them every error is final.
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

/** All blocks of a reading as one list. */
export async function collect<T>(blocks: AsyncIterable<readonly T[]>): Promise<T[]> {
  const all: (readonly T[])[] = [];
  for await (const block of blocks) all.push(block);
  return all.flat();
}

/** A fault for each column that the source does not have, and for each of the key that may hold several values. */
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

/** A fault for each key column of which a row may have several values: what refers to it would name each of them. */
export function findUnfitKeys(key: readonly string[], types: ColumnTypes): string[] {
  return key.flatMap((column) => {
    const type = types.get(column) ?? '';
    if (isKeyType(type)) return [];
    return `key: column ${column} is ${type}, which may hold several values; let a query convert it to text`;
  });
}

/** A fault for each field with `add` whose column has one value. */
export function findSingleValues({ fields, rules }: Stream, types: ColumnTypes): string[] {
  return [...rules].flatMap(([field, { add }]) => {
    const from = fields.get(field);
    const column = typeof from === 'object' ? from.column : from;
    const type = typeof column === 'string' ? types.get(column) : undefined;
    if (!add || type === undefined || type.endsWith('[]')) return [];
    return `fields['${field}']: \`add\` is for lists, and column ${String(column)} is ${type}; let a query make a list of it, or use \`write\``;
  });
}

/** The fault of a column of `graceDays` that holds no time. */
export function findUntimed({ graceDays }: Stream, types: ColumnTypes): string[] {
  const [name, type] = typeof graceDays === 'object' ? [graceDays.column, types.get(graceDays.column)] : [];
  if (type === undefined || sourceSql.isTimeType(type)) return [];
  return [
    `graceDays.column: column ${name} is ${type}; name a date or a timestamp, or let a query convert it`,
  ];
}

/** A fault for each of the columns that is not there. */
export function findAbsent(named: readonly NamedColumn[], types: ColumnTypes): string[] {
  return named
    .filter(([, column]) => !types.has(column))
    .map(
      ([place, column]) =>
        `${place}: there is no column ${column}; ${suggestName(column, [...types.keys()]) ?? 'the source has no columns'}`,
    );
}

/** All rows of a statement have the same columns, so which of them are computed, and how each is read, is found out once. */
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
