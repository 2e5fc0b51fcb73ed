// Builds the SQL of triggers that write the keys of changed rows to the inbox: once for each statement, in its
// transaction. An error in a trigger becomes a warning, so that it never fails the organization's own write. The
// table's owner must own the trigger function, because printing a key may call the owner's code, which must not get the
// rights of the state's role.
import { quoteBody, quoteIdentifier, quoteLiteral } from '../text/sql-text.js';
import type { Stream } from '../streams/stream.js';
import { SHORTENED_KEY } from '../streams/local-key.js';
import { FUNCTION_COMMENT, functionName } from '../streams/trigger-functions.js';
import { keyExpression, SESSION_FORMATS, type ColumnTypes } from './source-sql.js';

/** Trigger events with their REFERENCING clause, and the transition tables whose keys the trigger writes. */
const EVENTS = {
  INSERT: { transition: 'NEW TABLE AS slotsync_new', rows: ['slotsync_new'] },
  UPDATE: {
    transition: 'OLD TABLE AS slotsync_old NEW TABLE AS slotsync_new',
    rows: ['slotsync_old', 'slotsync_new'],
  },
  DELETE: { transition: 'OLD TABLE AS slotsync_old', rows: ['slotsync_old'] },
} as const;

export interface Owned {
  schema: string;
  name: string;
  owner: string;
}

export interface OwnedTable extends Owned {
  types: ColumnTypes;
}

/**
 * Returns the statements that install a stream's triggers on its table. Run them in one transaction, as the table's
 * owner or a role that can become the owner. They are idempotent. The function runs with the owner's rights, so that
 * writers of the table need no right on the inbox.
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
export function grantInbox(role: string): string[] {
  return [
    `GRANT USAGE ON SCHEMA slotsync TO ${quoteIdentifier(role)}`,
    `GRANT INSERT (stream, local_key) ON slotsync.changes TO ${quoteIdentifier(role)}`,
  ];
}

/** Returns the statements that remove a trigger function and its triggers on any table. */
export function removeTriggers({ schema, name, owner }: Owned): string[] {
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
    search_path: 'pg_catalog, pg_temp',
    lock_timeout: '1s',
    // Set here, because the session that writes to the table parses the body. A parse error would fail its write.
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
