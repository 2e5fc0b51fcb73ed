// The parts that addresses of all servers have in common. No fault repeats a part: it may be a password.
import { UsageError } from '../errors/errors.js';

/** Advice for an address whose user or password cannot be read. */
export const ENCODE =
  'in a user or password, percent-encode % as %25, / as %2F, @ as %40, : as %3A, ? as %3F, # as %23';

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|\[::1\])$/;

/** Whether a host is this machine alone. */
export const isLoopback = (host: string): boolean => LOOPBACK.test(host);

/** The name in a header `Host`, without the port. */
export const nameOfHost = (host: string): string => host.replace(/:\d+$/, '');

/** A user, a password or a name without its percent-encoding. Throws UsageError. */
export function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new UsageError(`contains a % that encodes nothing; ${ENCODE}`);
  }
}

/** Throws UsageError for a number that no port has. */
export function readPort(text: string | undefined, usual: number): number {
  const port = Number(text || usual);
  refuse(
    !Number.isInteger(port) || port < 1 || port > 65_535,
    'the port must be a whole number from 1 to 65535',
  );
  return port;
}

/** Throws UsageError for a user and a password that no client can log in with. */
export function refuseBadCredentials({ username, password }: URL): void {
  refuse(
    (username === '') !== (password === ''),
    'has a user without a password, or a password without a user',
  );
  refuse(
    /%(?![\da-f]{2})/i.test(username + password),
    'contains a % that encodes nothing in user or password; write %25',
  );
}

export function refuse(isFault: boolean, fault: string): void {
  if (isFault) throw new UsageError(fault);
}
