// The processes that work the queue, whether each is alive, and whether it sends: what one process knows of itself is
// told to whoever looks from another.
import { sql } from 'drizzle-orm';
import { agoOf, query, queryOne, type Queries, type RowOf, type State } from './database.js';
import type { Fingerprints } from '../streams/fingerprints.js';
import { describeHolders, tryLock } from './locks.js';
import type { processes } from './schema.js';

/** The configuration that a process has. `loadedAt`: by the clock of its host. */
export interface ProcessConfiguration extends Fingerprints {
  loadedAt: Date;
}

/** A process, as it was seen last. */
export interface Process extends RowOf<typeof processes> {
  /** Renewed lately. False: it was killed, sleeps, or cannot reach the state. */
  isAlive: boolean;
}

type OwnProcess = Pick<Process, 'id' | 'command' | 'host' | 'pid'> &
  Partial<Pick<Process, 'requestsPerSecond'>>;

/** A process that lives and sends nothing. */
export const isStopped = (
  process: Process,
): process is Process & { stoppedSince: Date; errorCode: string; errorMessage: string } =>
  process.isAlive && process.stoppedSince !== null;

/** Why a process stopped sending. */
export interface SendingStopped {
  code: string;
  message: string;
}

/** The processes at work, as one of them sees the others. */
export interface Pool {
  /** Others that send. */
  others: number;
  /** The least `API_REQUESTS_PER_SECOND` of the others, and the process that has it. Null: no other process is at work. */
  least: { requestsPerSecond: number; process: string } | null;
}

type Noted = Pool & ({ isPutBack: true; notedAt: null } | { isPutBack: false; notedAt: string });

/** The columns `others` and `least`: what a process sees of the others. */
const poolBeside = (id: string) => sql`
  (SELECT count(*)::int FROM slotsync.processes AS p WHERE ${isAtWork} AND p.id <> ${id} AND p.stopped_since IS NULL) AS others,
  (SELECT jsonb_build_object('requestsPerSecond', p.requests_per_second,
      'process', format('%s on %s, process %s', p.command, p.host, p.pid))
    FROM slotsync.processes AS p WHERE ${isAtWork} AND p.id <> ${id} AND p.requests_per_second IS NOT NULL
    ORDER BY p.requests_per_second LIMIT 1) AS least`;

/** The processes at work, for a process that has not noted itself: it only reads, or begins. */
export const readPool = (db: Queries): Promise<Pool> => queryOne<Pool>(db)`SELECT ${poolBeside('')}`;

/** A process that was killed is forgotten after this time. */
export const KEEP_PROCESSES_DAYS = 7;
/** A process renews its row so often. */
export const RENEW_PROCESS_MS = 5000;
/** A process whose row was not renewed for this long is taken for ended: some renewals may fail. */
export const ALIVE_SECONDS = 30;

/** Whether the process `p` is alive. */
const isAtWork = sql`(p.seen_at > now() - make_interval(secs => ${ALIVE_SECONDS}))`;

/**
 * Adds a process, or renews it: `stopped` says why it sends nothing; null: it sends. `isChanged`: the files of its
 * configuration are others now. `notedAt`: when it did so last, as this function has said it. `isPutBack`: the state has
 * forgotten that, earlier than it forgets processes; then nothing is noted.
 */
export async function notePresence(
  db: Queries,
  { id, command, host, pid, requestsPerSecond = null }: OwnProcess,
  stopped: SendingStopped | null,
  {
    configuration,
    isChanged = false,
    notedAt,
  }: {
    configuration?: ProcessConfiguration | undefined;
    isChanged?: boolean;
    notedAt?: string | undefined;
  } = {},
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

/** A process stops: nothing of it is left. */
export async function removeProcess(db: Queries, id: string): Promise<void> {
  await query(db)`DELETE FROM slotsync.processes WHERE id = ${id}`;
}

/** Every process that has not stopped in order, the longest at work first. */
export async function listProcesses(db: Queries): Promise<Process[]> {
  return query<Process>(db)`
    SELECT id, command, host, pid, started_at AS "startedAt", seen_at AS "seenAt", stopped_since AS "stoppedSince",
      error_code AS "errorCode", error_message AS "errorMessage", configuration, fingerprints,
      configuration_loaded_at AS "configurationLoadedAt", configuration_changed_at AS "configurationChangedAt",
      requests_per_second AS "requestsPerSecond", ${isAtWork} AS "isAlive"
    FROM slotsync.processes AS p ORDER BY started_at, id`;
}

/**
 * The processes and readings at work with the state, as texts. Takes the locks of readings, so none begins before the transaction
 * ends. `beside`: a process that is left out.
 */
export async function listWorking(tx: Queries, beside?: Pick<Process, 'host' | 'pid'>): Promise<string[]> {
  const processes = (await listProcesses(tx)).filter(
    ({ host, pid, isAlive }) => isAlive && !(host === beside?.host && pid === beside.pid),
  );
  const working = processes.map(({ command, host, pid }) => `${command} on ${host}, process ${pid}`);
  for (const kind of ['reconcile', 'verify'] as const)
    if (!(await tryLock(tx, kind))) working.push(`${kind}: ${await describeHolders(tx, kind)}`);
  return working;
}

/** Records claimed by processes that are not alive: no other may write them before the last of these claims expires. */
export interface OrphanedClaims {
  records: number;
  until: Date | null;
}

/** No claim is longer valid than this after its process was seen last, whatever its request timeout. */
const CLAIMS_END_MINUTES = 15;

/**
 * Finding claims reads all records: an index of them would make each claim and each outcome of a batch write all indexes of its
 * records. So they are read only within minutes after a process was killed.
 */
export async function countOrphanedClaims(db: Queries): Promise<OrphanedClaims> {
  return queryOne<OrphanedClaims>(db)`
    WITH silent AS (
      SELECT id FROM slotsync.processes WHERE seen_at <= now() - make_interval(secs => ${ALIVE_SECONDS})
        AND seen_at > now() - make_interval(mins => ${CLAIMS_END_MINUTES})
    )
    SELECT count(*)::int AS records, max(claimed_until) AS until FROM slotsync.records AS r
    WHERE EXISTS (SELECT FROM silent) AND r.claimed_until > now()
      AND split_part(r.claimed_by, ' ', 1) IN (SELECT id FROM silent)`;
}

/** Connections of all processes to the state's database, by their purpose. */
export interface Connections {
  duty: string;
  count: number;
}

/** A role that is not a superuser sees its own connections alone, which all processes of a state have. */
export const countConnections = (db: Queries): Promise<Connections[]> => query<Connections>(db)`
  SELECT substr(application_name, 10) AS duty, count(*)::int AS count FROM pg_stat_activity
  WHERE application_name LIKE 'slotsync %' AND datname = current_database() GROUP BY duty ORDER BY duty`;

/** A transaction of any program in the state's database. */
export interface OpenTransaction {
  pid: number;
  /** Empty where the client gave none. */
  application: string;
  role: string;
  openSeconds: number;
}

/**
 * The oldest transaction that keeps the server from removing former versions of rows, such as pg_dump's, when it has been open for this
 * long. Of other roles it is seen only with the rights of `pg_read_all_stats`.
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
