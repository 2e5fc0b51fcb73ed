// Readings for people and for monitoring must not hold up the work: no statement of theirs takes longer than its limit, and
// none of it writes.
import { sql } from 'drizzle-orm';
import type { Queries, State } from './database.js';

/** Reads in one transaction that is read-only, and whose statements take at most so long. */
export function readInTime<T>(
  { db }: Pick<State, 'db'>,
  limitMs: number,
  read: (tx: Queries) => Promise<T>,
): Promise<T> {
  return db.transaction(
    async (tx) => {
      await tx.execute(sql.raw(`SET LOCAL statement_timeout = ${limitMs}`));
      return read(tx);
    },
    { accessMode: 'read only' },
  );
}
