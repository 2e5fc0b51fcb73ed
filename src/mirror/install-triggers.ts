// Installs triggers on the tables of the mirror, when an operator asks for them. Nothing else writes to the mirror's
// database. The connection is that of the state, which may write; the mirror's own transactions stay read-only.
import { connectPostgres } from '../postgres-connection.js';
import type { SettingText } from '../setting-text.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors.js';
import type { Stream } from '../streams/stream.js';
import { SELECT_DATABASE_IDENTITY, type DatabaseIdentity } from './session-formats.js';
import { functionName, FUNCTION_PREFIX, installTriggers, removeTriggers, tableName } from './trigger-sql.js';

/** Writers of a table wait while a lock on it is requested: not for longer than this. */
const LOCK_TIMEOUT = '3s';

const KINDS: Record<string, string> = { v: 'a view', m: 'a materialized view', f: 'a foreign table' };

export type Triggers = ReturnType<typeof openTriggers>;

/** Opens the connection. Errors are SlotsyncError `triggers_…` or UsageError. */
export function openTriggers({ url, channel }: { url: SettingText; channel: string }) {
  const sql = connectPostgres(url, 'triggers');

  /** One transaction for each stream, so that a busy table does not undo the others. */
  async function run(name: string, statements: readonly string[]): Promise<void> {
    try {
      await sql.begin(async (tx) => {
        await tx.unsafe(`SET LOCAL lock_timeout = '${LOCK_TIMEOUT}'`);
        for (const statement of statements) await tx.unsafe(statement);
      });
    } catch (error) {
      throw asTriggersError(error, name);
    }
  }

  return {
    /** Which database this is, to be compared with the mirror's. */
    databaseIdentity: async () => (await sql.unsafe<DatabaseIdentity[]>(SELECT_DATABASE_IDENTITY))[0],

    /** Why a stream's source can have no triggers; undefined when it can. */
    async refusal({ name, source }: Stream): Promise<string | undefined> {
      if ('query' in source) return `${name}: its source is a query; triggers need a table`;
      const table = tableName({ source });
      const [row] = await sql<{ kind: string }[]>`
        SELECT relkind AS kind FROM pg_class WHERE oid = to_regclass(${table})`;
      if (!row) return `${name}: there is no table ${source.table.join('.')} that this role can see`;
      const kind = KINDS[row.kind];
      return kind && `${name}: ${source.table.join('.')} is ${kind}; triggers need a table`;
    },

    /** The statements that `install` would run. */
    async print(stream: Stream): Promise<string[]> {
      const [row] = await sql<{ role: string }[]>`SELECT current_user AS role`;
      return installTriggers(stream, channel, row?.role ?? 'CURRENT_USER');
    },

    /** Installs or updates a stream's triggers. Those on a table it had before are removed. */
    async install(stream: Stream): Promise<void> {
      const name = functionName(stream.name);
      const former = await sql`
        SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = 'slotsync' AND p.proname = ${name}
          AND t.tgrelid IS DISTINCT FROM to_regclass(${tableName(stream)}) LIMIT 1`;
      // Dropping the function drops its triggers, even on a table this role does not own.
      const drops = former.length > 0 ? [removeTriggers(name)] : [];
      await run(stream.name, [...drops, ...(await this.print(stream))]);
    },

    /** Names of the installed functions, those of streams that are no longer configured included. */
    async list(): Promise<string[]> {
      const rows = await sql<{ name: string }[]>`
        SELECT p.proname AS name FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
        WHERE n.nspname = 'slotsync' AND starts_with(p.proname, ${FUNCTION_PREFIX}) ORDER BY p.proname`;
      return rows.map(({ name }) => name);
    },

    /** Removes an installed function with its triggers, on any table. */
    remove: (name: string): Promise<void> => run(name, [removeTriggers(name)]),

    close: () => sql.end({ timeout: 1 }),
  };
}

function asTriggersError(error: unknown, name: string): unknown {
  const code = codeOf(error);
  if (code === '55P03') {
    return new SlotsyncError('triggers_busy', `${name}: its table is locked by other writers`, {
      remedy: `Nothing was changed for ${name}. Run the same command again when the table is less busy.`,
      cause: error,
    });
  }
  if (code === '42501') {
    return new UsageError(`${name}: ${messageOf(error)}`, {
      remedy:
        'The role of STATE_DATABASE_URL needs the right TRIGGER on the table: grant it, or let the owner of the table run what `slotsync triggers print` shows.',
      cause: error,
    });
  }
  if (!/^[0-9A-Z]{5}$/.test(code)) return error;
  return new SlotsyncError('triggers_failed', `${name}: ${messageOf(error)}`, { cause: error });
}
