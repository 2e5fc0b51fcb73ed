// Puts keys that an operator names as changed into the inbox, if the mirror or the state has them.
import { addChanges } from '../../state/inbox/add-changes.js';
import { shortenKey } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import { findUnknownKeys } from '../identity/read-keys.js';
import type { SyncDeps } from '../run/sync-deps.js';

/** Number of keys looked up and inserted in one statement. */
const KEYS_PER_STATEMENT = 1000;

export async function pushKeys(
  deps: Pick<SyncDeps, 'mirror' | 'state'>,
  stream: Stream,
  keys: readonly string[],
): Promise<{ pushed: string[]; unknown: string[] }> {
  const pushed: string[] = [];
  const unknown: string[] = [];
  for (let at = 0; at < keys.length; at += KEYS_PER_STATEMENT) {
    const block = keys.slice(at, at + KEYS_PER_STATEMENT).map(shortenKey);
    const notFound = new Set(await findUnknownKeys(deps, stream, block));
    const known = block.filter((key) => !notFound.has(key));
    await addChanges(deps.state.db, stream.name, known);
    for (const key of known) pushed.push(key);
    for (const key of notFound) unknown.push(key);
  }
  return { pushed, unknown };
}
