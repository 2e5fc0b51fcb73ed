// Converts values of the mirror for the mapping. The driver's own conversion would shift dates, lose microseconds, keep
// the padding of char(n), and turn a null inside an array into the text NULL. It would also pass NaN and infinity on as
// values.
import { parse as parseArray } from 'postgres-array';
import { arrayLiteral } from '../text/sql-text.js';
import { UnfitValue } from '../streams/field-values.js';
import { isList, mayBeText } from './mapped-text.js';
import { splitKey } from '../streams/local-key.js';

const serialize = (value: unknown) => value as string;
/** Removes the padding of a char(n) value. The local key has no padding either. */
const withoutPadding = (text: string) => text.replace(/(?<! ) +$/, ''); // linear: tests each run of spaces once

/** Type parsers for the driver postgres.js. Dates and times stay the ISO text that PostgreSQL prints. */
export const VALUE_TYPES = {
  date: { to: 1184, from: [1082, 1083, 1114, 1184, 1266], serialize, parse: (text: string) => text },
  fixedWidth: { to: 1042, from: [1042], serialize, parse: withoutPadding },
};

/**
 * Converts a column value of a row. Nulls in an array stay null; a value that cannot be sent becomes an UnfitValue.
 */
export function readValue(value: unknown, type: string): unknown {
  if (typeof value !== 'string' || !isList(type)) return markUnfit(value, type);
  const elements: unknown[] = parseArray(value, elementReader(type));
  const marked = elements.flat(Infinity).map((element) => markUnfit(element, type.slice(0, -2)));
  // An element that cannot be sent, in any dimension, makes the whole array impossible to send.
  return marked.find((element) => element instanceof UnfitValue) ?? elements;
}

/** Returns an UnfitValue for NaN, infinities and dates other than YYYY-MM-DD; returns other values unchanged. */
function markUnfit(value: unknown, type: string): unknown {
  switch (type) {
    case 'real':
    case 'double precision':
      return typeof value === 'number' && !Number.isFinite(value) ? new UnfitValue(String(value)) : value;
    case 'numeric':
      return typeof value === 'string' && /[NI]/.test(value) ? new UnfitValue(value) : value;
    case 'date':
    case 'timestamp without time zone':
    case 'timestamp with time zone':
      return typeof value === 'string' && (!/^[0-9]{4}-/.test(value) || value.endsWith('BC'))
        ? new UnfitValue(value)
        : value;
    default:
      return value;
  }
}

/** Returns the parser for the elements of an array type. It parses an element as the driver parses a single value. */
function elementReader(type: string): (text: string) => unknown {
  switch (type.slice(0, -2)) {
    case 'smallint':
    case 'integer':
    case 'real':
    case 'double precision':
      return Number;
    case 'boolean':
      return (text) => text === 't';
    case 'bytea':
      return (text) => Buffer.from(text.slice(2), 'hex');
    case 'json':
    case 'jsonb':
      return (text) => JSON.parse(text) as unknown;
    case 'character':
    case 'bpchar':
      return withoutPadding;
    default:
      return (text) => text;
  }
}

/**
 * Returns one PostgreSQL array literal for each key column, with the part of each key in that column. Leaves out keys
 * that no row can have, because a part does not fit the column's type.
 */
export function keyColumns(
  { key, types }: { key: readonly string[]; types: ReadonlyMap<string, string> },
  keys: readonly string[],
): string[] {
  const split = keys
    .map((text) => splitKey(text, key.length))
    .filter((parts) => parts?.every((part, at) => mayBeText(part, types.get(key[at] ?? '') ?? 'text')));
  return key.map((_, at) => arrayLiteral(split.map((parts) => parts?.[at] ?? '')));
}
