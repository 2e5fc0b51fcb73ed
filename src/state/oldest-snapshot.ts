// Sessions that keep the server from removing former versions of rows: pg_dump, or a transaction that was forgotten.
import { query, type State } from './database.js';

export interface OpenTransaction {
  pid: number;
  /** Empty where the client gave none. */
  application: string;
  role: string;
  openSeconds: number;
}

/**
 * The oldest transaction in the state's database that holds a snapshot or has written, when it has been open for this long.
 * Of other roles it is seen only with the rights of `pg_read_all_stats`.
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
