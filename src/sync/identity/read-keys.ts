// Reads the keys of a stream's rows in blocks, in key order and from one snapshot. The caller then reads the rows of
// each block, so memory use is constant.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { readRecordKeys } from '../../state/records/read/record-details.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Number of keys in a block. */
const ROWS_AT_ONCE = 1000;

/** Number of rows that cannot be synced because their key is null or not unique. */
export interface KeyFaults {
  nulls: number;
  /** Number of rows with the same key as another row. */
  repetitions: number;
  repeated: string | undefined;
}

/** Yields the keys of lines with key and hash, without repetitions. Counts null and repeated keys in `faults`. */
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

/** Returns the keys, among those typed by an operator, that exist neither in the mirror nor in the state. */
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
