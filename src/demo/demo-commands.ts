// Runs the commands of the demo, each as a child process with the demo's settings.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

const LOOK_EVERY_MS = 20;
const WAIT_AT_MOST_MS = 60_000;

export function createCommands({
  cli,
  settings,
  signal,
}: {
  cli: string;
  settings: Record<string, string>;
  signal: AbortSignal;
}) {
  const workers: ChildProcess[] = [];
  // A terminal shows the progress of a command while it runs, and removes it afterwards.
  const stderr = process.stderr.isTTY ? 'inherit' : 'ignore';
  const { PATH, HOME, TERM, NO_COLOR, FORCE_COLOR } = process.env;
  // A folder of the program, because the operator's own folder may have a `.env` that the demo must not use.
  const cwd = fileURLToPath(new URL('.', import.meta.url));
  const env = { PATH, HOME, TERM, NO_COLOR, FORCE_COLOR, ...settings };

  async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
    const deadline = performance.now() + WAIT_AT_MOST_MS;
    while (!(await isSo())) {
      signal.throwIfAborted();
      if (performance.now() > deadline) throw new Error('a change did not reach the service within a minute');
      await sleep(LOOK_EVERY_MS);
    }
  }

  return {
    /** Resolves when the condition is true. Throws after a minute. */
    until,

    async run(args: readonly string[]): Promise<{ code: number; stdout: string }> {
      signal.throwIfAborted();
      const child = spawn(process.execPath, [cli, ...args], { stdio: ['ignore', 'pipe', stderr], cwd, env });
      let stdout = '';
      child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
      const [code] = (await once(child, 'close')) as [number | null];
      signal.throwIfAborted();
      return { code: code ?? 1, stdout };
    },

    /** Starts a worker. Resolves when the worker is ready and serves the operator's page. */
    async startWorker(httpPort: number): Promise<void> {
      const worker = spawn(process.execPath, [cli, 'worker'], {
        stdio: 'ignore',
        cwd,
        env: { ...env, HTTP_PORT: String(httpPort) },
      });
      workers.push(worker);
      await until(() => {
        if (worker.exitCode !== null) throw new Error('the worker ended unexpectedly');
        return fetch(`http://127.0.0.1:${httpPort}/readyz`).then(
          ({ ok }) => ok,
          () => false,
        );
      });
    },

    /** Resolves when the user presses Ctrl-C. */
    async untilInterrupted(): Promise<void> {
      if (!signal.aborted) await once(signal, 'abort');
    },

    async stop(): Promise<void> {
      for (const worker of workers) {
        if (worker.exitCode !== null || worker.signalCode !== null) continue;
        const ended = once(worker, 'exit');
        worker.kill('SIGTERM');
        await ended;
      }
    },
  };
}
