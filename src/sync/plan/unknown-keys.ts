// Keys that an operator has typed: one that neither the mirror nor the state knows is a typo, and is reported.
import { decodeColumn, unescapeColumn } from '../../connections/postgres-copy.js';
import { readRecordKeys } from '../../state/records/read/record-details.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { PlanDeps } from './plan-lists.js';

/** Finds which of the keys have neither row nor record. */
export async function findUnknownKeys(
  { mirror, state }: Pick<PlanDeps, 'mirror' | 'state'>,
  stream: Stream,
  keys: readonly string[],
): Promise<string[]> {
  const known = await readRecordKeys(state.db, stream.name, keys.map(shortenKey));
  const rest = keys.filter((key) => !known.has(shortenKey(key)));
  if (rest.length === 0) return [];
  for await (const lines of mirror.readHashes(stream, { keys: rest.map(shortenKey) })) {
    for (const line of lines) known.add(decodeColumn(unescapeColumn(line.split('\t', 1)[0] ?? '')));
  }
  return rest.filter((key) => !known.has(shortenKey(key)));
}
