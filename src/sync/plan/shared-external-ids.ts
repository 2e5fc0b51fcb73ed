// Rows of one stream that give one external id: none of them is sent, and each says which others there are.
import type { SharedExternalId } from '../../mirror/mirror.js';

const NAMED = 5;

/** Why a row is not sent that gives such an id. */
export function explainSharedId({ externalId, count, keys }: SharedExternalId, key: string): string {
  const others = keys.filter((other) => other !== key).slice(0, NAMED);
  const more = count - 1 - others.length;
  const unnamed = more <= 0 ? '' : ` and ${more} more ${more === 1 ? 'row' : 'rows'}`;
  return `external id '${externalId}' is also that of ${others.join(', ')}${unnamed}`;
}
