// Several readings of the state as of one moment.
import { sql, type SQL } from 'drizzle-orm';
import type { Queries } from './database.js';

/** A table that is locked is not waited for longer: a reading has one of the state's few connections. */
const LONGEST_LOCK_MS = 1000;

/**
 * Reads in one snapshot. `db` may not be a transaction already. `limitMs`: no statement takes longer, so that readings for
 * people and monitoring do not hold up the work.
 */
export async function inSnapshot<T>(
  db: Queries,
  read: (tx: Queries) => Promise<T>,
  { limitMs }: { limitMs?: number | undefined } = {},
): Promise<T> {
  return db.transaction(async (tx) => {
    // In one message, and before any query.
    await tx.execute(
      sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; ${limitingReading(limitMs)}`,
    );
    return read(tx);
  });
}

/** With `limitMs`, no statement of the transaction takes longer, and none waits long for a lock. */
export const limitReading = async (tx: Queries, limitMs?: number): Promise<unknown> =>
  tx.execute(limitingReading(limitMs));

function limitingReading(limitMs: number | undefined): SQL {
  // Compiling statements that look up many single records takes longer than they do.
  const always = sql`SELECT set_config('jit', 'off', true)`;
  if (limitMs === undefined) return always;
  return sql`${always}, set_config('statement_timeout', ${String(limitMs)}, true),
    set_config('lock_timeout', ${String(Math.min(limitMs, LONGEST_LOCK_MS))}, true)`;
}
