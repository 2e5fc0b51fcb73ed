// How many keys a batch holds. A batch is claimed, read and settled as one, and written in as many requests as it takes.
import { MOST_OBJECTS } from '../../streams/config-schema.js';
import type { Stream } from '../../streams/stream.js';

/** So that a change waits for few others: those of its batch, and one that has claimed its record. */
const KEYS_OF_A_CHANGE = 100;
/** Full requests of a fixed size in one batch: so much waits for the claims of a worker that died to expire. */
const MOST_REQUESTS = 10;
/** A batch holds its rows in memory, and a worker has twelve of them at once. */
const KEYS_OF_A_COSTLY_READING = 5000;

/** `isCostly`: reading the keys of a batch costs as much as reading the whole source, so it is done less often. */
export function keysPerBatch(
  { batchSize, owns }: Pick<Stream, 'batchSize' | 'owns'>,
  { isIncremental = false, isCostly = false } = {},
): number {
  // A fixed size is that of the finds too, and each find is followed by its one write.
  if (batchSize !== 'auto' && owns === 'fields') return batchSize;
  const most = isIncremental ? KEYS_OF_A_CHANGE : isCostly ? KEYS_OF_A_COSTLY_READING : MOST_OBJECTS;
  if (batchSize === 'auto') return most;
  const keys = Math.min(most, batchSize * MOST_REQUESTS);
  return Math.max(batchSize, keys - (keys % batchSize));
}
