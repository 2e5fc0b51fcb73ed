// Finds rows of a stream that have the same external id. None of them is sent. A batch checks its own rows again
// (`findSharedInBatch` of apply/prepare.ts), because rows may have changed since the plan.
import type { Mirror, SharedExternalId } from '../../mirror/mirror.js';
import type { State } from '../../state/database.js';
import { readLinks } from '../../state/records/links.js';
import type { Stream } from '../../streams/stream.js';

/** Maximum number of other rows that the message names. */
const NAMED = 5;

/** Returns external ids that several rows have. A linked row does not use its template's id, so it does not count. */
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

/** Explains why a row is not sent: other rows have the same external id. */
export function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
