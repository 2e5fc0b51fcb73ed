// How values of the mirror are read. The driver's own conversion would shift days, lose microseconds, keep the spaces of
// char(n), and read a null inside an array as the text NULL. It would hand over NaN and infinity as if they were values.
import { parse as parseArray } from 'postgres-array';
import { arrayLiteral } from '../text/sql-text.js';
import { UnfitValue } from '../streams/field-values.js';
import { isList, mayBeText } from './mapped-text.js';
import { splitKey } from '../streams/local-key.js';

const serialize = (value: unknown) => value as string;
/** char(n) without its padding, as the local key has it. */
const withoutPadding = (text: string) => text.replace(/(?<! ) +$/, ''); // looks once at each run of spaces

/** For the driver. Dates and times stay PostgreSQL's own ISO text. */
export const VALUE_TYPES = {
  date: { to: 1184, from: [1082, 1083, 1114, 1184, 1266], serialize, parse: (text: string) => text },
  fixedWidth: { to: 1042, from: [1042], serialize, parse: withoutPadding },
};

/**
 * Reads a value of a row: an array from the text that PostgreSQL writes, in which nulls stay null; and what cannot be sent,
 * marked as such.
 */
export function readValue(value: unknown, type: string): unknown {
  if (typeof value !== 'string' || !isList(type)) return markUnfit(value, type);
  const elements = parseArray(value, elementReader(type));
  const unfit = findUnfit(elements, type.slice(0, -2));
  return unfit ?? elements;
}

/** The first of an array's elements, of any dimension, that cannot be sent: with it the whole array cannot be. */
function findUnfit(value: unknown, type: string): UnfitValue | undefined {
  if (!Array.isArray(value)) {
    const marked = markUnfit(value, type);
    return marked instanceof UnfitValue ? marked : undefined;
  }
  for (const element of value) {
    const unfit = findUnfit(element, type);
    if (unfit) return unfit;
  }
  return undefined;
}

/** NaN, infinities, and dates that are not YYYY-MM-DD. */
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

/** As the driver reads a single value of the type. */
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

/** The parts of keys, column by column, each as PostgreSQL writes an array. Keys that no row can have are left out. */
export function keyColumns(
  { key, types }: { key: readonly string[]; types: ReadonlyMap<string, string> },
  keys: readonly string[],
): string[] {
  const split = keys
    .map((text) => splitKey(text, key.length))
    .filter((parts) => parts?.every((part, at) => mayBeText(part, types.get(key[at] ?? '') ?? 'text')));
  return key.map((_, at) => arrayLiteral(split.map((parts) => parts?.[at] ?? '')));
}
