// A PostgreSQL address, parsed once for both drivers: postgres.js and pg interpret the same address differently, above all
// its TLS parameters.
import { checkServerIdentity, type ConnectionOptions } from 'node:tls';
import { UsageError } from '../errors/errors.js';
import { decodePart, ENCODE, isLoopback, readPort } from './address-parts.js';
import { readCertificates, TLS_PARAMETERS } from './pem-file.js';

export interface PostgresAddress {
  /** A name, an IP address, or the folder of a Unix socket: `%2Frun%2Fpostgresql` in the address. */
  host: string;
  port: number;
  user: string;
  /** Undefined: the server asks for none, or the driver finds it in PGPASSWORD. */
  password: string | undefined;
  database: string;
  /** False: not encrypted. As both drivers pass it to `tls.connect`. */
  tls: false | ConnectionOptions;
}

const FORM = 'write postgres://user:password@host:5432/database';
const MODES = ['disable', 'require', 'verify-ca', 'verify-full'];

/**
 * Parses an address and reads the certificate files that it names. `sslmode` means what it means to libpq: `require`
 * encrypts without verifying, unless a CA file is named. Throws UsageError, without the address's secrets.
 */
export function parsePostgresAddress(text: string): PostgresAddress {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isPostgres = /^postgres(ql)?:\/\//i.test(text);
  if (!isPostgres) throw new UsageError(`not a PostgreSQL address; ${FORM}`);
  // A bare / or ? in the password ends the host too early: the @ then stands behind it.
  if (url === undefined || `${url.pathname}${url.search}`.includes('@') || url.hash !== '')
    throw new UsageError(`not a PostgreSQL address; ${FORM}; ${ENCODE}`);
  for (const name of url.searchParams.keys())
    if (!TLS_PARAMETERS.includes(name))
      throw new UsageError(
        `the parameter '${name}' is not supported; supported: ${TLS_PARAMETERS.join(', ')}`,
      );

  const host = decodePart(url.hostname).replace(/^\[(.*)\]$/, '$1');
  const [user, password] = [decodePart(url.username), decodePart(url.password)];
  const database = decodePart(url.pathname.slice(1));
  if (host === '') throw new UsageError(`names no host; ${FORM}`);
  if (user === '') throw new UsageError(`names no user; ${FORM}`);
  if (database === '' || database.includes('/')) throw new UsageError(`names no database; ${FORM}`);
  const port = readPort(url.port, 5432);
  const parts = { host, port, user, password: password || undefined, database };
  return { ...parts, tls: readTls(url.searchParams, host) };
}

/** Whether passwords and rows are sent unencrypted to another machine. */
export function isUnencryptedRemote({ host, tls }: PostgresAddress): boolean {
  return tls === false && !host.startsWith('/') && !isLoopback(host);
}

function readTls(parameters: URLSearchParams, host: string): PostgresAddress['tls'] {
  const mode = parameters.get('sslmode') ?? undefined;
  if (mode !== undefined && !MODES.includes(mode))
    throw new UsageError(`sslmode is one of ${MODES.join(', ')}`);
  const files = ['sslrootcert', 'sslcert', 'sslkey'].filter((name) => parameters.has(name));
  if (mode === undefined || mode === 'disable') {
    if (files.length > 0)
      throw new UsageError(`${files[0]} has no effect without encryption; add sslmode=verify-full`);
    return false;
  }
  const certificates = readCertificates(parameters, mode);
  const isVerified = mode !== 'require' || 'ca' in certificates;
  return {
    ...certificates,
    rejectUnauthorized: isVerified,
    // The drivers would compare with `localhost` where the host is an IP address.
    checkServerIdentity: (_, certificate) =>
      mode === 'verify-full' ? checkServerIdentity(host, certificate) : undefined,
  };
}
