// Reads the state in a single snapshot, with limits on how long a query may take.
import { sql, type SQL } from 'drizzle-orm';
import type { Queries } from './database.js';

/** Maximum wait for a lock, because a waiting query occupies one of the state's few connections. */
const LONGEST_LOCK_MS = 1000;

/**
 * Calls `read` in a new transaction with a single snapshot. `limitMs` is a statement timeout, so that queries for
 * people and monitoring do not delay the work.
 */
export async function inSnapshot<T>(
  db: Queries,
  read: (tx: Queries) => Promise<T>,
  { limitMs }: { limitMs?: number | undefined } = {},
): Promise<T> {
  return db.transaction(async (tx) => {
    // PostgreSQL accepts `SET TRANSACTION` only before the first query.
    await tx.execute(
      sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; ${limitingReading(limitMs)}`,
    );
    return read(tx);
  });
}

/** Disables JIT for the transaction. With `limitMs`, also limits its statements and its waiting for locks. */
export const limitReading = async (tx: Queries, limitMs?: number): Promise<unknown> =>
  tx.execute(limitingReading(limitMs));

function limitingReading(limitMs: number | undefined): SQL {
  // JIT compilation takes longer than the queries, which look up many single records.
  const always = sql`SELECT set_config('jit', 'off', true)`;
  if (limitMs === undefined) return always;
  return sql`${always}, set_config('statement_timeout', ${String(limitMs)}, true),
    set_config('lock_timeout', ${String(Math.min(limitMs, LONGEST_LOCK_MS))}, true)`;
}
