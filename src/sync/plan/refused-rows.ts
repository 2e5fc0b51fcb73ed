// Rows that a plan itself refuses: their records have their reason before anything is sent.
import type { SharedExternalId } from '../../mirror/mirror.js';
import { MAX_ID_BYTES } from '../../streams/local-key.js';
import type { RefusedEntry } from './merge-readings.js';
import { explainSharedId } from './shared-external-ids.js';

/** A row that is not sent, and why. With a `deadHash` its record is dead until the row has another hash. */
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
