// The role of the state's connections, to be compared with the mirror's: roles belong to a server.
import { queryOne, type State } from './database.js';

export interface StateRole {
  role: string;
  /** Identifies the server. Two connections are at the same server when both are equal. */
  startedAt: string;
  port: string;
}

export function readStateRole({ db }: Pick<State, 'db'>): Promise<StateRole> {
  return queryOne<StateRole>(db)`
    SELECT current_user::text AS role, extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt",
      current_setting('port') AS port`;
}
