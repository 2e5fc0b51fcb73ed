// The keys of a stream's rows, in the blocks in which the rows are read: a reading of hashes is ordered and in one snapshot,
// and each block of rows is read by its keys, in constant memory.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';

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
