// Deletes the state: drops its schemas, after the objects in the mirror's database that depend on them.
import { sql } from 'drizzle-orm';
import { messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import { query, queryOne, type Queries, type State } from './database.js';
import { causeOf, changeSchema, describeHolders, tryLock, whileHolding, type Waiting } from './locks.js';
import { ALIVE_SECONDS, type Process } from './processes.js';
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

/** SQLSTATEs of a missing table, column and function. */
const ABSENT: unknown[] = ['42P01', '42703', '42883'];

/** Executes a query. Returns undefined if an older schema lacks a table, column or function of the query. */
async function ifPresent<T>(db: Queries, ask: (tx: Queries) => Promise<T>): Promise<T | undefined> {
  try {
    return await db.transaction(ask);
  } catch (error) {
    if (error instanceof SlotsyncError && ABSENT.includes(error.facts['sqlstate'])) return undefined;
    throw error;
  }
}

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
const LOCKS = ['migrate', 'run_start', 'inbox', 'polling', 'alerts', 'reconcile', 'verify'] as const;

/** Throws UsageError if any process uses the state. Works with every version of the schema. */
export async function requireIdle(tx: Queries): Promise<void> {
  const alive = await ifPresent(
    tx,
    (nested) => query<Pick<Process, 'command' | 'host' | 'pid'>>(nested)`
      SELECT command, host, pid FROM slotsync.processes WHERE seen_at > now() - make_interval(secs => ${ALIVE_SECONDS})`,
  );
  const working = (alive ?? []).map(({ command, host, pid }) => `${command} on ${host}, process ${pid}`);
  for (const lock of LOCKS)
    if ((await ifPresent(tx, (nested) => tryLock(nested, lock))) === false)
      working.push(`${lock}: ${await describeHolders(tx, lock)}`);
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
