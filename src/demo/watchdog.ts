// A server started for a demo or a test must not outlive the process that started it, also when that process is
// killed and cannot clean up. A shell reads from a pipe that only this process holds open. When the pipe ends, the
// shell stops the server whose process number stands in the pid file, and removes the folder.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';

/** $1: folder, $2: pid file. */
const SCRIPT = `
read -r _
read -r pid < "$2" && kill -INT "$pid"
tries=0
while [ -e "$2" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf -- "$1"
`;

/**
 * Watches the server that writes its process number to `pidFile` and removes that file when it ends. `release` is for
 * when the server has ended. On Windows, which may have no shell, nothing watches.
 */
export function startWatchdog({ folder, pidFile }: { folder: string; pidFile: string }) {
  if (process.platform === 'win32') return { release: async () => {} };

  const args = ['-c', SCRIPT, 'watchdog', folder, pidFile];
  // Detached: Ctrl-C in a terminal signals the whole process group.
  const shell = spawn('/bin/sh', args, { cwd: '/', detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  const exit = once(shell, 'exit').catch(() => undefined);
  const pipe = shell.stdin as Socket;
  pipe.on('error', () => undefined);
  pipe.unref();
  shell.unref();

  return {
    async release(): Promise<void> {
      shell.ref();
      pipe.end();
      await exit;
    },
  };
}
