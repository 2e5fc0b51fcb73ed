// The meaning of a failed connection to PostgreSQL, for mirror and state alike.
import { codeOf, messageOf } from '../errors/errors.js';
import { NOT_POSTGRESQL } from './postgres-socket.js';

/** SQLSTATE too_many_connections: of the server, of the database or of the role. */
export const TOO_MANY_CONNECTIONS = '53300';

/** The encoding in which every text can be stored and asked for, and keys are in the order of the program. */
export const ENCODING = 'UTF8';
export const ENCODING_REMEDY = `Use a database that was made so: createdb -E ${ENCODING} -T template0 <name>. Then: slotsync check`;
/** The clause that follows the name of the database. */
export const describeEncoding = (found: string) =>
  `is in ${found}: only one in ${ENCODING} has a place for every character`;

const REASONS: Record<string, string> = {
  [NOT_POSTGRESQL]: ': what answers there is not PostgreSQL',
  [TOO_MANY_CONNECTIONS]: ': it has too many connections',
  CONNECT_TIMEOUT: ': it does not answer',
  ECONNRESET: ': it closed the connection; if sslmode is set, the server may not offer TLS',
};

/**
 * `unreachable`: it may answer later. `refused`: it will not, until a setting or a right is changed. `said` follows the name
 * of the database in a sentence. Undefined: the failure is not the connection's.
 */
export function readConnectionFault(
  error: unknown,
): { kind: 'unreachable' | 'refused'; said: string } | undefined {
  const code = codeOf(error);
  if (/^(ERR_TLS_|SELF_SIGNED_|UNABLE_TO_|DEPTH_ZERO_|CERT_)/.test(code)) {
    const said = `has a certificate that is not accepted: ${messageOf(error)}; see sslmode and sslrootcert`;
    return { kind: 'refused', said };
  }
  // Invalid authorization, no such database.
  if (/^(28|3D)/.test(code)) return { kind: 'refused', said: `refused the connection: ${messageOf(error)}` };
  // Codes of the system and of the driver, and the classes connection exception and operator intervention.
  if (/^(E[A-Z]+|CONNECT|CONNECTION_|08|57P)/.test(code) || code in REASONS)
    return { kind: 'unreachable', said: `cannot be reached (${code}${REASONS[code] ?? ''})` };
  return undefined;
}
