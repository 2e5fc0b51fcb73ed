// Reads the keys of a stream's rows in blocks. A query of keys and hashes in one snapshot returns the keys in order.
// Callers then read the rows block by block, so memory use is constant.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { readRecordKeys } from '../../state/records/read/record-details.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Number of keys in a block, and so of rows that a caller reads at once. */
const ROWS_AT_ONCE = 1000;

/** Rows of the source that a plan cannot use, because their keys are null or repeated. */
export interface KeyFaults {
  /** Number of rows whose key is null. */
  nulls: number;
  /** Number of rows that repeat the key of another row. */
  repetitions: number;
  repeated: string | undefined;
}

/** Yields each key of a query of hashes once, in blocks. Counts rows with a null or repeated key in `faults`. */
export async function* readKeys(
  blocks: AsyncIterable<readonly string[]>,
  faults: KeyFaults = { nulls: 0, repetitions: 0, repeated: undefined },
): AsyncGenerator<string[]> {
  let keys: string[] = [];
  let last: string | undefined;
  for await (const lines of blocks) {
    for (const line of lines) {
      const column = line.slice(0, line.indexOf('\t'));
      if (column === String.raw`\N`) faults.nulls++;
      else if (column === last) {
        faults.repetitions++;
        faults.repeated ??= decodeColumn(unescapeColumn(column));
      } else {
        last = column;
        keys.push(decodeColumn(unescapeColumn(column)));
      }
      if (keys.length < ROWS_AT_ONCE) continue;
      yield keys;
      keys = [];
    }
  }
  if (keys.length > 0) yield keys;
}

/** Returns those of the keys typed by an operator that have neither a row in the mirror nor a record in the state. */
export async function findUnknownKeys(
  { mirror, state }: Pick<SyncDeps, 'mirror' | 'state'>,
  stream: Stream,
  keys: readonly string[],
): Promise<string[]> {
  const known = await readRecordKeys(state.db, stream.name, keys.map(shortenKey));
  const rest = keys.filter((key) => !known.has(shortenKey(key)));
  if (rest.length === 0) return [];
  for await (const found of readKeys(mirror.readHashes(stream, { keys: rest.map(shortenKey) })))
    for (const key of found) known.add(key);
  return rest.filter((key) => !known.has(shortenKey(key)));
}
