// Rows of one stream that give one external id: neither is sent, and each says which others there are.
import type { SharedExternalId } from '../../mirror/mirror.js';

const NAMED = 5;

/** The keys of such rows, each with its reason. */
export function explainSharedIds(shared: readonly SharedExternalId[]) {
  return new Map(
    shared.flatMap(({ externalId, keys }) =>
      keys.map((key) => {
        const others = keys.filter((other) => other !== key).slice(0, NAMED);
        const message = `external id '${externalId}' is also that of ${others.join(', ')}`;
        return [key, { externalId, message }];
      }),
    ),
  );
}
