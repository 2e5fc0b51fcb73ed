// Names of the PostgreSQL functions that triggers call. mirror/install-triggers.ts creates these functions.
import { createHash } from 'node:crypto';

/** Maximum bytes of a name in PostgreSQL, which truncates longer names. */
const NAME_BYTES = 63;

export const FUNCTION_PREFIX = 'slotsync_changes_';
/** SQL comment on a function, followed by the name of its table. */
export const FUNCTION_COMMENT = 'slotsync notes changes of ';

/** Returns the name of a stream's trigger function. The names of its triggers begin with the same text. */
export function functionName(stream: string): string {
  const name = FUNCTION_PREFIX + stream;
  // Leaves room for `_insert`. A hash keeps long names with the same beginning different.
  if (name.length <= NAME_BYTES - 7) return name;
  return `${name.slice(0, NAME_BYTES - 16)}_${createHash('sha256').update(stream).digest('hex').slice(0, 8)}`;
}
