// Rows that a plan itself refuses: their records have their reason before anything is sent. None of the rows is sent that
// have one external id, and each says which others there are.
import type { Mirror, SharedExternalId } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { readLinks } from '../../state/records/links.js';
import { MAX_ID_BYTES } from '../../streams/local-key.js';
import type { Stream } from '../../streams/stream.js';
import type { RefusedEntry } from './merge-readings.js';

/** Keys named of the rows that share an external id. */
const NAMED = 5;

/** A row that is not sent, and why. With a `deadHash` its record is given up until the row has another hash. */
export interface RefusedRow {
  key: string;
  code: 'key_too_long' | 'external_id_shared';
  message: string;
  externalId?: string;
  deadHash?: string;
}

/** The refusal of a row; `shared` are the external ids its entry counts by. */
export function explainRefusal(
  { key, hash, sharedId }: RefusedEntry,
  shared: readonly SharedExternalId[],
): RefusedRow {
  const sharing = sharedId === undefined ? undefined : shared[sharedId];
  if (sharing) {
    const { externalId } = sharing;
    return { key, code: 'external_id_shared', externalId, message: explainSharedId(sharing, key) };
  }
  const message = `its key is longer than ${MAX_ID_BYTES} bytes`;
  return { key, code: 'key_too_long', message, deadHash: hash };
}

/** The external ids of several rows. A row that is linked to another object does not count: it does not use its template's. */
export async function readSharedIds(
  { mirror, state }: { mirror: Mirror; state: Pick<State, 'db'> },
  stream: Stream,
): Promise<SharedExternalId[]> {
  const shared = await mirror.findSharedExternalIds(stream);
  const links = await readLinks(
    state.db,
    stream.name,
    shared.flatMap(({ keys }) => keys),
  );
  return shared.flatMap(({ externalId, count, keys }) => {
    const unlinked = keys.filter((key) => !links.has(key));
    const left = count - (keys.length - unlinked.length);
    return left > 1 ? [{ externalId, count: left, keys: unlinked }] : [];
  });
}

/** Why a row with such an id is not sent. */
function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
