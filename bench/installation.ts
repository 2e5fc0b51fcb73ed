// The built program as an organization runs it: a folder with a configuration, its settings, commands and workers.
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { start, type Env, type Running } from '../test/support/program.js';
import { until } from '../test/support/wait.js';

/** Runs `work` and then, whatever became of it, everything given to `onEnd`: last in, first out. */
export async function withCleanup(
  work: (onEnd: (close: () => unknown) => void) => Promise<void>,
): Promise<void> {
  const closers: (() => unknown)[] = [];
  try {
    await work((close) => closers.push(close));
  } finally {
    for (const close of closers.reverse()) await close();
  }
}

export interface Command {
  stdout: string;
  seconds: number;
  /** Undefined where the system has no /proc. */
  peakBytes: number | undefined;
}

/** Needs `npm run build`. Without `REDIS_URL` in `env`, queue and quota are in the database. */
export async function install(options: {
  databaseUrl: string;
  serviceUrl: string;
  configuration: object;
  env?: Env;
  /** The folder of another tree, built, whose program is run. */
  tree?: string | undefined;
}) {
  const folder = await mkdtemp(path.join(tmpdir(), 'slotsync-bench-'));
  await writeFile(path.join(folder, 'sync.config.json'), JSON.stringify(options.configuration));
  const env: Env = {
    MIRROR_DATABASE_URL: options.databaseUrl,
    API_BASE_URL: options.serviceUrl,
    API_ORGANIZATION_ID: 'demo',
    API_KEY: 'sandbox-key',
    ...options.env,
  };
  const started: Running[] = [];
  const begin = (args: readonly string[], changes: Env = {}): Running => {
    const cli = options.tree === undefined ? undefined : path.join(options.tree, 'dist', 'cli.js');
    const running = start(args, { ...env, ...changes }, folder, undefined, cli);
    started.push(running);
    return running;
  };

  return {
    /** Runs `slotsync …args` to its end. Throws when it fails. */
    async command(...args: string[]): Promise<Command> {
      const startedAt = performance.now();
      const { child, finished } = begin(args);
      let peakBytes: number | undefined;
      const watch = setInterval(() => (peakBytes = readPeak(child.pid) ?? peakBytes), 10);
      const { code, stdout, stderr } = await finished;
      clearInterval(watch);
      if (code !== 0) throw new Error(`slotsync ${args.join(' ')} ended with ${code}: ${stderr}`);
      return { stdout, peakBytes, seconds: (performance.now() - startedAt) / 1000 };
    },

    /** Resolves when the worker works. */
    async startWorker(...args: string[]): Promise<Running> {
      const worker = begin(['worker', ...args], { LOG_LEVEL: 'info' });
      await until(() => worker.output().includes('worker started'), {
        describe: () => `a worker to start: ${worker.output()}`,
        timeoutMs: 120_000,
      });
      return worker;
    },

    /** Kills what still runs. */
    async close(): Promise<void> {
      for (const { child } of started) child.kill('SIGKILL');
      await Promise.all(started.map(({ finished }) => finished));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export type Installation = Awaited<ReturnType<typeof install>>;

/** The most memory the process has held at once, in bytes. */
function readPeak(pid: number | undefined): number | undefined {
  try {
    const kilobytes = /^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  } catch {
    return undefined; // it has ended, or there is no /proc
  }
}
