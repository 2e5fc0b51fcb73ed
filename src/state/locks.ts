// Locks between processes: each is the lock of a table of ours that holds nothing, so only roles with rights on the state can take
// one. Any role that may connect can take an advisory lock. The lock of a row would give a reading that lasts an hour an id of
// its transaction, which keeps the whole database from being cleaned up.
import postgres from 'postgres';
import { codeOf, SlotsyncError } from '../errors/errors.js';
import { formatDuration } from '../text/format.js';
import { query, queryOne, type Queries } from './database.js';

/** Its table is `lock_<name>`. */
export type Lock = 'migrate' | 'run_start' | 'inbox' | 'polling' | 'alerts' | 'reconcile' | 'verify';

/** How a process waits for what another session holds. */
export interface Waiting {
  /** Learns after a second whom it waits for, and whenever that changes. */
  onWait?: ((sentence: string) => void) | undefined;
  /** Ends the waiting within a second. */
  signal?: AbortSignal | undefined;
  giveUpAfterMs?: number | undefined;
}

const GIVE_UP_AFTER_MS = 60_000;
/** Sessions that are named. */
const MOST_NAMED = 3;

/** Takes the lock until the transaction ends; false: another session has it. */
export const tryLock = (tx: Queries, lock: Lock): Promise<boolean> => take(tx, lock, false);

/** Between two signs of life of a transaction that rests: the server ends one that has rested for a minute. */
const ALIVE_EVERY_MS = 20_000;

/** Does the work while the transaction holds a lock and rests, however long that is. */
export async function whileHolding<T>(
  tx: Queries,
  work: () => Promise<T>,
  everyMs = ALIVE_EVERY_MS,
): Promise<T> {
  // The server keeps the snapshot of a SELECT until the next statement, which would keep the whole database from being cleaned up as long
  // as the work lasts, and SHOW has none.
  const show = () => void query(tx)`SHOW idle_in_transaction_session_timeout`.catch(() => undefined);
  const timer = setInterval(show, everyMs);
  show();
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Waits for the lock, which ends with the transaction. Throws SlotsyncError `state_locked` when it is not free in time. */
export async function takeLock(tx: Queries, lock: Lock, waiting?: Waiting): Promise<void> {
  await untilFree(
    async () => (await take(tx, lock, true)) || undefined,
    async () => `${lock} (table slotsync.lock_${lock}) is locked by ${await describeHolders(tx, lock)}`,
    waiting,
  );
}

async function take(tx: Queries, lock: Lock, waits: boolean): Promise<boolean> {
  const { taken } = await queryOne<{ taken: boolean }>(
    tx,
  )`SELECT slotsync.take_lock(${lock}, ${waits}) AS taken`;
  return taken;
}

/**
 * Attempts again while the attempt returns undefined. An attempt waits at the server for a second; `describe` says then what it waits for.
 * Throws SlotsyncError `state_locked` when the time is over.
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

/** SQLSTATEs that end an attempt: a lock was not free, a deadlock, or another process has created the same schema or table. */
const TRY_AGAIN = ['55P03', '40P01', '42P06', '42P07'];

/**
 * Changes tables of ours in one transaction, which is attempted again while other sessions use them. Throws SlotsyncError
 * `state_locked` when they do so for too long.
 */
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

/** The driver's error, which the state wraps. */
export const causeOf = (error: unknown) => (error instanceof Error ? error.cause : error);

function isBusy(error: unknown): boolean {
  const cause = causeOf(error);
  // Two that create the same thing at once meet in an index of the catalogue.
  const isMet =
    cause instanceof postgres.PostgresError && cause.code === '23505' && cause.schema_name === 'pg_catalog';
  return isMet || TRY_AGAIN.includes(codeOf(cause));
}

/** The sessions that have the lock; without one, those that use any table of ours. */
export async function describeHolders(db: Pick<Queries, 'execute'>, lock?: Lock): Promise<string> {
  const holders = await query<{
    pid: number;
    name: string;
    role: string;
    address: string | null;
    since: string | null;
  }>(db)`
    SELECT pid, application_name AS name, usename::text AS role, host(client_addr) AS address,
      to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') AS since
    FROM pg_catalog.pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database() AND pid IN (
      SELECT l.pid FROM pg_catalog.pg_locks AS l
      JOIN pg_catalog.pg_class AS c ON c.oid = l.relation JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE l.granted AND CASE WHEN ${lock === undefined} THEN n.nspname IN ('slotsync', 'slotsync_queue')
        ELSE n.nspname = 'slotsync' AND c.relname = ${`lock_${lock}`} AND l.mode <> 'AccessShareLock' END)
    ORDER BY xact_start NULLS LAST, pid LIMIT ${MOST_NAMED}`;
  if (holders.length === 0) return 'another session';
  return holders
    .map(({ pid, name, role, address, since }) =>
      [
        `'${name}' of role ${role}`,
        `server process ${pid}${address === null ? '' : `, from ${address}`}`,
        ...(since === null ? [] : [`since ${since}`]),
      ].join(', '),
    )
    .join('; ');
}
