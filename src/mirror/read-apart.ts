// A row that cannot be read, because its view raises an error or its function takes too long, fails the statement that
// reads it among others. Such a reading is halved until the row stands alone.
import { isReadingFault, type SlotsyncError } from '../errors/errors.js';

/** So many keys that cannot be read, before any that can: then it is the source, not a row. */
const MOST_ALONE = 8;

export interface ReadApart<R> {
  rows: Map<string, R>;
  /** Keys whose row cannot be read, with the reason. Whether there is such a row is not known. */
  unreadable: Map<string, SlotsyncError>;
}

/** Reads all keys; throws what concerns the connection or the source, and not single rows. */
export async function readApart<R>(
  keys: readonly string[],
  read: (keys: readonly string[]) => Promise<ReadonlyMap<string, R>>,
): Promise<ReadApart<R>> {
  const result: ReadApart<R> = { rows: new Map(), unreadable: new Map() };
  let isReadable = false;
  const parts: (readonly string[])[] = [keys];
  for (let part = parts.pop(); part; part = parts.pop()) {
    try {
      for (const [key, row] of await read(part)) result.rows.set(key, row);
      isReadable = true;
    } catch (error) {
      const [only, more] = part;
      if (!isRowFault(error) || only === undefined) throw error;
      if (more === undefined) {
        result.unreadable.set(only, error);
        if (!isReadable && result.unreadable.size > MOST_ALONE) throw error;
      } else {
        const middle = Math.ceil(part.length / 2);
        parts.push(part.slice(middle), part.slice(0, middle));
      }
    }
  }
  return result;
}

/**
 * Whether the server has answered that a statement failed, and not for want of connections, memory, disk or a lock
 * (classes 40, 53 and 55 of SQLSTATE).
 */
export function isRowFault(error: unknown): error is SlotsyncError {
  if (!isReadingFault(error)) return false;
  const { sqlstate } = error.facts;
  return typeof sqlstate === 'string' && /^[0-9A-Z]{5}$/.test(sqlstate) && !/^(40|53|55)/.test(sqlstate);
}
