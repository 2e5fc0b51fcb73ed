// Finds streams whose triggers are gone. A table that is created anew loses its triggers, and only the next sync finds
// its changes. PostgreSQL keeps the trigger functions, which are in the same database as the state.
import { FUNCTION_COMMENT, functionName } from '../../streams/trigger-functions.js';
import { anyOf, query, type Queries } from '../database.js';

/** Returns streams whose trigger function exists, but is not called by three enabled triggers of its table. */
export async function listLostTriggers(db: Queries, streams: readonly string[]): Promise<string[]> {
  const rows = await query<{ name: string }>(db)`
    SELECT p.proname::text AS name FROM pg_catalog.pg_proc AS p
    WHERE p.proname = ${anyOf(streams.map(functionName))} AND p.prorettype = 'trigger'::regtype AND 3 > (
      SELECT count(*) FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
      WHERE t.tgfoid = p.oid AND t.tgenabled IN ('O', 'A') AND c.relnamespace = p.pronamespace
        AND pg_catalog.obj_description(p.oid, 'pg_proc') = ${FUNCTION_COMMENT} || c.relname)`;
  const lost = new Set(rows.map(({ name }) => name));
  return streams.filter((stream) => lost.has(functionName(stream)));
}
