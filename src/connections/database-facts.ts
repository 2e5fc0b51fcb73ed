// Facts by which a database is recognized, whatever its address: so that another one, or one whose data was put back, is
// noticed. Asked of the connection that is used: behind a pooler or a list of hosts it may lead anywhere.
import { readConnectionFault } from './postgres-faults.js';

/** A null is not known: the role may not ask, or the server does not say. */
export interface DatabaseFacts {
  /** The cluster's. Its replicas have the same. */
  systemId: string | null;
  databaseOid: string;
  /** A table's in it: a restore makes it anew. */
  tableOid: string | null;
  isReplica: boolean;
  /** Rises when a replica is promoted, and when a backup is recovered. */
  timeline: number | null;
  /** Bytes of the write-ahead log that are on disk, or replayed by a replica. */
  walPosition: number | null;
  /** It has replayed what was committed after its start: it is a replica, or one that was promoted. */
  hasFollowed: boolean;
}

/** The facts that are compared with later ones. */
export type NotedFacts = Omit<DatabaseFacts, 'isReplica' | 'hasFollowed'>;

/** `other`: another database, or its data may be older than it was; `why` follows its name in a sentence. */
export type Recognition = { is: 'same' | 'promoted' } | { is: 'other'; why: string };

type Ask = <T extends object>(statement: string) => PromiseLike<readonly T[]>;

const FUNCTIONS = [
  'pg_control_system()',
  'pg_control_checkpoint()',
  'pg_current_wal_flush_lsn()',
  'pg_walfile_name(pg_lsn)',
  'pg_last_wal_replay_lsn()',
  'pg_last_xact_replay_timestamp()',
];

/** Reads the facts; `table` is one that a restore makes anew. Throws what `ask` throws. */
export async function readDatabaseFacts(ask: Ask, table?: string): Promise<DatabaseFacts> {
  const [known] = await ask<{
    databaseOid: string;
    tableOid: string | null;
    isReplica: boolean;
    may: string;
  }>(`
    SELECT (SELECT oid FROM pg_database WHERE datname = current_database())::text AS "databaseOid",
      ${table === undefined ? 'NULL' : `to_regclass('${table}')::oid::text`} AS "tableOid",
      pg_is_in_recovery() AS "isReplica",
      (SELECT coalesce(string_agg(name, ' '), '') FROM unnest(ARRAY['${FUNCTIONS.join("', '")}']) AS f(name)
        WHERE has_function_privilege(to_regprocedure(name), 'execute')) AS may`);
  if (!known) throw new Error('the database answered no row');
  const { may, ...facts } = known;
  return { ...facts, ...(await readServerFacts(ask, facts, may.split(' '))) };
}

/** A server that permits a function may still not support it. */
async function readServerFacts(
  ask: Ask,
  { isReplica }: Pick<DatabaseFacts, 'isReplica'>,
  may: readonly string[],
) {
  const ifMay = (names: readonly string[], expression: string) =>
    names.every((name) => may.includes(name)) ? expression : 'NULL';
  const position = isReplica ? 'pg_last_wal_replay_lsn()' : 'pg_current_wal_flush_lsn()';
  // The last checkpoint of a server that was just promoted is of the timeline before.
  const timeline = isReplica
    ? ifMay(['pg_control_checkpoint()'], '(SELECT timeline_id FROM pg_control_checkpoint())')
    : ifMay(
        [position, 'pg_walfile_name(pg_lsn)'],
        `('x' || left(pg_walfile_name(${position}), 8))::bit(32)::int`,
      );
  const replayed = 'pg_last_xact_replay_timestamp()';
  const statement = `
    SELECT ${ifMay(['pg_control_system()'], '(SELECT system_identifier::text FROM pg_control_system())')} AS "systemId",
      (${timeline})::int AS timeline, (${ifMay([position], `${position} - '0/0'::pg_lsn`)})::float8 AS "walPosition",
      coalesce(${ifMay([replayed], `${replayed} > pg_postmaster_start_time()`)}, false) AS "hasFollowed"`;
  const nothing = { systemId: null, timeline: null, walPosition: null, hasFollowed: false };
  try {
    const [row] = await ask<typeof nothing>(statement);
    return row ?? nothing;
  } catch (error) {
    if (readConnectionFault(error) ?? readConnectionFault((error as Error).cause)) throw error;
    return nothing;
  }
}

/** Whether it is the database that was noted, with what it held then. */
export function recognize(noted: NotedFacts, seen: DatabaseFacts): Recognition {
  const other = (why: string) => ({ is: 'other', why }) as const;
  const differs = (name: 'systemId' | 'databaseOid' | 'tableOid') =>
    noted[name] !== null && seen[name] !== null && noted[name] !== seen[name];
  if (differs('systemId'))
    return other(`is on another server (system identifier ${seen.systemId}, before ${noted.systemId})`);
  if (differs('databaseOid'))
    return other(`is another database of its server (oid ${seen.databaseOid}, before ${noted.databaseOid})`);
  if (differs('tableOid')) return other('has its tables made anew, as a restore does');
  const [rise, ahead] = [
    (seen.timeline ?? 0) - (noted.timeline ?? 0),
    (seen.walPosition ?? 0) - (noted.walPosition ?? 0),
  ];
  const isTimelineKnown = seen.timeline !== null && noted.timeline !== null;
  const isBehind = seen.walPosition !== null && noted.walPosition !== null && ahead < 0;
  const isRisen = isTimelineKnown && rise > 0;
  // A replica may lag, on its timeline and on the one before.
  if (seen.isReplica && !isRisen) return { is: 'same' };
  if (isBehind || (isTimelineKnown && rise < 0))
    return other(
      `was put back to an earlier time (timeline ${seen.timeline}, before ${noted.timeline}, and its write-ahead log ends earlier)`,
    );
  if (!isRisen) return { is: 'same' };
  if (seen.hasFollowed) return { is: 'promoted' };
  return other(`was recovered from a backup (timeline ${seen.timeline}, before ${noted.timeline})`);
}

/** Two connections belong to the same database when these are equal. */
export interface DatabaseIdentity {
  database: string;
  startedAt: string;
  port: string;
}

/** Returns one DatabaseIdentity. */
export const SELECT_DATABASE_IDENTITY = `
  SELECT current_database() AS database, extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
    current_setting('port') AS port`;
