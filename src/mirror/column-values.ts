// How values of the mirror are read. The driver's own conversion would shift days, lose microseconds, keep the spaces of
// char(n), and read a null inside an array as the text NULL.
import { parse as parseArray } from 'postgres-array';
import type { Row } from '../streams/config-schema.js';
import { arrayLiteral } from '../sql-text.js';
import { splitKey } from '../streams/local-key.js';

const serialize = (value: unknown) => value as string;
/** char(n) without its padding, as the local key has it. */
const withoutPadding = (text: string) => text.replace(/ +$/, '');

/** For the driver. Dates and times stay PostgreSQL's own ISO text. */
export const VALUE_TYPES = {
  date: { to: 1184, from: [1082, 1083, 1114, 1184, 1266], serialize, parse: (text: string) => text },
  fixedWidth: { to: 1042, from: [1042], serialize, parse: withoutPadding },
};

/** Arrays from the text that PostgreSQL writes; nulls inside stay null. */
export function readArrays(row: Row, types: ReadonlyMap<string, string>): Row {
  const arrays = Object.entries(row).flatMap(([name, value]): [string, unknown][] => {
    const type = types.get(name) ?? '';
    return typeof value === 'string' && type.endsWith('[]')
      ? [[name, parseArray(value, elementReader(type))]]
      : [];
  });
  return arrays.length === 0 ? row : { ...row, ...Object.fromEntries(arrays) };
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

/** The parts of keys, column by column, each as PostgreSQL writes an array. */
export function keyColumns({ key }: { key: readonly string[] }, keys: readonly string[]): string[] {
  const split = keys.flatMap((text) => splitKey(text, key.length) ?? []);
  return key.map((_, at) => arrayLiteral(split.filter((_part, index) => index % key.length === at)));
}
