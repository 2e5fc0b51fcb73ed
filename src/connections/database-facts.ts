// Reads facts by which a database is recognized, whatever its address is. They reveal that the address leads to another
// database or to a restored one. They are read over the connection in use, because a pooler or a list of hosts may lead
// to any server.
import { readConnectionFault } from './postgres-faults.js';

/** Facts that identify a database. Null means unknown: the role may not ask, or the server does not say. */
export interface DatabaseFacts {
  /** System identifier of the cluster. Replicas have the same identifier. */
  systemId: string | null;
  databaseOid: string;
  /** OID of a table in the database. A restore creates the table anew, with another OID. */
  tableOid: string | null;
  isReplica: boolean;
  /** WAL timeline. It rises when a replica is promoted and when a backup is recovered. */
  timeline: number | null;
  /** WAL position in bytes: how much is on disk, or how much a replica has replayed. */
  walPosition: number | null;
  /** True if the server has replayed transactions that were committed after its start: it is or was a replica. */
  hasFollowed: boolean;
}

/** Facts that are stored and compared with later facts. */
export type NotedFacts = Omit<DatabaseFacts, 'isReplica' | 'hasFollowed'>;

/** Result of a comparison. `other`: another database, or older data. `why` completes a sentence about the database. */
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

/** Reads the facts. `table` names a table that a restore creates anew. Throws what `ask` throws. */
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
  if (!known) throw new Error('the database returned no row');
  const { may, ...facts } = known;
  return { ...facts, ...(await readServerFacts(ask, facts, may.split(' '))) };
}

/** Reads the facts for which the role needs rights on functions. A server may still lack a permitted function. */
async function readServerFacts(
  ask: Ask,
  { isReplica }: Pick<DatabaseFacts, 'isReplica'>,
  may: readonly string[],
) {
  const ifMay = (names: readonly string[], expression: string) =>
    names.every((name) => may.includes(name)) ? expression : 'NULL';
  const position = isReplica ? 'pg_last_wal_replay_lsn()' : 'pg_current_wal_flush_lsn()';
  // The last checkpoint of a newly promoted server still has the previous timeline.
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

/** Compares facts with earlier facts: is it the same database, and is its data at least as recent? */
export function recognize(noted: NotedFacts, seen: DatabaseFacts): Recognition {
  const other = (why: string) => ({ is: 'other', why }) as const;
  const differs = (name: 'systemId' | 'databaseOid' | 'tableOid') =>
    noted[name] !== null && seen[name] !== null && noted[name] !== seen[name];
  if (differs('systemId'))
    return other(`is on another server (system identifier ${seen.systemId}, before ${noted.systemId})`);
  if (differs('databaseOid'))
    return other(`is another database of its server (oid ${seen.databaseOid}, before ${noted.databaseOid})`);
  if (differs('tableOid')) return other('has recreated tables, as after a restore');
  const [rise, ahead] = [
    (seen.timeline ?? 0) - (noted.timeline ?? 0),
    (seen.walPosition ?? 0) - (noted.walPosition ?? 0),
  ];
  const isTimelineKnown = seen.timeline !== null && noted.timeline !== null;
  const isBehind = seen.walPosition !== null && noted.walPosition !== null && ahead < 0;
  const isRisen = isTimelineKnown && rise > 0;
  // A replica may lag behind, on its present timeline or on the previous timeline.
  if (seen.isReplica && !isRisen) return { is: 'same' };
  if (isBehind || (isTimelineKnown && rise < 0))
    return other(
      `was restored to an earlier time (timeline ${seen.timeline}, before ${noted.timeline}, and its write-ahead log ends earlier)`,
    );
  if (!isRisen) return { is: 'same' };
  if (seen.hasFollowed) return { is: 'promoted' };
  return other(`was recovered from a backup (timeline ${seen.timeline}, before ${noted.timeline})`);
}

/** Identity of a connection's database. Two connections use the same database if their identities are equal. */
export interface DatabaseIdentity {
  database: string;
  startedAt: string;
  port: string;
}

/** SQL that returns one DatabaseIdentity row. */
export const SELECT_DATABASE_IDENTITY = `
  SELECT current_database() AS database, extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
    current_setting('port') AS port`;
