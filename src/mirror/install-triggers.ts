// Installs triggers on tables of the mirror when an operator asks for them. Nothing else in slotsync writes to the
// mirror's database. Uses the state's connection, because transactions at the mirror are read-only.
import { connectPostgres, inTransaction } from '../connections/postgres-connection.js';
import type { SettingText } from '../config/setting-text.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';
import type { Stream } from '../streams/stream.js';
import { FUNCTION_PREFIX, functionName, FUNCTION_COMMENT } from '../streams/trigger-functions.js';
import { dependsOnSession } from './mapped-text.js';
import { findAbsent } from './source-reader.js';
import { SELECT_DATABASE_IDENTITY, type DatabaseIdentity } from '../connections/database-facts.js';
import { quoteBody, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import { SHORTENED_KEY } from '../streams/local-key.js';
import { keyExpression, SESSION_FORMATS, type ColumnTypes } from './source-sql.js';

/** Bounds how long the table's writers wait for these locks, even if this client stops responding meanwhile. */
const SHORT = `SET LOCAL lock_timeout = '3s'; SET LOCAL idle_in_transaction_session_timeout = '10s'`;

const KINDS: Record<string, string> = { v: 'a view', m: 'a materialized view', f: 'a foreign table' };

export type Triggers = ReturnType<typeof openTriggers>;

/** Opens the connection that installs triggers. Methods throw SlotsyncError `triggers_…` or UsageError. */
export function openTriggers({ url, channel }: { url: SettingText; channel: string }) {
  const sql = connectPostgres(url, 'triggers');

  const install = (stream: Stream, table: OwnedTable & { isOwn: boolean }) => [
    ...(table.isOwn ? [] : grantInbox(table.owner)),
    ...installTriggers(stream, channel, table),
  ];

  return {
    /** Returns the identity of the connected database, for comparison with the mirror's database. */
    databaseIdentity: async () => (await sql.unsafe<DatabaseIdentity[]>(SELECT_DATABASE_IDENTITY))[0],

    /** Returns the reason why a stream's source cannot have triggers, or undefined if it can. */
    refusal: async (stream: Stream) => explainRefusal(stream, await findTable(sql, stream)),

    /** Returns the SQL statements that create the stream's triggers, so that the table's owner can run them. */
    async print(stream: Stream): Promise<string[]> {
      const table = await findTable(sql, stream);
      return table ? installTriggers(stream, channel, table) : [];
    },

    /** Installs or updates a stream's triggers. Removes the triggers on a table that was its source before. */
    async install(stream: Stream): Promise<void> {
      const table = await findTable(sql, stream);
      if (!table) return;
      const installed = await findFunctions(sql, functionName(stream.name));
      const former = installed.filter(
        ({ schema, tables }) => schema !== table.schema || tables.some((oid) => oid !== table.oid),
      );
      await run(sql, stream.name, [
        // Dropping the function also drops its triggers, even on a table that this role does not own.
        ...former.flatMap(removeTriggers),
        ...install(stream, table),
      ]);
    },

    /** Returns statements for one transaction that replace the triggers of a stream's former name, if it had any. */
    async renaming(former: string, stream: Stream): Promise<string[]> {
      const installed = await findFunctions(sql, functionName(former));
      if (installed.length === 0) return [];
      const table = await findTable(sql, stream);
      const installing = table ? install(stream, table) : [];
      return [SHORT, ...installed.flatMap(removeTriggers), ...installing, 'RESET ROLE'];
    },

    /** Returns the names of installed trigger functions, including those of streams no longer configured. */
    async list(): Promise<string[]> {
      return [...new Set((await findFunctions(sql)).map(({ name }) => name))].toSorted();
    },

    /** Returns statements that remove all installed trigger functions and their triggers in one transaction. */
    removal: async (): Promise<string[]> => (await findFunctions(sql)).flatMap(removeTriggers),

    /** Removes the trigger functions with this name, and their triggers on any table. */
    remove: async (name: string): Promise<void> =>
      run(sql, name, (await findFunctions(sql, name)).flatMap(removeTriggers)),

    close: () => sql.end({ timeout: 1 }),
  };
}

type Client = ReturnType<typeof connectPostgres>;

/** Runs the statements of one stream in a separate transaction. A busy table then does not undo other streams. */
async function run(sql: Client, name: string, statements: readonly string[]): Promise<void> {
  try {
    await inTransaction(sql, async (tx) => {
      for (const statement of [SHORT, ...statements]) await tx.send((within) => within.unsafe(statement));
    });
  } catch (error) {
    throw asTriggersError(error, name);
  }
}

/** Returns the table of a stream's source, if it exists. Reads the catalog, which needs no right on the table. */
async function findTable(sql: Client, { source }: Pick<Stream, 'source'>) {
  if ('query' in source) return undefined;
  const [name = '', schema = null] = source.table.toReversed();
  const [row] = await sql<
    (Owned & { oid: string; kind: string; isOwn: boolean; types: [string, string][] | null })[]
  >`
    SELECT c.oid::text AS oid, n.nspname AS schema, c.relname AS name, c.relkind AS kind,
      pg_get_userbyid(c.relowner) AS owner, pg_get_userbyid(c.relowner) = current_user AS "isOwn", (
        WITH RECURSIVE types AS (
          SELECT attname, atttypid AS type FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
          UNION ALL
          SELECT attname, typbasetype FROM types JOIN pg_type AS t ON t.oid = types.type WHERE typtype = 'd')
        SELECT json_agg(json_build_array(attname, format_type(type, -1)))
        FROM types JOIN pg_type AS t ON t.oid = types.type WHERE typtype <> 'd') AS types
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = ${name}
      AND CASE WHEN ${schema}::text IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = ${schema} END`;
  return row && { ...row, types: new Map(row.types) };
}

/** Returns the installed trigger functions with this name in any schema. Without a name, returns all of them. */
const findFunctions = (sql: Client, name?: string) => sql<(Owned & { tables: string[] })[]>`
  SELECT n.nspname AS schema, p.proname AS name, pg_get_userbyid(p.proowner) AS owner,
    array_to_json(ARRAY(SELECT DISTINCT tgrelid::oid::text FROM pg_trigger WHERE tgfoid = p.oid)) AS tables
  FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
  WHERE (p.proname = ${name ?? null}::name OR ${name === undefined} AND starts_with(p.proname::text, ${FUNCTION_PREFIX}))
    AND p.prorettype = 'trigger'::regtype`;

/** Returns the reason why a stream's source cannot have triggers, or undefined if it can. */
function explainRefusal(
  { name, source, key }: Stream,
  found: Awaited<ReturnType<typeof findTable>>,
): string | undefined {
  if ('query' in source) return `${name}: its source is a query; triggers need a table`;
  const table = source.table.join('.');
  if (!found) return `${name}: there is no table ${table} in the database of the state`;
  const kind = KINDS[found.kind];
  if (kind) return `${name}: ${table} is ${kind}; triggers need a table`;
  const [missing] = findAbsent(
    key.map((column) => ['key', column] as const),
    found.types,
  );
  if (missing !== undefined) return `${name}: ${missing}`;
  const unlike = key.find((column) => dependsOnSession(found.types.get(column) ?? ''));
  return (
    unlike &&
    `${name}: its key column ${unlike} is ${found.types.get(unlike)}, whose text depends on the session`
  );
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
        'Only the owner of the table can install triggers: let the owner run the output of `slotsync triggers print`. docs/security.md has the rights that it needs.',
      cause: error,
    });
  }
  if (!/^[0-9A-Z]{5}$/.test(code)) return error;
  return new SlotsyncError('triggers_failed', `${name}: ${messageOf(error)}`, { cause: error });
}

// Builds the SQL of triggers that write the keys of changed rows to the inbox: once for each statement, in its
// transaction. An error in a trigger becomes a warning, so that it never fails the organization's own write. The
// table's owner must own the trigger function, because printing a key may call the owner's code, which must not get the
// rights of the state's role.

/** Trigger events with their REFERENCING clause, and the transition tables whose keys the trigger writes. */
const EVENTS = {
  INSERT: { transition: 'NEW TABLE AS slotsync_new', rows: ['slotsync_new'] },
  UPDATE: {
    transition: 'OLD TABLE AS slotsync_old NEW TABLE AS slotsync_new',
    rows: ['slotsync_old', 'slotsync_new'],
  },
  DELETE: { transition: 'OLD TABLE AS slotsync_old', rows: ['slotsync_old'] },
} as const;

interface Owned {
  schema: string;
  name: string;
  owner: string;
}

interface OwnedTable extends Owned {
  types: ColumnTypes;
}

/**
 * Returns the statements that install a stream's triggers on its table. Run them in one transaction, as the table's
 * owner or a role that can become the owner. They are idempotent. The function runs with the owner's rights, so that
 * writers of the table need no right on the inbox.
 */
function installTriggers(stream: Stream, channel: string, table: OwnedTable): string[] {
  const qualify = (name: string) => `${quoteIdentifier(table.schema)}.${quoteIdentifier(name)}`;
  const name = qualify(functionName(stream.name));
  const triggers = Object.entries(EVENTS).map(
    ([event, { transition }]) => `CREATE OR REPLACE TRIGGER ${triggerName(stream, event)}
  AFTER ${event} ON ${qualify(table.name)} REFERENCING ${transition}
  FOR EACH STATEMENT EXECUTE FUNCTION ${name}()`,
  );
  return [
    becomeOwner(table.owner),
    // Fails the installation if the table's owner may not insert into the inbox. In the triggers, the missing right
    // would only cause a warning.
    `INSERT INTO slotsync.changes (stream, local_key) SELECT '', '' WHERE false`,
    createFunction({ ...stream, types: table.types }, channel, name),
    `REVOKE ALL ON FUNCTION ${name}() FROM PUBLIC`,
    `COMMENT ON FUNCTION ${name}() IS ${quoteLiteral(FUNCTION_COMMENT + table.name).trim()}`,
    ...triggers,
  ];
}

/** Returns the GRANT statements that a table's owner needs to write changes to the inbox. */
function grantInbox(role: string): string[] {
  return [
    `GRANT USAGE ON SCHEMA slotsync TO ${quoteIdentifier(role)}`,
    `GRANT INSERT (stream, local_key) ON slotsync.changes TO ${quoteIdentifier(role)}`,
  ];
}

/** Returns the statements that remove a trigger function and its triggers on any table. */
function removeTriggers({ schema, name, owner }: Owned): string[] {
  const drop = `DROP FUNCTION IF EXISTS ${quoteIdentifier(schema)}.${quoteIdentifier(name)}() CASCADE`;
  return [becomeOwner(owner), drop, 'RESET ROLE'];
}

/** Sets the role until the transaction ends. Otherwise a superuser who runs the statements would own the function. */
const becomeOwner = (owner: string) => `SET LOCAL ROLE ${quoteIdentifier(owner)}`;

function triggerName(stream: Stream, event: string): string {
  return quoteIdentifier(`${functionName(stream.name)}_${event.toLowerCase()}`);
}

/**
 * Returns the SQL of a stream's trigger function. It prints keys as the mirror's sessions do, and waits at most one
 * second for a lock on the inbox. It skips overlong keys, so that their changes cause no reads; the next sync reports
 * them.
 */
function createFunction(stream: Stream & Pick<OwnedTable, 'types'>, channel: string, name: string): string {
  const settings = {
    lock_timeout: '1s',
    // Set here, because the session that writes to the table parses the body. A parse error would fail its write.
    standard_conforming_strings: 'on',
    ...SESSION_FORMATS,
  };
  const set = Object.entries(settings).map(
    ([setting, value]) => `  SET ${setting} = ${quoteLiteral(String(value)).trim()}`,
  );
  const cases = Object.entries(EVENTS).map(
    ([event, { rows }]) => `    WHEN '${event}' THEN
      INSERT INTO slotsync.changes (stream, local_key)
      SELECT ${quoteLiteral(stream.name).trim()}, k FROM (
        ${rows.map((table) => `SELECT ${keyExpression(stream)} AS k FROM ${table} AS slotsync_row`).join(' UNION\n        ')}
      ) AS keys WHERE k !~ ${quoteLiteral(SHORTENED_KEY)} GROUP BY k;`,
  );
  const body = `
BEGIN
  CASE TG_OP
${cases.join('\n')}
  END CASE;
  -- A transaction with a NOTIFY cannot be prepared for two-phase commit; without it workers poll the inbox.
  IF FOUND AND current_setting('max_prepared_transactions') = '0' THEN
    PERFORM pg_notify(${quoteLiteral(channel)}, '');
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  -- The write must not fail: the next nightly sync finds what was missed.
  RAISE WARNING 'slotsync could not record what changed in % (%)', TG_RELID::regclass, SQLSTATE;
  RETURN NULL;
END
`;
  return `CREATE OR REPLACE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
  SET search_path = pg_catalog, pg_temp
${set.join('\n')}
AS ${quoteBody(body)}`;
}
