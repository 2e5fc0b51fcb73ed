// Classifies failed connections to PostgreSQL, for the mirror and for the state.
import { codeOf, messageOf } from '../errors/errors.js';
import { NOT_POSTGRESQL } from './postgres-socket.js';

/** SQLSTATE too_many_connections. The limit may be the server's, the database's or the role's. */
export const TOO_MANY_CONNECTIONS = '53300';

/** Encoding that a database must have. UTF8 stores every character, and keys sort in the same order as in slotsync. */
export const ENCODING = 'UTF8';
export const ENCODING_REMEDY = `Create a database with that encoding: createdb -E ${ENCODING} -T template0 <name>. Then: slotsync check`;
/** Returns the clause that follows the database's name in an error message. */
export const describeEncoding = (found: string) =>
  `is encoded in ${found}, but must be encoded in ${ENCODING}, which has every character`;

const REASONS: Record<string, string> = {
  [NOT_POSTGRESQL]: ': the server is not PostgreSQL',
  [TOO_MANY_CONNECTIONS]: ': it has too many connections',
  CONNECT_TIMEOUT: ': it does not answer',
  ECONNRESET: ': it closed the connection; if sslmode is set, the server may not offer TLS',
};

/**
 * Classifies a connection failure; undefined for any other error. `unreachable`: the server may answer later.
 * `refused`: the server refuses until a setting or a right is changed. `said` follows the name of the database in a
 * sentence.
 */
export function readConnectionFault(
  error: unknown,
): { kind: 'unreachable' | 'refused'; said: string } | undefined {
  const code = codeOf(error);
  if (/^(ERR_TLS_|SELF_SIGNED_|UNABLE_TO_|DEPTH_ZERO_|CERT_)/.test(code)) {
    const said = `has a certificate that is not accepted: ${messageOf(error)}; see sslmode and sslrootcert`;
    return { kind: 'refused', said };
  }
  // SQLSTATE class 28 is invalid authorization, 3D an unknown database.
  if (/^(28|3D)/.test(code)) return { kind: 'refused', said: `refused the connection: ${messageOf(error)}` };
  // Codes of the operating system and the driver. SQLSTATE 08 is a connection exception, 57P an operator intervention.
  if (/^(E[A-Z]+|CONNECT|CONNECTION_|08|57P)/.test(code) || code in REASONS)
    return { kind: 'unreachable', said: `cannot be reached (${code}${REASONS[code] ?? ''})` };
  return undefined;
}
