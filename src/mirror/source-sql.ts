// Builds the SQL that reads a source, with the local key and the hash of each row. Identifiers are quoted; of the
// configuration, only a query is used as SQL verbatim. Keys and hashes are made of the text that PostgreSQL prints, so
// every session prints values in the same formats.
import { createHash } from 'node:crypto';
import { arrayLiteral, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { templateColumns, type ExternalIdTemplate } from '../streams/external-id.js';
import { keySql } from '../streams/external-id-rule.js';
import { MAX_ID_BYTES, SHORTENED } from '../streams/local-key.js';
import type { DeclaredSource, Source, Stream } from '../streams/stream.js';
import { isSingleValue, mappedText, mayBeText, valueText } from './mapped-text.js';

/**
 * Session settings that fix how values print as text. Row hashes and local keys are made of that text. Therefore every
 * transaction at the mirror and every trigger function that makes keys uses these settings.
 */
export const SESSION_FORMATS = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, YMD',
  IntervalStyle: 'iso_8601',
  extra_float_digits: 1,
  bytea_output: 'hex',
} as const;

/** Alias of the source in every statement. `slotsync_row::text` is the text of the whole row. */
export const ROW = 'slotsync_row';

export const column = (name: string) => `${ROW}.${quoteIdentifier(name)}`;

/** Returns SQL for the local key, as streams/local-key.ts joins and shortens it. Null if a part of the key is null. */
export function keyExpression({ key, types }: Pick<Described<Stream>, 'key' | 'types'>): string {
  const whole = joinedText(key.map((name) => valueText(column(name), types.get(name) ?? 'text')));
  return `CASE WHEN octet_length(${whole}) > ${MAX_ID_BYTES} THEN left(${whole}, ${SHORTENED.kept}) || '${SHORTENED.mark}'
    || encode(sha256(convert_to(${whole}, 'UTF8')), 'hex') ELSE ${whole} END`;
}

/** Returns an SQL expression that joins texts as streams/local-key.ts does. The result is null if a text is null. */
export function joinedText(texts: readonly string[]): string {
  const [only] = texts;
  if (texts.length === 1 && only !== undefined) return only;
  return texts.map((text) => String.raw`replace(replace(${text}, '\', '\\'), '|', '\|')`).join(` || '|' || `);
}

/**
 * Returns an SQL expression for a 64-bit hash of the row's text. The seed contains the declaration and the column
 * layout, because the text contains no column names.
 */
export function hashExpression({
  fingerprint,
  layout,
}: Pick<Described<Stream>, 'fingerprint' | 'layout'>): string {
  const seed = createHash('sha256').update(`${fingerprint} ${layout}`).digest().readBigInt64BE();
  return `hashtextextended(${ROW}::text, (${seed})::bigint)`;
}

/** SQL type of each column by column name. For a domain, this is the base type. */
export type ColumnTypes = ReadonlyMap<string, string>;

export interface SourceColumns {
  types: ColumnTypes;
  /**
   * Column names and types in order, for the row hash: the text of a row contains neither. A load may recreate or
   * rename a user-defined type, so the layout only says whether such a type is a list.
   */
  layout: string;
}

export type Described<T> = T & SourceColumns;

/** Lowest number (OID) of user-defined types. Types that come with PostgreSQL have lower numbers. */
const FIRST_OWN_TYPE = 16384;

/** Returns the types and the layout of described columns. `typeNames` maps type numbers (OIDs) to names. */
export function toSourceColumns(
  columns: readonly { name: string; type: number }[],
  typeNames: ReadonlyMap<number, string>,
): SourceColumns {
  const named = columns.map(({ name, type }) => [name, typeNames.get(type) ?? 'text', type] as const);
  const layout = named.map(([name, type, oid]) => {
    const isOwn = oid >= FIRST_OWN_TYPE;
    return [name, isOwn ? type.endsWith('[]') : type];
  });
  return {
    types: new Map(named.map(([name, type]) => [name, type])),
    layout: JSON.stringify(layout),
  };
}

export function relation(source: Source): string {
  if ('query' in source) return `(\n${source.query.replace(/;\s*$/, '')}\n) AS ${ROW}`;
  const table = source.table.map(quoteIdentifier).join('.');
  if (!source.columns) return `${table} AS ${ROW}`;
  return `(SELECT ${source.columns.map(quoteIdentifier).join(', ')} FROM ${table}) AS ${ROW}`;
}

/** Selects rows of a source. An empty selection means all rows. */
export interface Selection {
  keys?: readonly string[] | undefined;
  /** Lowest value of the cursor, inclusive; `to` is exclusive. Both are text at full precision. */
  from?: string | undefined;
  to?: string | undefined;
  where?: string | undefined;
}

/**
 * Returns a query for `(key, row hash)` in the byte order of the key. If `shared` contains the row's external id, the
 * hash is followed by `:shared:` and the id's position in `shared`.
 */
export function selectHashes(
  stream: Described<Stream>,
  condition = '',
  shared: readonly string[] = [],
): string {
  const key = keyExpression(stream);
  const hash = hashExpression(stream);
  const from = relation(stream.source);
  if (shared.length === 0) {
    return `SELECT k, h FROM (SELECT ${key} AS k, ${hash} AS h FROM ${from} ${condition}) AS hashed
      ORDER BY k COLLATE "C"`;
  }
  return `SELECT k, h || coalesce(':shared:' || place - 1, '')
    FROM (SELECT ${key} AS k, ${hash} AS h, slotsync_place AS place
      FROM ${from} LEFT JOIN unnest(${quoteLiteral(arrayLiteral(shared))}::text[])
        WITH ORDINALITY AS slotsync_shared(slotsync_id, slotsync_place)
        ON slotsync_id = ${externalIdExpression(stream)} ${condition}) AS hashed
    ORDER BY k COLLATE "C"`;
}

export const TIME_WITH_ZONE = 'timestamp with time zone';
export const TIME_WITHOUT_ZONE = 'timestamp without time zone';

export function isTimeType(type: string): boolean {
  return [TIME_WITH_ZONE, TIME_WITHOUT_ZONE, 'date'].includes(type);
}

/** Returns the WHERE clause of a selection, empty if it selects all rows. `keyCondition` selects the keys. */
export function selectCondition(
  { cursor }: Pick<Stream, 'cursor'>,
  { from, to, where }: Selection,
  keyCondition?: string,
): string {
  const conditions = [
    ...(keyCondition === undefined ? [] : [keyCondition]),
    ...(from === undefined || cursor === undefined ? [] : [`${column(cursor)} >= ${quoteLiteral(from)}`]),
    ...(to === undefined || cursor === undefined ? [] : [`${column(cursor)} < ${quoteLiteral(to)}`]),
    ...(where === undefined ? [] : [`(${where}\n)`]),
  ];
  return conditions.length === 0 ? '' : `WHERE ${conditions.join(' AND ')}`;
}

/** Fault of a statement that PostgreSQL can parse, but not execute for lack of parameters. */
export const NO_PARAMETERS = 'parameters such as $1 are not supported here';

/**
 * Returns statements that all parse only if the selection's `where` is one condition. The second statement rejects a
 * condition that is followed by ORDER BY or UNION. The third has no parenthesis that `false) OR (true` could close in
 * order to bypass the other conditions.
 */
export function tryConditions(stream: Stream, selection: Selection): string[] {
  const { where } = selection;
  const from = `FROM ${relation(stream.source)}`;
  const plain = `SELECT 1 ${from} ${selectCondition(stream, selection)}`;
  if (where === undefined) return [plain];
  return [plain, `SELECT CASE WHEN (${where}\n) THEN 1 END ${from}`, `SELECT 1 ${from} WHERE ${where}\n`];
}

/**
 * Returns a condition for these keys. Each key column is compared with an array of the column's type, so that an index
 * can be used. PostgreSQL pushes these comparisons into a view with volatile functions, which it then calls for no
 * other row.
 */
export function matchKeys(
  { key, types }: Pick<Described<Stream>, 'key' | 'types'>,
  columns: readonly string[],
): string {
  const names = key.map((name) => column(name));
  const wanted = key.map(
    (name, at) => `${quoteLiteral(columns[at] ?? '{}')}::text[]::${types.get(name) ?? 'text'}[]`,
  );
  const each = names.map((name, at) => `${name} = ANY (${wanted[at]})`);
  if (each.length > 1) each.push(`(${names.join(', ')}) IN (SELECT * FROM unnest(${wanted.join(', ')}))`);
  return `(${each.join(' AND ')})`;
}

/**
 * Returns a condition that compares the joined key as text, without an index. Used if a key does not parse as the
 * column's type or the type has no equality operator.
 */
export function matchKeysByText(stream: Pick<Described<Stream>, 'key' | 'types'>, keys: string): string {
  return `${keyExpression(stream)} = ANY (${quoteLiteral(keys)}::text[])`;
}

export function aliasOf(name: string): string {
  return `slotsync_${name}`;
}

const ROW_BYTES = `octet_length(${ROW}::text)`;
const READ = 'slotsync_read';
/** SQL condition that is true if a row is too large for `selectRows` to read. */
export const IS_TOO_LARGE = `${READ} IS NOT DISTINCT FROM NULL`;
/** SQL expression for the size in bytes of a row that is too large to be read. Null for other rows. */
export const BYTES_TOO_MANY = `CASE WHEN ${IS_TOO_LARGE} THEN ${ROW_BYTES} END`;

/**
 * Returns a query for rows and for computed expressions by name. A row that is larger than `rowLimitMegabytes` has null
 * in all its own columns, because the rows of one query are in memory together.
 */
export function selectRows(
  { source, rowLimitMegabytes }: Pick<DeclaredSource, 'source' | 'rowLimitMegabytes'>,
  computed: Readonly<Record<string, string>>,
  condition: string,
): string {
  const extra = Object.entries(computed).map(
    ([name, expression]) => `, ${expression} AS ${quoteIdentifier(aliasOf(name))}`,
  );
  return `SELECT ${READ}.*${extra.join('')} FROM ${relation(source)}
    LEFT JOIN LATERAL (SELECT ${ROW}.*) AS ${READ} ON ${ROW_BYTES} <= ${rowLimitMegabytes * 1024 * 1024} WHERE ${condition}`;
}

/** Returns SQL for a row's external id, as streams/external-id.ts renders it. Null if the row has none. */
export function externalIdExpression({
  externalId,
  types,
}: Pick<Described<Stream>, 'externalId' | 'types'>): string {
  const parts = externalId.parts.map((part) =>
    'literal' in part
      ? quoteLiteral(part.literal)
      : `nullif(${mappedText(column(part.column), types.get(part.column) ?? 'text')}, '')`,
  );
  return `(${keySql(externalId.rule, parts.join(' || '))}) COLLATE "C"`;
}

/**
 * Returns a condition that uses a column's index to find rows with these external ids. Other rows may match too.
 * Returns no condition unless the template of external ids has exactly one column. Each external id must fit the
 * template's literals.
 */
export function narrowToColumn(
  { externalId: template, types }: Described<Pick<DeclaredSource, 'externalId'>>,
  externalIds: readonly string[],
): string[] {
  const [name, more] = templateColumns(template);
  const type = types.get(name ?? '') ?? 'text';
  if (name === undefined || more !== undefined || template.rule || !isSingleValue(type)) return [];
  const at = template.parts.findIndex((part) => 'column' in part);
  const literal = (parts: ExternalIdTemplate['parts']) =>
    parts.map((part) => ('literal' in part ? part.literal : '')).join('');
  const prefix = literal(template.parts.slice(0, at)).length;
  const suffix = literal(template.parts.slice(at + 1)).length;
  const values = externalIds
    .map((externalId) => externalId.slice(prefix, externalId.length - suffix))
    .filter((value) => mayBeText(value, type));
  return [matchKeys({ key: [name], types }, [arrayLiteral(values)])];
}
