// Ends a server that was started for a demo or a test when the process that started it is gone, even if it was killed. A
// shell holds the reading end of a pipe. When the pipe ends, it ends the server whose process number is in the pid file,
// and removes the folder.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';

/** $1: folder, $2: pid file, $3: `keep` or `remove` the folder. */
const SCRIPT = `
read -r _
read -r pid < "$2" && kill -INT "$pid"
tries=0
while [ -e "$2" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
[ "$3" = keep ] || rm -rf -- "$1"
`;

/**
 * Watches the server that writes its process number to `pidFile` and removes that file when it ends. Call `release` when
 * the server has ended. On Windows, where there may be no shell, nothing watches.
 */
export function startWatchdog(watched: { folder: string; pidFile: string; keepFolder?: boolean }) {
  if (process.platform === 'win32') return { release: async () => {} };

  const args = [
    '-c',
    SCRIPT,
    'watchdog',
    watched.folder,
    watched.pidFile,
    watched.keepFolder ? 'keep' : 'remove',
  ];
  // A group of its own: Ctrl-C in a terminal reaches the whole group.
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
