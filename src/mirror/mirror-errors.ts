// From a failure of the mirror to the error that says what happens next. PostgreSQL's own text stays out of messages where
// a function or a value of the mirror may have put a person's name into it.
import type { ErrorCode } from '../errors/error-catalogue.js';
import { codeOf, isReadingFault, messageOf, SlotsyncError } from '../errors/errors.js';
import { readConnectionFault } from '../connections/postgres-faults.js';

/** Runs a reading; a failure becomes a SlotsyncError `mirror_…`. */
export async function read<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw asMirrorError(error);
  }
}

/** The statement cannot work as the configuration writes it: table, column, function or syntax. */
export function isSourceFault(error: unknown): error is SlotsyncError {
  return error instanceof SlotsyncError && error.code === 'mirror_source';
}

/** Class 22: a key's text does not read as the column's type. */
export function isDataFault(error: unknown): boolean {
  return codeOf(error).startsWith('22');
}

/**
 * Whether the server has answered that a statement failed, and not for want of connections, memory, disk or a lock
 * (classes 40, 53 and 55 of SQLSTATE).
 */
export function isRowFault(error: unknown): error is SlotsyncError {
  if (!isReadingFault(error)) return false;
  const { sqlstate } = error.facts;
  return typeof sqlstate === 'string' && /^[0-9A-Z]{5}$/.test(sqlstate) && !/^(40|53|55)/.test(sqlstate);
}

/** The place in PostgreSQL that raises an error where a policy would hide rows. */
const isRefusedByPolicy = (error: unknown) =>
  error instanceof Error && 'routine' in error && error.routine === 'check_enable_rls';

/** A message may quote a value of any size, and errors of many rows are kept together. */
function shortenMessage(error: unknown): void {
  if (!(error instanceof Error) || error.message.length <= 1000) return;
  const short = `${error.message.slice(0, 1000)}…`;
  error.stack = error.stack?.replace(error.message, () => short) ?? '';
  error.message = short;
}

export function asMirrorError(error: unknown): unknown {
  if (error instanceof SlotsyncError) return error;
  shortenMessage(error);
  const sqlstate = codeOf(error);
  const text = messageOf(error);
  const fault = (code: ErrorCode, message: string, more: { remedy?: string; detail?: string } = {}) =>
    new SlotsyncError(code, message, { facts: { sqlstate }, cause: error, ...more });

  // The code is that of every missing right, and the text is in the language of the server.
  if (isRefusedByPolicy(error)) return fault('mirror_row_security', text);
  if (/^(42|3F|0A)/.test(sqlstate)) return fault('mirror_source', text);
  if (sqlstate === '25006') return fault('mirror_read_only', `the source tries to write: ${text}`);
  if (sqlstate === '57014')
    return fault('mirror_timeout', 'the mirror did not answer in time', { detail: text });
  const connection = readConnectionFault(error);
  if (connection) return fault(`mirror_${connection.kind}`, `the mirror ${connection.said}`);
  if (sqlstate.startsWith('22')) {
    // The value itself follows the colon; it may be personal data.
    const kind = text.replace(/: .*$/s, '');
    return fault('mirror_source', `the source holds a value that cannot be converted: ${kind}`, {
      remedy: 'Correct the value or the conversion in the source; the log of the mirror’s server names it.',
    });
  }
  // A function of the mirror may raise any text, with names in it. P0: PL/pgSQL; 21: a subquery that returns several rows.
  if (/^(P0|21)/.test(sqlstate))
    return fault('mirror_raised', `the source raised an error (${sqlstate})`, { detail: text });
  return fault('mirror_failed', `the mirror could not answer (${sqlstate})`, { detail: text });
}
