// The SQL that reads a source, with the local key and the hash of a row. Identifiers are quoted; of the configuration only
// the query of a source becomes SQL as it is. Key and hash are made of the text that PostgreSQL prints, so every session
// prints values in the same formats.
import { createHash } from 'node:crypto';
import { arrayLiteral, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { templateColumns, type ExternalIdTemplate } from '../streams/external-id.js';
import { keySql } from '../streams/external-id-rule.js';
import { MAX_ID_BYTES, SHORTENED } from '../streams/local-key.js';
import type { DeclaredSource, Source, Stream } from '../streams/stream.js';
import { isSingleValue, mappedText, mayBeText, valueText } from './mapped-text.js';

/**
 * How values print as text. Row hashes and local keys are made of that text, so every transaction at the mirror, and
 * every function that makes keys, has the same settings.
 */
export const SESSION_FORMATS = {
  TimeZone: 'UTC',
  DateStyle: 'ISO, YMD',
  IntervalStyle: 'iso_8601',
  extra_float_digits: 1,
  bytea_output: 'hex',
} as const;

/** Alias of the source in every statement; its text form is the whole row. */
export const ROW = 'slotsync_row';

export const column = (name: string) => `${ROW}.${quoteIdentifier(name)}`;

/** The local key as text, exactly as streams/local-key.ts joins and shortens it. Null when a part is null. */
export function keyExpression({ key, types }: Pick<Described<Stream>, 'key' | 'types'>): string {
  const whole = joinedText(key.map((name) => valueText(column(name), types.get(name) ?? 'text')));
  return `CASE WHEN octet_length(${whole}) > ${MAX_ID_BYTES} THEN left(${whole}, ${SHORTENED.kept}) || '${SHORTENED.mark}'
    || encode(sha256(convert_to(${whole}, 'UTF8')), 'hex') ELSE ${whole} END`;
}

/** Texts as streams/local-key.ts joins them. Null when one is. */
export function joinedText(texts: readonly string[]): string {
  const [only] = texts;
  if (texts.length === 1 && only !== undefined) return only;
  return texts.map((text) => String.raw`replace(replace(${text}, '\', '\\'), '|', '\|')`).join(` || '|' || `);
}

/** 64 bits over the whole row as text, seeded with the declaration and with the columns that the text does not name. */
export function hashExpression({
  fingerprint,
  layout,
}: Pick<Described<Stream>, 'fingerprint' | 'layout'>): string {
  const seed = createHash('sha256').update(`${fingerprint} ${layout}`).digest().readBigInt64BE();
  return `hashtextextended(${ROW}::text, (${seed})::bigint)`;
}

/** Column name to type, as SQL writes it; of a domain the type below it. */
export type ColumnTypes = ReadonlyMap<string, string>;

export interface SourceColumns {
  types: ColumnTypes;
  /**
   * Names and types in order, for the row hash: the text of a row has neither. A load may make a type anew under another
   * number, or rename it: of those that PostgreSQL does not bring along only counts whether they are lists.
   */
  layout: string;
}

/** A declaration with the columns of its source, for the SQL that reads it. */
export type Described<T> = T & SourceColumns;

/** Types that PostgreSQL brings along have lower numbers. */
const FIRST_OWN_TYPE = 16384;

/** `typeNames`: by the numbers of the types. */
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

/** Selects the rows of a source that are read; all of them when it is empty. */
export interface Selection {
  keys?: readonly string[] | undefined;
  /** From this value of the cursor on, and before that one. As text, at full precision. */
  from?: string | undefined;
  to?: string | undefined;
  /** A condition in SQL over the source's columns. */
  where?: string | undefined;
}

/**
 * `(key, row hash)` in the byte order of the key. Behind the hash of a row that has one of the `shared` external ids
 * stands `:shared:` and the place of that id in the list.
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

/** The WHERE of a selection, empty when it selects all rows. Keys are matched by `keyCondition`. */
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

/** Why PostgreSQL takes a statement that cannot be executed. */
export const NO_PARAMETERS = 'parameters such as $1 have no value here';

/**
 * Statements that parse only when a selection is one condition. The second refuses a condition with an ORDER BY or a UNION
 * behind it. The third has no parenthesis that a condition such as `false) OR (true` could close, by which it would
 * escape from what else is selected.
 */
export function tryConditions(stream: Stream, selection: Selection): string[] {
  const { where } = selection;
  const from = `FROM ${relation(stream.source)}`;
  const plain = `SELECT 1 ${from} ${selectCondition(stream, selection)}`;
  if (where === undefined) return [plain];
  return [plain, `SELECT CASE WHEN (${where}\n) THEN 1 END ${from}`, `SELECT 1 ${from} WHERE ${where}\n`];
}

/**
 * A condition for these keys: one array for each key column, cast to the column's type so that an index serves. Each
 * column is compared with its array, which PostgreSQL also does inside a view with volatile functions: so they are not
 * called for other rows.
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

/** The same by the joined key, without an index: for keys that do not read as the column's type, or cannot be compared. */
export function matchKeysByText(stream: Pick<Described<Stream>, 'key' | 'types'>, keys: string): string {
  return `${keyExpression(stream)} = ANY (${quoteLiteral(keys)}::text[])`;
}

export function aliasOf(name: string): string {
  return `slotsync_${name}`;
}

const ROW_BYTES = `octet_length(${ROW}::text)`;
const READ = 'slotsync_read';
/** Whether the row of `selectRows` is too large to be read. */
export const IS_TOO_LARGE = `${READ} IS NOT DISTINCT FROM NULL`;
/** Its bytes as text; null for the others. */
export const BYTES_TOO_MANY = `CASE WHEN ${IS_TOO_LARGE} THEN ${ROW_BYTES} END`;

/**
 * Rows, and what is computed of each beside its own columns: expressions by name. The columns of a row that is larger than
 * its source permits are null: rows that are read together are in memory together.
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

/** The external id of a row, as streams/external-id.ts renders it. Null when the row has none. */
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
 * A condition that rows with these external ids fulfil, where the template has one column: it can be undone, so that the
 * column's index serves. Other rows may fulfil it too. `externalIds`: such as the template may give.
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
