// The operating system's user, by name.
import { userInfo } from 'node:os';

/** `uid 1000` where the system has no name for it, as in a container. */
export function nameSystemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}
