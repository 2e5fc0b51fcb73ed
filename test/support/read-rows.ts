import type { Mirror } from '../../src/mirror/mirror.js';
import type { Stream } from '../../src/streams/stream.js';

/** The rows of these keys in the mirror. Throws the reason of one that cannot be read. */
export async function readRows(mirror: Mirror, stream: Stream, keys: readonly string[]) {
  const { rows, unreadable } = await mirror.readRows(stream, keys);
  for (const reason of unreadable.values()) throw reason;
  return rows;
}
