// Explains why a server cannot listen on a port.
import { codeOf, UsageError } from '../errors/errors.js';

const REASONS: Record<string, string> = {
  EADDRINUSE: 'is taken',
  EACCES: 'may not be opened by this user; ports below 1024 need a special right',
  EADDRNOTAVAIL: 'cannot be opened: this machine does not have that address',
  ENOTFOUND: 'cannot be opened: the host is unknown',
};

/** Converts an error of `listen` to a UsageError. `setting` is the name of the setting that contains the port. */
export function asListenError(
  error: unknown,
  { setting, port, host, remedy }: { setting: string; port: number; host: string; remedy: string },
): UsageError {
  const reason = REASONS[codeOf(error)] ?? `cannot be opened (${codeOf(error)})`;
  return new UsageError(`${setting}: port ${port} of ${host} ${reason}`, { remedy, cause: error });
}
