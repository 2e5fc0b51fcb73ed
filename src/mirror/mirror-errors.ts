// Converts a failure of the mirror into an error that says what happens next. A message omits PostgreSQL's own text if
// a function or a value of the mirror may have put a person's name into it.
import type { ErrorCode } from '../errors/error-catalogue.js';
import { codeOf, isReadingFault, messageOf, SlotsyncError } from '../errors/errors.js';
import { readConnectionFault } from '../connections/postgres-faults.js';

/** Runs a query of the mirror. Throws its failure as SlotsyncError `mirror_…`. */
export async function read<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw asMirrorError(error);
  }
}

/** Returns true if the source cannot work as configured, for example because a table or column does not exist. */
export function isSourceFault(error: unknown): error is SlotsyncError {
  return error instanceof SlotsyncError && error.code === 'mirror_source';
}

/** Returns true for SQLSTATE class 22, for example if the text of a key cannot be converted to the column's type. */
export function isDataFault(error: unknown): boolean {
  return codeOf(error).startsWith('22');
}

/**
 * Returns true if the statement may have failed because of a row. False if it failed for lack of connections, memory,
 * disk or a lock (SQLSTATE classes 40, 53 and 55).
 */
export function isRowFault(error: unknown): error is SlotsyncError {
  if (!isReadingFault(error)) return false;
  const { sqlstate } = error.facts;
  return typeof sqlstate === 'string' && /^[0-9A-Z]{5}$/.test(sqlstate) && !/^(40|53|55)/.test(sqlstate);
}

/** Returns true if a row security policy would hide rows. PostgreSQL raises that error in `check_enable_rls`. */
const isRefusedByPolicy = (error: unknown) =>
  error instanceof Error && 'routine' in error && error.routine === 'check_enable_rls';

/** Bounds memory: PostgreSQL may quote a value of any size, and errors of many rows are in memory together. */
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

  // Tested before SQLSTATE, which is the same for every missing right. The message cannot be tested, because its
  // language is the server's.
  if (isRefusedByPolicy(error)) return fault('mirror_row_security', text);
  if (/^(42|3F|0A)/.test(sqlstate)) return fault('mirror_source', text);
  if (sqlstate === '25006') return fault('mirror_read_only', `the source tries to write: ${text}`);
  if (sqlstate === '57014')
    return fault('mirror_timeout', 'the mirror did not answer in time', { detail: text });
  const connection = readConnectionFault(error);
  if (connection) return fault(`mirror_${connection.kind}`, `the mirror ${connection.said}`);
  if (sqlstate.startsWith('22')) {
    // Removes the value after the colon, because it may be personal data.
    const kind = text.replace(/: .*$/s, '');
    return fault('mirror_source', `the source contains a value that cannot be converted: ${kind}`, {
      remedy: 'Correct the value or the conversion in the source; the log of the mirror’s server names it.',
    });
  }
  // A function of the mirror may raise an error whose text contains names of persons, so the message omits the text.
  // Class P0 is PL/pgSQL; class 21 is a subquery that returns several rows.
  if (/^(P0|21)/.test(sqlstate))
    return fault('mirror_raised', `the source raised an error (${sqlstate})`, { detail: text });
  return fault('mirror_failed', `the mirror could not answer (${sqlstate})`, { detail: text });
}
