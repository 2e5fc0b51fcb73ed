// Locks between processes. Each is the table lock of an empty table, so that only roles with rights on the state can
// take it. Any role could take an advisory lock. A row lock would assign a transaction id, which in a long transaction
// prevents VACUUM.
import postgres from 'postgres';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import { formatDuration } from '../text/format.js';
import { query, queryColumn, queryValue, type Queries } from './database.js';

export const LOCKS = ['migrate', 'run_start', 'inbox', 'polling', 'alerts', 'reconcile', 'verify'] as const;
/** Name of a lock. Its table is `lock_<name>`. */
export type Lock = (typeof LOCKS)[number];

export interface Waiting {
  /** Called after one second of waiting, and whenever the holder of the lock changes. `sentence` names the holder. */
  onWait?: ((sentence: string) => void) | undefined;
  /** Ends the waiting within a second. */
  signal?: AbortSignal | undefined;
  giveUpAfterMs?: number | undefined;
}

const GIVE_UP_AFTER_MS = 60_000;
/** Maximum number of lock holders that the sentence names. */
const MOST_NAMED = 3;

/** Takes the lock until the end of the transaction. Returns false if another session holds it. */
export const tryLock = (tx: Queries, lock: Lock): Promise<boolean> => take(tx, lock, false);

/** Interval between keep-alive statements. PostgreSQL ends a transaction that is idle for a minute. */
const ALIVE_EVERY_MS = 20_000;

/** Executes `work` while the transaction holds a lock. Keep-alive statements permit any duration. */
export async function whileHolding<T>(
  tx: Queries,
  work: () => Promise<T>,
  everyMs = ALIVE_EVERY_MS,
): Promise<T> {
  // PostgreSQL keeps the snapshot of a SELECT until the next statement, which would prevent VACUUM. SHOW takes no
  // snapshot.
  const show = () => void query(tx)`SHOW idle_in_transaction_session_timeout`.catch(() => undefined);
  const timer = setInterval(show, everyMs);
  show();
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Waits for the lock, and holds it until the transaction ends. Throws `state_locked` if it is not free in time. */
export async function takeLock(tx: Queries, lock: Lock, waiting?: Waiting): Promise<void> {
  await untilFree(
    async () => (await take(tx, lock, true)) || undefined,
    async () => `${lock} (table slotsync.lock_${lock}) is locked by ${await describeHolders(tx, lock)}`,
    waiting,
  );
}

const take = (tx: Queries, lock: Lock, waits: boolean) =>
  queryValue<boolean>(tx)`SELECT slotsync.take_lock(${lock}, ${waits}) AS taken`;

/**
 * Repeats `attempt` until it returns a value. Each attempt waits up to a second at the server. `describe` says who
 * holds the lock. Throws SlotsyncError `state_locked` after `giveUpAfterMs`.
 */
export async function untilFree<T>(
  attempt: () => Promise<T | undefined>,
  describe: () => Promise<string>,
  { onWait, signal, giveUpAfterMs = GIVE_UP_AFTER_MS }: Waiting = {},
): Promise<T> {
  const startedAt = performance.now();
  for (let before = ''; ;) {
    const result = await attempt();
    if (result !== undefined) return result;
    signal?.throwIfAborted();
    const sentence = await describe();
    const waitedMs = performance.now() - startedAt;
    if (waitedMs >= giveUpAfterMs)
      throw new SlotsyncError(
        'state_locked',
        `${sentence}; gave up after ${formatDuration(waitedMs / 1000)}`,
      );
    if (sentence !== before) onWait?.(`Waiting: ${sentence}.`);
    before = sentence;
  }
}

/** SQLSTATEs to retry: lock timeout, deadlock, or a schema or table that another process has just created. */
const TRY_AGAIN = ['55P03', '40P01', '42P06', '42P07'];

/** Changes tables in a transaction, retried while other sessions use them. Throws `state_locked` on timeout. */
export async function changeSchema<T>(
  db: Pick<Queries, 'execute' | 'transaction'>,
  work: (tx: Queries) => Promise<T>,
  waiting?: Waiting,
): Promise<T> {
  const attempt = async (tx: Queries) => {
    await query(tx)`SET LOCAL lock_timeout = '1s'`;
    return { result: await work(tx) };
  };
  const { result } = await untilFree(
    () =>
      db.transaction(attempt).catch((error: unknown) => {
        if (isBusy(error)) return undefined;
        throw error;
      }),
    async () => `schema slotsync is in use by ${await describeHolders(db)}`,
    waiting,
  );
  return result;
}

/** Returns the driver's error, which the state's error wraps. */
export const causeOf = (error: unknown) => (error instanceof Error ? error.cause : error);

function isBusy(error: unknown): boolean {
  const cause = causeOf(error);
  // Processes that create an object at the same time violate a unique index of the catalogue.
  const isMet =
    cause instanceof postgres.PostgresError && cause.code === '23505' && cause.schema_name === 'pg_catalog';
  return isMet || TRY_AGAIN.includes(codeOf(cause));
}

/** Describes the sessions that hold the lock. Without a lock, describes those that use any table of the state. */
export async function describeHolders(db: Pick<Queries, 'execute'>, lock?: Lock): Promise<string> {
  const holders = await queryColumn<string>(db)`
    SELECT format('''%s'' of role %s, server process %s', application_name, usename, pid)
      || coalesce(', from ' || host(client_addr), '')
      || coalesce(to_char(xact_start AT TIME ZONE 'UTC', '", since "YYYY-MM-DD HH24:MI:SS "UTC"'), '')
    FROM pg_catalog.pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database() AND pid IN (
      SELECT l.pid FROM pg_catalog.pg_locks AS l
      JOIN pg_catalog.pg_class AS c ON c.oid = l.relation JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE l.granted AND CASE WHEN ${lock === undefined} THEN n.nspname IN ('slotsync', 'slotsync_queue')
        ELSE n.nspname = 'slotsync' AND c.relname = ${`lock_${lock}`} AND l.mode <> 'AccessShareLock' END)
    ORDER BY xact_start NULLS LAST, pid LIMIT ${MOST_NAMED}`;
  return holders.join('; ') || 'another session';
}
