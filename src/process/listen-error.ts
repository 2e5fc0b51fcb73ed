// A server that cannot listen: which port of which address, and why.
import { codeOf, UsageError } from '../errors/errors.js';

const REASONS: Record<string, string> = {
  EADDRINUSE: 'is taken',
  EACCES: 'may not be opened by this user; ports below 1024 need a special right',
  EADDRNOTAVAIL: 'cannot be opened: this machine does not have that address',
  ENOTFOUND: 'cannot be opened: the host is unknown',
};

/** The error of `listen` as a UsageError. `setting` is what names the port. */
export function asListenError(
  error: unknown,
  { setting, port, host, remedy }: { setting: string; port: number; host: string; remedy: string },
): UsageError {
  const reason = REASONS[codeOf(error)] ?? `cannot be opened (${codeOf(error)})`;
  return new UsageError(`${setting}: port ${port} of ${host} ${reason}`, { remedy, cause: error });
}
