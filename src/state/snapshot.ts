// Several readings of the state as of one moment.
import { query, type Queries } from './database.js';

/** Reads in one snapshot. `db` may not be a transaction already. */
export async function inSnapshot<T>(db: Queries, read: (tx: Queries) => Promise<T>): Promise<T> {
  return db.transaction(
    async (tx) => {
      // Compiling statements that look up many single records takes longer than they do.
      await query(tx)`SET LOCAL jit = off`;
      return read(tx);
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
