// The built program as a user runs it: a child process, its output, its exit code.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

export interface Finished {
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  child: ChildProcess;
  /** What was printed so far, both ways. */
  output(): string;
  finished: Promise<Finished>;
}

export type Env = Record<string, string | undefined>;

/** Starts `slotsync …args` with these settings and no others. */
export function start(args: readonly string[], env: Env, cwd = process.cwd(), input?: string): Running {
  if (!existsSync(CLI)) throw new Error('dist/cli.js is not there; run: npm run build');
  const child = spawn(process.execPath, [CLI, ...args], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  child.stdin?.end(input);
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const finished = once(child, 'close').then(([code]) => ({ code: code as number | null, stdout, stderr }));
  return { child, output: () => stdout + stderr, finished };
}

/** Runs `slotsync …args` to its end. */
export function run(args: readonly string[], env: Env, cwd?: string, input?: string): Promise<Finished> {
  return start(args, env, cwd, input).finished;
}
