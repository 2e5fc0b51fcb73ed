// Role of the state's connections. It is compared with the mirror's role, and roles belong to a server.
import { SlotsyncError } from '../errors/errors.js';
import { query, queryOne, queryValue, type Queries, type State } from './database.js';

export interface StateRole {
  role: string;
  /** Start time and port identify the server. Two connections are to the same server if both are equal. */
  startedAt: string;
  port: string;
}

export const readStateRole = ({ db }: Pick<State, 'db'>) => queryOne<StateRole>(db)`
  SELECT current_user::text AS role, extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
    current_setting('port') AS port`;

/** Returns why the state is read-only, or null. Ignores a setting of a single role, because other roles can write. */
export const readWhyReadOnly = (db: Queries) => queryValue<'standby' | 'setting' | null>(db)`
  SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' WHEN EXISTS (
    SELECT FROM pg_settings WHERE name = 'default_transaction_read_only' AND reset_val = 'on'
      AND source IN ('configuration file', 'command line', 'database')) THEN 'setting' END AS why`;

/** Rights of a role that may not write, most rights first. */
const RIGHTS = {
  read: {
    may: 'may only read the state',
    also: 'may run: slotsync status, runs, failures, report, alerts, page',
  },
  note: {
    may: 'may only add changes to the inbox',
    also: 'may insert into slotsync.changes: docs/incremental-sync.md',
  },
  none: { may: 'may not read the state', also: 'needs the rights in docs/security.md' },
} as const;

interface Writer {
  role: string;
  owner: string;
  /** True also for a standby server. */
  isReadOnly: boolean;
  may: keyof typeof RIGHTS | 'write';
}

/**
 * Throws `state_rights` if the role may not write to the state, with the rights that it has. Throws `state_read_only`
 * if no role can write.
 */
export async function requireWriter({ db }: Pick<State, 'db'>): Promise<void> {
  const [found] = await query<Writer>(db)`
    SELECT current_user::text AS role, pg_get_userbyid(n.nspowner) AS owner,
      current_setting('transaction_read_only')::bool AS "isReadOnly", CASE
      WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN 'none'
      WHEN has_table_privilege(r.oid, 'INSERT') THEN 'write'
      WHEN has_table_privilege(r.oid, 'SELECT') THEN 'read'
      WHEN has_any_column_privilege(c.oid, 'INSERT') THEN 'note' ELSE 'none' END AS may
    FROM pg_namespace AS n
    JOIN pg_class AS r ON r.relnamespace = n.oid AND r.relname = 'records'
    JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = 'changes'
    WHERE n.nspname = 'slotsync'`;
  if (found?.isReadOnly) throw new SlotsyncError('state_read_only', 'the state database is read-only');
  if (!found || found.may === 'write') return;
  const { role, owner, may } = found;
  throw new SlotsyncError('state_rights', `the role of STATE_DATABASE_URL, ${role}, ${RIGHTS[may].may}`, {
    remedy: `Run this command as ${owner}, which owns the state. ${role} ${RIGHTS[may].also}`,
  });
}
