// The state database: one client, one set of typed tables, one way its failures are named.
import { fileURLToPath } from 'node:url';
import { sql, type SQL } from 'drizzle-orm';
import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import postgres from 'postgres';
import { arrayLiteral } from '../sql-text.js';
import { codeOf, messageOf, SlotsyncError } from '../errors.js';
import * as schema from './schema.js';

export type Database = PostgresJsDatabase<typeof schema>;
/** A database or an open transaction in it. */
export type Queries = Pick<Database, 'select' | 'insert' | 'update' | 'delete' | 'execute' | 'transaction'>;

export type State = ReturnType<typeof openState>;

export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url));
export const MIGRATIONS_TABLE = { migrationsSchema: 'slotsync', migrationsTable: 'migrations' };

/** Opens the state. Nothing connects before the first query. */
export function openState({ url, connections = 10 }: { url: string; connections?: number }) {
  const client = postgres(url, {
    max: connections,
    connect_timeout: 10,
    onnotice: () => undefined,
    connection: { application_name: 'slotsync state' },
  });
  const db = drizzle(client, { schema });
  return {
    db,
    url,
    close: () => client.end({ timeout: 2 }),
  };
}

/** Runs queries; a failure becomes a SlotsyncError `state_…`, without the statement and its values. */
export async function queryState<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw asStateError(error);
  }
}

export function asStateError(thrown: unknown): unknown {
  if (thrown instanceof SlotsyncError) return thrown;
  // drizzle wraps the driver's error in one whose message holds the parameters.
  const error = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  const code = codeOf(error);
  const unreachable = /^(E[A-Z]+|CONNECT|CONNECTION_|08|57P)/.test(code);
  const refused = /^(28|3D)/.test(code);
  return new SlotsyncError(
    unreachable ? 'state_unreachable' : refused ? 'state_refused' : 'state_failed',
    unreachable
      ? `the state database cannot be reached (${code})`
      : `the state database ${refused ? 'refused the connection' : 'could not answer'}: ${messageOf(error)}`,
    {
      facts: { sqlstate: code },
      cause: error,
    },
  );
}

/**
 * `= ANY (…)` of these texts. The planner sees how many there are and takes the index; for `IN (SELECT …)` over a JSON
 * list it would read the whole table.
 */
export function anyOf(texts: readonly string[]): SQL {
  return sql`ANY (${arrayLiteral(texts)}::text[])`;
}
