// Triggers that write to the inbox which rows a statement changed: once for each statement, in its transaction. They run
// in the organization's own writes, so every failure in them becomes a warning.
import { createHash } from 'node:crypto';
import { quoteIdentifier, quoteLiteral } from '../sql-text.js';
import type { Stream } from '../streams/stream.js';
import { SESSION_FORMATS } from './session-formats.js';
import { SHORTENED_KEY } from '../streams/local-key.js';
import { keyExpression } from './row-key-and-hash.js';

/** PostgreSQL cuts names that are longer, in bytes. */
const NAME_BYTES = 63;

/** The events, and the rows of each whose keys are written. */
const EVENTS = {
  INSERT: { transition: 'NEW TABLE AS slotsync_new', rows: ['slotsync_new'] },
  UPDATE: {
    transition: 'OLD TABLE AS slotsync_old NEW TABLE AS slotsync_new',
    rows: ['slotsync_old', 'slotsync_new'],
  },
  DELETE: { transition: 'OLD TABLE AS slotsync_old', rows: ['slotsync_old'] },
} as const;

export const FUNCTION_PREFIX = 'slotsync_changes_';

/** Name of a stream's function in schema `slotsync`; its triggers begin with it too. */
export function functionName(stream: string): string {
  const name = FUNCTION_PREFIX + stream;
  // Leaves room for `_insert`; two long names that begin alike stay different.
  if (name.length <= NAME_BYTES - 7) return name;
  return `${name.slice(0, NAME_BYTES - 16)}_${createHash('sha256').update(stream).digest('hex').slice(0, 8)}`;
}

/**
 * The statements that install a stream's triggers on its table; each may be run again. The function runs as `owner`, a
 * role that may write to the inbox, so writers of the table need no right on the state.
 */
export function installTriggers(stream: Stream, channel: string, owner: string): string[] {
  const name = quoteIdentifier(functionName(stream.name));
  const triggers = Object.entries(EVENTS).map(
    ([event, { transition }]) => `CREATE OR REPLACE TRIGGER ${triggerName(stream, event)}
  AFTER ${event} ON ${tableName(stream)} REFERENCING ${transition}
  FOR EACH STATEMENT EXECUTE FUNCTION slotsync.${name}()`,
  );
  return [
    createFunction(stream, channel, name),
    `ALTER FUNCTION slotsync.${name}() OWNER TO ${quoteIdentifier(owner)}`,
    `REVOKE ALL ON FUNCTION slotsync.${name}() FROM PUBLIC`,
    ...triggers,
  ];
}

/** The statement that removes a function with its triggers, on any table. */
export function removeTriggers(name: string): string {
  return `DROP FUNCTION IF EXISTS slotsync.${quoteIdentifier(name)}() CASCADE`;
}

export function tableName({ source }: Pick<Stream, 'source'>): string {
  return 'table' in source ? source.table.map(quoteIdentifier).join('.') : '';
}

function triggerName(stream: Stream, event: string): string {
  return quoteIdentifier(`${functionName(stream.name)}_${event.toLowerCase()}`);
}

/**
 * Keys print as text as in the mirror's sessions, and no write waits long for a lock on the inbox. A key that is too long
 * is not noted, so that nothing is read for each of its changes: the next sync reports it.
 */
function createFunction(stream: Stream, channel: string, name: string): string {
  const settings = { search_path: 'pg_catalog, pg_temp', lock_timeout: '1s', ...SESSION_FORMATS };
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
  return `CREATE OR REPLACE FUNCTION slotsync.${name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
${set.join('\n')}
AS $slotsync$
BEGIN
  CASE TG_OP
${cases.join('\n')}
  END CASE;
  -- A transaction with a NOTIFY cannot be prepared for two-phase commit; without it workers poll every second.
  IF FOUND AND current_setting('max_prepared_transactions') = '0' THEN
    PERFORM pg_notify('${channel}', '');
  END IF;
  RETURN NULL;
EXCEPTION WHEN OTHERS THEN
  -- The write must not fail: the next nightly sync finds what was missed.
  RAISE WARNING 'slotsync could not record what changed in % (%)', TG_RELID::regclass, SQLSTATE;
  RETURN NULL;
END
$slotsync$`;
}
