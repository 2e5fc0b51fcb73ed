// Names of the functions that triggers call. They are made by mirror/trigger-sql.ts, and looked for by the state.
import { createHash } from 'node:crypto';

/** PostgreSQL cuts names that are longer, in bytes. */
const NAME_BYTES = 63;

export const FUNCTION_PREFIX = 'slotsync_changes_';
/** The comment on a function, followed by the name of its table, which is in the same schema. */
export const FUNCTION_COMMENT = 'slotsync notes changes of ';

/** Name of a stream's function in the schema of its table; its triggers begin with it too. */
export function functionName(stream: string): string {
  const name = FUNCTION_PREFIX + stream;
  // Leaves room for `_insert`; two long names that begin alike stay different.
  if (name.length <= NAME_BYTES - 7) return name;
  return `${name.slice(0, NAME_BYTES - 16)}_${createHash('sha256').update(stream).digest('hex').slice(0, 8)}`;
}
