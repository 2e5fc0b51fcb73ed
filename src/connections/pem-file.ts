// Certificates and keys that an address names by file, for every server that is reached over TLS.
import { messageOf, UsageError } from '../errors/errors.js';
import { isReadableByOthers, readTextFile } from '../files/text-file.js';

/** Parameters that say how a connection is encrypted, the same for every kind of address. */
export const TLS_PARAMETERS = ['sslmode', 'sslrootcert', 'sslcert', 'sslkey'];

/**
 * The authority, certificate and key that an address names, as `tls.connect` takes them. Throws UsageError when a file
 * cannot be used or one is missing that `mode` or another file needs.
 */
export function readCertificates(parameters: URLSearchParams, mode: string) {
  const [ca, cert, key] = ['sslrootcert', 'sslcert', 'sslkey'].map((name) => readPemFile(parameters, name));
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError('sslcert and sslkey belong together: one of them is missing');
  if (mode === 'verify-ca' && ca === undefined)
    throw new UsageError('sslmode=verify-ca needs sslrootcert, the file of the certificate authority');
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

/** Reads the PEM file that an address's parameter names. Throws UsageError that names the parameter and the file. */
function readPemFile(parameters: URLSearchParams, name: string): string | undefined {
  const file = parameters.get(name);
  // As for libpq, `system` means the authorities that the system trusts.
  if (file === null || (name === 'sslrootcert' && file === 'system')) return undefined;
  let text: string;
  try {
    text = readTextFile(file);
  } catch (error) {
    throw new UsageError(`${name} ${messageOf(error)}`, { cause: error });
  }
  if (name === 'sslkey' && isReadableByOthers(file))
    throw new UsageError(`sslkey ${file} may be read by every user of this machine; chmod 600 it`);
  if (!text.includes('-----BEGIN'))
    throw new UsageError(`${name} ${file} contains no PEM text (-----BEGIN …)`);
  return text;
}
