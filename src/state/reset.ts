// Deletes the state: drops its schemas, after the objects in the mirror's database that depend on them.
import { sql } from 'drizzle-orm';
import { messageOf, UsageError } from '../errors/errors.js';
import { ifPresent, queryOne, type Queries, type State } from './database.js';
import { causeOf, changeSchema, LOCKS, whileHolding, type Waiting } from './locks.js';
import { listWorking } from './processes.js';
import { destination } from './schema.js';

const COUNTED = {
  records: 'records',
  links: 'links',
  runs: 'runs',
  held: 'held',
  changes: 'changes',
  bookings: 'reservations',
};
export type Losses = Record<keyof typeof COUNTED, number>;

/** Counts the rows that a reset deletes. Tables that an older schema lacks count as 0. */
export async function countLosses(db: Queries): Promise<Losses> {
  const counts = Object.entries(COUNTED).map(async ([what, table]) => {
    const count = (tx: Queries) =>
      queryOne<{ rows: number }>(tx)`SELECT count(*)::int AS rows FROM slotsync.${sql.identifier(table)}`;
    return [what, (await ifPresent(db, count))?.rows ?? 0];
  });
  return Object.fromEntries(await Promise.all(counts)) as Losses;
}

/** Returns the destination, reading only columns that exist in every version of the schema. */
export async function readDestination(db: Queries) {
  const { baseUrl, organizationId, stateId } = destination;
  const [bound] = await db.select({ baseUrl, organizationId, stateId }).from(destination);
  return bound;
}

const DROP_SCHEMAS = ['DROP SCHEMA slotsync CASCADE', 'DROP SCHEMA IF EXISTS slotsync_queue CASCADE'];

/** Throws UsageError if any process uses the state. Works with every version of the schema. */
export async function requireIdle(tx: Queries): Promise<void> {
  const working = await listWorking(tx, undefined, LOCKS);
  if (working.length === 0) return;
  throw new UsageError('processes are using this state; nothing was deleted', {
    faults: working,
    remedy: 'Stop them, then run slotsync reset again. A killed process counts as running for 30 seconds.',
  });
}

/**
 * Drops the schemas in one transaction, after `statements` and `before`. Throws UsageError if a process uses the state.
 * If the role lacks a right, the error has the SQL to be executed.
 */
export async function dropState(
  { db }: State,
  { statements, before }: { statements: readonly string[]; before: () => Promise<void> },
  waiting?: Waiting,
): Promise<void> {
  await changeSchema(
    db,
    async (tx) => {
      await requireIdle(tx);
      const all = [...statements, ...DROP_SCHEMAS];
      try {
        for (const statement of all) await tx.execute(sql.raw(statement));
      } catch (error) {
        const cause = causeOf(error) as { code?: unknown } | undefined;
        if (cause?.code !== '42501') throw error;
        throw new UsageError(
          `nothing was deleted: the role of STATE_DATABASE_URL lacks a right: ${messageOf(cause)}`,
          {
            remedy: `Let the owners, or a superuser, run: ${['BEGIN', ...all, 'COMMIT'].join('; ')};`,
          },
        );
      }
      await whileHolding(tx, before);
    },
    waiting,
  );
}
