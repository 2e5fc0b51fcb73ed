// Watches what one database is connected to, by the names that connections have at the server.
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';

/** Looks every few milliseconds until it is stopped. Connections of tests themselves are left out: `postgres.js`. */
export function watchConnections(url: string) {
  const sql = postgres(url, { max: 1, connection: { application_name: 'postgres.js' } });
  const stopping = new AbortController();
  let most: readonly string[] = [];
  const names = new Set<string>();

  async function now(): Promise<string[]> {
    const rows = await sql<{ name: string }[]>`
      SELECT application_name AS name FROM pg_stat_activity
      WHERE datname = current_database() AND backend_type = 'client backend' AND application_name <> 'postgres.js'
      ORDER BY name`;
    return rows.map(({ name }) => name);
  }
  async function watch(): Promise<void> {
    while (!stopping.signal.aborted) {
      const found = await now();
      found.forEach((name) => names.add(name));
      if (found.length > most.length) most = found;
      await pause(5);
    }
  }
  const watching = watch();

  return {
    now,
    /** The names of the connections at the moment when there were most of them. */
    most: () => most,
    /** Every name that was seen. */
    names: () => [...names],
    async stop(): Promise<void> {
      stopping.abort();
      await watching;
      await sql.end();
    },
  };
}
