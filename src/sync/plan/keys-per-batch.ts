// How many keys a batch holds. A batch is claimed, read and settled as one, and written in as many requests as it takes:
// with a fixed size in one of that size, otherwise as many as one find reads.
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import type { Stream } from '../../streams/stream.js';

/** So that a change waits for few others: those of its batch, and one that has claimed its record. */
const KEYS_OF_A_CHANGE = 100;
/** A batch holds its rows in memory, and a worker has twelve of them at once. */
const KEYS_OF_A_COSTLY_READING = 5000;

/** `isCostly`: reading the keys of a batch costs as much as reading the whole source, so it is done less often. */
export function keysPerBatch(
  { batchSize }: Pick<Stream, 'batchSize'>,
  { isIncremental = false, isCostly = false } = {},
): number {
  if (batchSize !== 'auto') return batchSize;
  if (isCostly) return KEYS_OF_A_COSTLY_READING;
  return isIncremental ? KEYS_OF_A_CHANGE : MOST_OBJECTS;
}
