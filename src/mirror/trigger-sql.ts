// Triggers that write to the inbox which rows a statement changed: once for each statement, in its transaction. They run
// in the organization's own writes, so every failure in them becomes a warning. Their function belongs to the owner of the
// table: what it calls to print a key may be the owner's code, and must not run with the rights of the state's role.
import { quoteBody, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import type { Stream } from '../streams/stream.js';
import { SHORTENED_KEY } from '../streams/local-key.js';
import { FUNCTION_COMMENT, functionName } from '../streams/trigger-functions.js';
import { keyExpression, SESSION_FORMATS, type ColumnTypes } from './source-sql.js';

/** The events, and the rows of each whose keys are written. */
const EVENTS = {
  INSERT: { transition: 'NEW TABLE AS slotsync_new', rows: ['slotsync_new'] },
  UPDATE: {
    transition: 'OLD TABLE AS slotsync_old NEW TABLE AS slotsync_new',
    rows: ['slotsync_old', 'slotsync_new'],
  },
  DELETE: { transition: 'OLD TABLE AS slotsync_old', rows: ['slotsync_old'] },
} as const;

/** A table or a function, and the role that owns it. */
export interface Owned {
  schema: string;
  name: string;
  owner: string;
}

export interface OwnedTable extends Owned {
  types: ColumnTypes;
}

/**
 * The statements that install a stream's triggers on its table, for one transaction of its owner or of a role that can
 * become its owner; each may be run again. The function runs as the owner, which may insert into the inbox, so writers of
 * the table need no right on the state.
 */
export function installTriggers(stream: Stream, channel: string, table: OwnedTable): string[] {
  const qualify = (name: string) => `${quoteIdentifier(table.schema)}.${quoteIdentifier(name)}`;
  const name = qualify(functionName(stream.name));
  const triggers = Object.entries(EVENTS).map(
    ([event, { transition }]) => `CREATE OR REPLACE TRIGGER ${triggerName(stream, event)}
  AFTER ${event} ON ${qualify(table.name)} REFERENCING ${transition}
  FOR EACH STATEMENT EXECUTE FUNCTION ${name}()`,
  );
  return [
    becomeOwner(table.owner),
    // Fails without the right to insert, which in the triggers would only be a warning.
    `INSERT INTO slotsync.changes (stream, local_key) SELECT '', '' WHERE false`,
    createFunction({ ...stream, types: table.types }, channel, name),
    `REVOKE ALL ON FUNCTION ${name}() FROM PUBLIC`,
    `COMMENT ON FUNCTION ${name}() IS ${quoteLiteral(FUNCTION_COMMENT + table.name).trim()}`,
    ...triggers,
  ];
}

/** Grants what the owner of a table needs to note changes. */
export function grantInbox(role: string): string[] {
  return [
    `GRANT USAGE ON SCHEMA slotsync TO ${quoteIdentifier(role)}`,
    `GRANT INSERT (stream, local_key) ON slotsync.changes TO ${quoteIdentifier(role)}`,
  ];
}

/** The statements that remove a function with its triggers, on any table. */
export function removeTriggers({ schema, name, owner }: Owned): string[] {
  const drop = `DROP FUNCTION IF EXISTS ${quoteIdentifier(schema)}.${quoteIdentifier(name)}() CASCADE`;
  return [becomeOwner(owner), drop, 'RESET ROLE'];
}

/** Until the transaction ends: so that a superuser who runs the statements does not become the owner of the function. */
const becomeOwner = (owner: string) => `SET LOCAL ROLE ${quoteIdentifier(owner)}`;

function triggerName(stream: Stream, event: string): string {
  return quoteIdentifier(`${functionName(stream.name)}_${event.toLowerCase()}`);
}

/**
 * Keys print as text as in the mirror's sessions, and no write waits long for a lock on the inbox. A key that is too long
 * is not noted, so that nothing is read for each of its changes: the next sync reports it.
 */
function createFunction(stream: Stream & Pick<OwnedTable, 'types'>, channel: string, name: string): string {
  const settings = {
    search_path: 'pg_catalog, pg_temp',
    lock_timeout: '1s',
    // The body is parsed by the session that writes, and an error of that would fail the write.
    standard_conforming_strings: 'on',
    ...SESSION_FORMATS,
  };
  const set = Object.entries(settings).map(([setting, value]) =>
    setting === 'search_path'
      ? `  SET search_path = ${value}`
      : `  SET ${setting} = ${quoteLiteral(String(value)).trim()}`,
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
${set.join('\n')}
AS ${quoteBody(body)}`;
}
