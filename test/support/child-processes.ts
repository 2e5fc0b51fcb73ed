// No process that a test starts outlives the test run. Three things end it: the test (`close` of what started it), the
// end of this process (an `exit` handler), and, when this process is killed and cannot do anything, a shell that holds
// the reading end of a pipe and kills what is still on its list when the pipe ends.
import { spawn, type ChildProcess } from 'node:child_process';
import type { Socket } from 'node:net';

/** Reads `+ pid` and `- pid`. SIGKILL, because a frozen process (SIGSTOP) heeds nothing else. */
const WATCHDOG = `
pids=" "
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid " ;;
    -) pids=$(printf '%s' "$pids" | sed "s/ $pid / /") ;;
  esac
done
[ -z "$(printf '%s' "$pids" | tr -d ' ')" ] || kill -KILL $pids
`;

const living = new Set<ChildProcess>();
let watchdog: Socket | undefined;

/** Ends `child` with this process at the latest, however this process ends. */
export function endWithTests(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined) return; // it could not be started
  watchdog ??= startWatchdog();
  living.add(child);
  watchdog?.write(`+ ${pid}\n`);
  child.once('exit', () => {
    living.delete(child);
    watchdog?.write(`- ${pid}\n`);
  });
}

function startWatchdog(): Socket | undefined {
  process.once('exit', () => {
    for (const child of living) child.kill('SIGKILL');
  });
  if (process.platform === 'win32') return undefined;
  // A group of its own: Ctrl-C in a terminal reaches the whole group of the program it is meant for.
  const shell = spawn('/bin/sh', ['-c', WATCHDOG], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  const pipe = shell.stdin as Socket;
  pipe.on('error', () => undefined);
  pipe.unref();
  shell.unref();
  return pipe;
}
