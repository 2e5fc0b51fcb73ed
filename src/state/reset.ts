// Removes everything the state knows: its schemas go, and what depends on them in the mirror's database before.
import { sql } from 'drizzle-orm';
import { messageOf, UsageError } from '../errors/errors.js';
import { queryOne, type Queries, type State } from './database.js';
import { causeOf, changeSchema, describeHolders, tryLock, type Waiting } from './locks.js';
import { listWorking } from './processes.js';

/** The numbers of what is lost. */
export interface Losses {
  records: number;
  links: number;
  runs: number;
  holds: number;
  changes: number;
  bookings: number;
}

export async function countLosses(db: Queries): Promise<Losses> {
  return queryOne<Losses>(db)`
    SELECT (SELECT count(*)::int FROM slotsync.records) AS records, (SELECT count(*)::int FROM slotsync.links) AS links,
      (SELECT count(*)::int FROM slotsync.runs) AS runs,
      (SELECT count(*)::int FROM slotsync.holds WHERE state IN ('open', 'approved')) AS holds,
      (SELECT count(*)::int FROM slotsync.changes) AS changes,
      (SELECT count(*)::int FROM slotsync.reservations) AS bookings`;
}

const DROP_SCHEMAS = ['DROP SCHEMA slotsync CASCADE', 'DROP SCHEMA IF EXISTS slotsync_queue CASCADE'];
/** Any command may be at one of these. Those of readings are taken with the list of who is at work. */
const LOCKS = ['migrate', 'run_start', 'inbox', 'polling', 'alerts'] as const;

/** Throws UsageError while any process works with the state. */
export async function requireIdle(tx: Queries): Promise<void> {
  const working = await listWorking(tx);
  for (const lock of LOCKS)
    if (!(await tryLock(tx, lock))) working.push(`${lock}: ${await describeHolders(tx, lock)}`);
  if (working.length === 0) return;
  throw new UsageError('processes work with this state; nothing was removed', {
    faults: working,
    remedy: 'Stop them, then run slotsync reset again. One that was killed counts for 30 seconds.',
  });
}

/**
 * Removes the schemas, after `statements` and `before` and in one transaction with them: all of it or nothing. Throws
 * UsageError while a process works with the state, and with the SQL to run where the role lacks a right.
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
          `nothing was removed, the role of STATE_DATABASE_URL may not: ${messageOf(cause)}`,
          {
            remedy: `Let the owners, or a superuser, run: ${['BEGIN', ...all, 'COMMIT'].join('; ')};`,
          },
        );
      }
      await before();
    },
    waiting,
  );
}
