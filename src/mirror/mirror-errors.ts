// What the mirror's failures mean, and whose turn it is. Its own words stay out of messages: a function or a value of
// the mirror may name a person.
import { codeOf, messageOf, SlotsyncError } from '../errors.js';

/** Runs a reading; a failure becomes a SlotsyncError `mirror_…`. */
export async function read<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw asMirrorError(error);
  }
}

/** The statement cannot work as the configuration writes it: table, column, function or syntax. */
export function isSourceFault(error: unknown): boolean {
  return error instanceof SlotsyncError && error.code === 'mirror_source';
}

/** Class 22: a key's text does not read as the column's type. */
export function isDataFault(error: unknown): boolean {
  return codeOf(error).startsWith('22');
}

export function asMirrorError(error: unknown): unknown {
  if (error instanceof SlotsyncError) return error;
  const code = codeOf(error);
  const facts = { sqlstate: code };
  if (/^(42|3F|0A)/.test(code)) {
    return new SlotsyncError('mirror_source', messageOf(error), {
      facts,
      cause: error,
    });
  }
  if (code === '25006') {
    return new SlotsyncError('mirror_read_only', `the source tries to write: ${messageOf(error)}`, {
      facts,
      cause: error,
    });
  }
  if (/^(28|3D)/.test(code)) {
    return new SlotsyncError('mirror_refused', `the mirror refused the connection: ${messageOf(error)}`, {
      facts,
      cause: error,
    });
  }
  if (code.startsWith('22')) {
    // What follows the colon is the value itself, which may be anybody's.
    const kind = messageOf(error).replace(/: .*$/s, '');
    return new SlotsyncError('mirror_source', `the source holds a value that cannot be converted: ${kind}`, {
      remedy: 'Correct the value or the conversion in the source; the log of the mirror’s server names it.',
      facts,
      cause: error,
    });
  }
  const unreachable = /^(E[A-Z]+|CONNECT|CONNECTION_|08|57P)/.test(code);
  return new SlotsyncError(
    unreachable ? 'mirror_unreachable' : 'mirror_failed',
    unreachable ? `the mirror cannot be reached (${code})` : `the mirror could not answer (${code})`,
    {
      // A function of the mirror may raise whatever it likes, names included.
      detail: unreachable ? undefined : messageOf(error),
      facts,
      cause: error,
    },
  );
}
