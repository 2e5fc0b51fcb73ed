// Keys that no row needs to have, for the plan of a statement that looks for some: PostgreSQL estimates by their number.
import { joinKey } from '../streams/local-key.js';
import type { Stream } from '../streams/stream.js';
import type { Described } from './source-columns.js';

const DAY_MS = 24 * 60 * 60 * 1000;
const day = (at: number) => new Date(at * DAY_MS).toISOString().slice(0, 10);

/** The `at`-th value of a type, as text; of other types none can be made up. */
const VALUES: Readonly<Record<string, (at: number) => string>> = {
  smallint: String,
  integer: String,
  bigint: String,
  numeric: String,
  real: String,
  'double precision': String,
  text: (at) => `key ${at}`,
  'character varying': (at) => `key ${at}`,
  character: String,
  uuid: (at) => `00000000-0000-4000-8000-${String(at).padStart(12, '0')}`,
  date: day,
  'timestamp without time zone': day,
  'timestamp with time zone': day,
  boolean: (at) => (at % 2 === 0 ? 'true' : 'false'),
};

/** So many local keys; none where the type of a column is not known. */
export function makeKeys({ key, types }: Pick<Described<Stream>, 'key' | 'types'>, count: number): string[] {
  const values = key.flatMap((name) => VALUES[types.get(name) ?? ''] ?? []);
  if (values.length < key.length) return [];
  return Array.from({ length: count }, (_, at) => joinKey(values.map((value) => value(at))));
}
