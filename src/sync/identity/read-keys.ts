// The keys of a stream's rows, in the blocks in which the rows are read: a reading of hashes is ordered and in one snapshot,
// and each block of rows is read by its keys, in constant memory.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { readRecordKeys } from '../../state/records/read/record-details.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Rows that are read at once. */
const ROWS_AT_ONCE = 1000;

/** Rows that a reading has and a plan cannot use. */
export interface KeyFaults {
  /** Rows without a key. */
  nulls: number;
  /** Rows that repeat the key of another one. */
  repetitions: number;
  /** The first key that is repeated. */
  repeated: string | undefined;
}

/** The keys of a reading of hashes, each once, in blocks. Rows that do not have one of their own are counted in `faults`. */
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

/** Finds which of the keys that an operator has typed have neither row nor record. */
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
