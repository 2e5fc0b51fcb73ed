// Processes that work the queue: which are alive, and which are sending. Other processes read this from the table
// `processes`.
import { sql } from 'drizzle-orm';
import { agoOf, ifPresent, query, queryOne, type Queries, type RowOf, type State } from './database.js';
import type { Fingerprints } from '../streams/fingerprints.js';
import { describeHolders, tryLock, type Lock } from './locks.js';
import { columnList, processes } from './schema.js';

/** Configuration that a process has loaded. `loadedAt` is by the clock of its host. */
export interface ProcessConfiguration extends Fingerprints {
  loadedAt: Date;
}

export interface Process extends RowOf<typeof processes> {
  /** False if the process did not renew its row recently: it was killed, is suspended, or cannot reach the state. */
  isAlive: boolean;
}

type OwnProcess = Pick<Process, 'id' | 'command' | 'host' | 'pid'> &
  Partial<Pick<Process, 'requestsPerSecond'>>;

export const isStopped = (
  process: Process,
): process is Process & { stoppedSince: Date; errorCode: string; errorMessage: string } =>
  process.isAlive && process.stoppedSince !== null;

export interface SendingStopped {
  code: string;
  message: string;
}

export interface Pool {
  /** Number of other sending processes. */
  others: number;
  /** Lowest `API_REQUESTS_PER_SECOND` of the other processes, with its process. Null if there is no other process. */
  least: { requestsPerSecond: number; process: string } | null;
}

interface Renewal {
  configuration?: ProcessConfiguration | undefined;
  isChanged?: boolean;
  notedAt?: string | undefined;
}

type Noted = Pool & ({ isPutBack: true; notedAt: null } | { isPutBack: false; notedAt: string });

/** SQL columns `others` and `least` of a `Pool`, which exclude the process `id`. */
const poolBeside = (id: string) => sql`
  (SELECT count(*)::int FROM slotsync.processes AS p WHERE ${isAtWork} AND p.id <> ${id} AND p.stopped_since IS NULL) AS others,
  (SELECT jsonb_build_object('requestsPerSecond', p.requests_per_second,
      'process', format('%s on %s, process %s', p.command, p.host, p.pid))
    FROM slotsync.processes AS p WHERE ${isAtWork} AND p.id <> ${id} AND p.requests_per_second IS NOT NULL
    ORDER BY p.requests_per_second LIMIT 1) AS least`;

/** Reads the facts about all living processes, for a process without a row. */
export const readPool = (db: Queries): Promise<Pool> => queryOne<Pool>(db)`SELECT ${poolBeside('')}`;

/** Days after which the row of a killed process is deleted. */
export const KEEP_PROCESSES_DAYS = 7;
/** Interval at which a process renews its row. */
export const RENEW_PROCESS_MS = 5000;
/** Seconds without renewal after which a process counts as ended. Some renewals may fail. */
export const ALIVE_SECONDS = 30;

const isAtWork = sql`(p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS}))`;

/**
 * Inserts or renews the row of a process. `stopped` is the error that keeps it from sending, or null. `isChanged`: its
 * configuration files have changed. `notedAt` is the result of the previous call. If the state has lost that recent
 * renewal, it was restored: the result is `isPutBack`, and nothing is stored.
 */
export async function notePresence(
  db: Queries,
  { id, command, host, pid, requestsPerSecond = null }: OwnProcess,
  stopped: SendingStopped | null,
  { configuration, isChanged = false, notedAt }: Renewal = {},
): Promise<Noted> {
  const last = notedAt ?? '-infinity';
  return queryOne<Noted>(db)`
    WITH before AS (
      SELECT coalesce(max(seen_at), '-infinity') < ${last}::timestamptz
        AND ${last}::timestamptz > now() - make_interval(days => ${KEEP_PROCESSES_DAYS}) AS is_put_back
      FROM slotsync.processes WHERE id = ${id}
    ), noted AS (
    INSERT INTO slotsync.processes AS p (id, command, host, pid, requests_per_second, stopped_since, error_code, error_message, configuration,
      fingerprints, configuration_loaded_at, configuration_changed_at)
    SELECT ${id}, ${command}, ${host}, ${pid}::int, ${requestsPerSecond}::int, CASE WHEN ${stopped !== null} THEN now() END,
      ${stopped?.code ?? null}, ${stopped?.message ?? null}, ${configuration?.configuration ?? null},
      ${configuration ? JSON.stringify(configuration.streams) : null}::jsonb,
      now() - ${configuration ? agoOf(configuration.loadedAt) : null}::text::interval, CASE WHEN ${isChanged} THEN now() END
    FROM before WHERE NOT is_put_back
    ON CONFLICT (id) DO UPDATE SET seen_at = now(),
      stopped_since = CASE WHEN ${stopped !== null} THEN coalesce(p.stopped_since, now()) END,
      error_code = excluded.error_code, error_message = excluded.error_message,
      configuration_changed_at = CASE WHEN ${isChanged} THEN coalesce(p.configuration_changed_at, now()) END
    RETURNING seen_at::text)
    SELECT is_put_back AS "isPutBack", (SELECT seen_at FROM noted) AS "notedAt", ${poolBeside(id)} FROM before`;
}

export async function removeProcess(db: Queries, id: string): Promise<void> {
  await query(db)`DELETE FROM slotsync.processes WHERE id = ${id}`;
}

/** Returns all processes that have not stopped properly, oldest first. */
export const listProcesses = (db: Queries) => query<Process>(db)`
  SELECT ${columnList(processes, 'p')}, ${isAtWork} AS "isAlive"
  FROM slotsync.processes AS p ORDER BY started_at, id`;

/**
 * Describes the living processes except `beside`, and the holders of `locks`. Takes the other locks until the transaction
 * ends, so that neither reconcile nor verify can begin. Works with every version of the schema.
 */
export async function listWorking(
  tx: Queries,
  beside?: Pick<Process, 'host' | 'pid'>,
  locks: readonly Lock[] = ['reconcile', 'verify'],
): Promise<string[]> {
  const alive = await ifPresent(
    tx,
    (nested) => query<Pick<Process, 'command' | 'host' | 'pid'>>(nested)`
      SELECT command, host, pid FROM slotsync.processes AS p WHERE ${isAtWork} ORDER BY command, host, pid`,
  );
  const working = (alive ?? [])
    .filter(({ host, pid }) => !(host === beside?.host && pid === beside.pid))
    .map(({ command, host, pid }) => `${command} on ${host}, process ${pid}`);
  for (const lock of locks)
    if ((await ifPresent(tx, (nested) => tryLock(nested, lock))) === false)
      working.push(`${lock}: ${await describeHolders(tx, lock)}`);
  return working;
}

/** Minutes after the last sign of life of a process within which all of its claims expire. */
const CLAIMS_END_MINUTES = 15;

/**
 * Counts records claimed by dead processes. It scans all records, because an index on claims would slow down every
 * batch. The scan therefore runs only in the first minutes after a process died.
 */
export const countOrphanedClaims = (db: Queries) => queryOne<{ records: number; until: Date | null }>(db)`
  WITH silent AS (
    SELECT id FROM slotsync.processes WHERE seen_at <= now() - make_interval(secs => ${ALIVE_SECONDS})
      AND seen_at > now() - make_interval(mins => ${CLAIMS_END_MINUTES})
  )
  SELECT count(*)::int AS records, max(claimed_until) AS until FROM slotsync.records AS r
  WHERE EXISTS (SELECT FROM silent) AND r.claimed_until > now()
    AND split_part(r.claimed_by, ' ', 1) IN (SELECT id FROM silent)`;

export interface Connections {
  duty: string;
  count: number;
}

/** A role that is not a superuser sees only its own connections, but all processes of a state use the same role. */
export const countConnections = (db: Queries): Promise<Connections[]> => query<Connections>(db)`
  SELECT substr(application_name, 10) AS duty, count(*)::int AS count FROM pg_stat_activity
  WHERE application_name LIKE 'slotsync %' AND datname = current_database() GROUP BY duty ORDER BY duty`;

/** Open transaction of any program in the state's database. */
export interface OpenTransaction {
  pid: number;
  /** Empty if the client has set no name. */
  application: string;
  role: string;
  openSeconds: number;
}

/**
 * Returns the oldest transaction, such as pg_dump's, that prevents VACUUM for at least `openForSeconds`. Transactions
 * of other roles are visible only with the rights of `pg_read_all_stats`.
 */
export async function readOldestSnapshot(
  { db }: Pick<State, 'db'>,
  openForSeconds: number,
): Promise<OpenTransaction | undefined> {
  const [oldest] = await query<OpenTransaction>(db)`
    SELECT pid, coalesce(application_name, '') AS application, usename AS role,
      extract(epoch FROM clock_timestamp() - xact_start)::float8 AS "openSeconds"
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND xact_start <= clock_timestamp() - make_interval(secs => ${openForSeconds}::float8)
    ORDER BY xact_start LIMIT 1`;
  return oldest;
}
