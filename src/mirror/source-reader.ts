// Reads one source of the mirror, that of a stream or that of the bookings: its columns and their types, its rows by
// their keys, and the external ids that several of its rows share.
import { keyExpression } from './row-key-and-hash.js';
import { messageOf, SlotsyncError } from '../errors.js';
import { nearestName, suggestName } from '../nearest-name.js';
import { arrayLiteral, quoteLiteral } from '../sql-text.js';
import type { Row } from '../streams/config-schema.js';
import { isIdentifiedByKey, templateColumns } from '../streams/external-id.js';
import { isShortenedKey } from '../streams/local-key.js';
import type { DeclaredSource, Source } from '../streams/stream.js';
import { keyColumns, readValue } from './column-values.js';
import { readsOwnText } from './mapped-text.js';
import { asMirrorError, isDataFault, isSourceFault, read } from './mirror-errors.js';
import type { ReadOnlySessions } from './read-only-sessions.js';
import * as sourceSql from './source-sql.js';

/** A column, and the place in the declaration that names it. */
export type NamedColumn = readonly [place: string, column: string];

/** Column name to type, as SQL writes it. */
export type ColumnTypes = ReadonlyMap<string, string>;

export interface SourceRow {
  /** Null when a part of the key is. */
  key: string | null;
  row: Row;
  computed: Record<string, unknown>;
}

/** An external id of several rows: how many, and the keys of the first of them. */
export interface SharedExternalId {
  externalId: string;
  count: number;
  keys: string[];
}

/** More shared external ids than this mean a wrong template, not a few wrong rows. */
const MOST_SHARED = 1000;
/** Keys named of each. */
const NAMED_KEYS = 6;

export type SourceReader = ReturnType<typeof createSourceReader>;

/** Readings in the given sessions. Errors are SlotsyncError `mirror_…`. */
export function createSourceReader(sessions: ReadOnlySessions) {
  const described = new WeakMap<Source, Promise<ColumnTypes>>();

  function describe(source: Source): Promise<ColumnTypes> {
    const types = readColumnTypes(source);
    described.set(source, types);
    types.catch(() => described.delete(source));
    return types;
  }

  async function readColumnTypes(source: Source): Promise<ColumnTypes> {
    const statement = `SELECT * FROM ${sourceSql.relation(source)}`;
    const { columns } = await read(() => sessions.describe(statement));
    const oids = quoteLiteral(arrayLiteral(columns.map(({ type }) => String(type))));
    const types = await read(() =>
      sessions.query<{ oid: number; type: string }>(
        `SELECT oid::int8::int AS oid, format_type(oid, -1) AS type FROM pg_type WHERE oid = ANY (${oids}::oid[])`,
      ),
    );
    const names = new Map(types.map(({ oid, type }) => [oid, type]));
    return new Map(columns.map(({ name, type }) => [name, names.get(type) ?? 'text']));
  }

  const typesOf = ({ source }: Pick<DeclaredSource, 'source'>): Promise<ColumnTypes> =>
    described.get(source) ?? describe(source);

  async function suggestTable(source: Source): Promise<string> {
    if (!('table' in source)) return '';
    const tables = await read(() =>
      sessions.query<{ name: string }>(`
        SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`),
    );
    const names = tables.map(({ name }) => name);
    const near = nearestName(source.table.join('.'), names);
    return near === undefined ? '' : `; did you mean ${near}?`;
  }

  async function nameKeys(
    declared: DeclaredSource,
    shared: readonly Omit<SharedExternalId, 'keys'>[],
  ): Promise<SharedExternalId[]> {
    if (shared.length === 0) return [];
    const ids = shared.map(({ externalId }) => externalId);
    const statement = sourceSql.selectKeysOfIds(declared, ids, NAMED_KEYS);
    const named = await read(() => sessions.query<Omit<SharedExternalId, 'count'>>(statement));
    const keysOf = new Map(named.map(({ externalId, keys }) => [externalId, keys]));
    return shared.map((one) => ({ ...one, keys: keysOf.get(one.externalId) ?? [] }));
  }

  return {
    /** Types of the columns, read once for each source. */
    typesOf,

    /** Faults of the source: that it cannot be read, or those that `faultsOf` finds in its columns as they are now. */
    async check(
      { source }: Pick<DeclaredSource, 'source'>,
      faultsOf: (types: ColumnTypes) => string[],
    ): Promise<string[]> {
      try {
        return faultsOf(await describe(source));
      } catch (error) {
        if (!isSourceFault(error)) throw error;
        return [`from: ${messageOf(error)}${await suggestTable(source)}`];
      }
    },

    /** Conditions that select these keys, the fastest first. */
    async keyConditions(declared: DeclaredSource, keys: readonly string[]): Promise<string[]> {
      const byText = sourceSql.matchKeysByText(declared, arrayLiteral(keys));
      if (keys.some(isShortenedKey)) return [byText];
      const types = await typesOf(declared);
      const byColumns = sourceSql.matchKeys(declared, types, keyColumns(declared, keys, types));
      // Without a text that may not read as its type, a failure is that of a row: no reading without the index helps.
      return declared.key.every((name) => readsOwnText(types.get(name) ?? ''))
        ? [byColumns]
        : [byColumns, byText];
    },

    /** Rows that a condition selects (see `withFallback`), each with the SQL expressions. */
    async readRows(
      declared: DeclaredSource,
      expressions: Readonly<Record<string, string>>,
      conditions: readonly string[],
    ): Promise<SourceRow[]> {
      const types = await typesOf(declared);
      const computed = { key: keyExpression(declared), ...expressions };
      const names = Object.keys(computed);
      const rows = withFallback(conditions, async function* (condition) {
        yield await sessions.query<Row>(sourceSql.selectRows(declared.source, computed, condition));
      });
      return toSourceRows(await collect(rows), names, types);
    },

    /**
     * External ids that several rows have, at most a thousand; more are an error. Reads the whole source, unless the
     * template rules it out.
     */
    async findSharedExternalIds(place: string, declared: DeclaredSource): Promise<SharedExternalId[]> {
      if (isIdentifiedByKey(declared.key, declared.externalId)) return [];
      const shared = await read(() =>
        sessions.query<Omit<SharedExternalId, 'keys'>>(
          sourceSql.selectSharedExternalIds(declared, MOST_SHARED + 1),
        ),
      );
      if (shared.length <= MOST_SHARED) return nameKeys(declared, shared);
      throw new SlotsyncError(
        'external_ids_not_unique',
        `${place}: more than ${MOST_SHARED} external ids belong to several rows each, such as '${shared[0]?.externalId}'`,
        { remedy: `Name the columns that identify a row in ${place}.externalId.` },
      );
    },
  };
}

/**
 * Reads with the first condition; with the next one where a text does not read as its column's type, which no index
 * needs. Blocks that were handed over are not read a second time: after them every error is final.
 */
export async function* withFallback<T>(
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
      if (isBegun || at === conditions.length - 1 || !isDataFault(error)) throw asMirrorError(error);
    }
  }
}

/** All blocks of a reading as one list. */
export async function collect<T>(blocks: AsyncIterable<readonly T[]>): Promise<T[]> {
  const all: (readonly T[])[] = [];
  for await (const block of blocks) all.push(block);
  return all.flat();
}

/** A fault for each column that the source does not have. */
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
  return findAbsent(named, types);
}

/** A fault for each of the columns that is not there. */
export function findAbsent(named: readonly NamedColumn[], types: ColumnTypes): string[] {
  return named
    .filter(([, column]) => !types.has(column))
    .map(
      ([place, column]) =>
        `${place}: there is no column ${column}; ${suggestName(column, [...types.keys()]) ?? 'there are none'}`,
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
    return { key: computed['key'] as string | null, row: row as Row, computed };
  });
}
