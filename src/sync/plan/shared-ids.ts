// Rows that share one external id, as the mirror has them when a stream is planned: none of them is sent. A batch looks once more
// among the rows that it reads (`findSharedInBatch` of apply/prepare.ts), because rows may have changed since.
import type { Mirror, SharedExternalId } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { readLinks } from '../../state/records/links.js';
import type { Stream } from '../../streams/stream.js';

/** Keys named of the rows that share an external id. */
const NAMED = 5;

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

/** Why a row whose external id other rows have as well is not sent. */
export function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
