// Rows of one stream that give one external id: none of them is sent, and each says which others there are.
import type { SharedExternalId } from '../../mirror/mirror.js';
import { readLinks } from '../../state/records/links.js';
import type { SyncDeps } from '../sync-deps.js';
import type { Stream } from '../../streams/stream.js';

const NAMED = 5;

/** The external ids that several rows give which are not linked to other objects: those do not use their template's. */
export async function readSharedIds(
  { mirror, state }: Pick<SyncDeps, 'mirror' | 'state'>,
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

/** Why a row is not sent that gives such an id. */
export function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
