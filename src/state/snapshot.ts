// Several readings of the state as of one moment.
import { query, type Queries } from './database.js';

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
  return db.transaction(
    async (tx) => {
      await limitReading(tx, limitMs);
      return read(tx);
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

/** With `limitMs`, no statement of the transaction takes longer, and none waits long for a lock. */
export async function limitReading(tx: Queries, limitMs?: number): Promise<void> {
  // Compiling statements that look up many single records takes longer than they do.
  await query(tx)`SELECT set_config('jit', 'off', true)`;
  if (limitMs === undefined) return;
  await query(tx)`
    SELECT set_config('statement_timeout', ${String(limitMs)}, true),
      set_config('lock_timeout', ${String(Math.min(limitMs, LONGEST_LOCK_MS))}, true)`;
}
