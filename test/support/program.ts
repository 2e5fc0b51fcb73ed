// The built program as a user runs it: its output, its exit code. As a process of its own (`start`) where it is stopped,
// killed or runs beside others; in this process (`run`) where it only has to be carried out, because a start costs half
// a second of processor time.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { endWithTests } from './child-processes.js';
import { importAnew } from './import-anew.mjs';

const CLI = new URL('../../dist/cli.js', import.meta.url);

export interface Finished {
  code: number | null;
  stdout: string;
  /** Without the lines of progress: a command that takes more than five seconds has them. */
  stderr: string;
}

const PROGRESS =
  /^(?:run \d+: )?(?:[^,\n]+ left, )?(?:\d+ %, )?\d[^,\n]* of \d[^,\n]* (?:records|objects|hours)(?:, [^,\n]+ a second)?(?:, \d+ % of the quota)?\n/gm;
const withoutProgress = (text: string) => text.replaceAll(PROGRESS, '');

export interface Running {
  child: ChildProcess;
  /** Standard output and standard error so far. */
  output(): string;
  finished: Promise<Finished>;
}

export type Env = Record<string, string | undefined>;

/** Starts `slotsync …args` with these settings and no others. `cli`: the built program of another tree. */
export function start(
  args: readonly string[],
  env: Env,
  cwd = process.cwd(),
  input?: string,
  cli = fileURLToPath(CLI),
): Running {
  requireBuild();
  const child = spawn(process.execPath, [cli, ...args], {
    cwd,
    env: onlyThese(env),
    stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  });
  endWithTests(child);
  child.stdin?.end(input);
  let stdout = '';
  let stderr = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const finished = once(child, 'close').then(([code]) => ({
    code: code as number | null,
    stdout,
    stderr: withoutProgress(stderr),
  }));
  return { child, output: () => stdout + stderr, finished };
}

/** Only one command at a time has the process's arguments, environment, folder and output. */
let previous: Promise<unknown> = Promise.resolve();

/**
 * Runs `slotsync …args` to its end in this process, with these settings and no others. Its log lines are not among the
 * output: they go to the file descriptor.
 */
export function run(args: readonly string[], env: Env, cwd = process.cwd()): Promise<Finished> {
  const finished = previous.then(() => runAlone(args, env, cwd));
  previous = finished.catch(() => undefined); // whoever asked for it hears of it
  return finished;
}

async function runAlone(args: readonly string[], env: Env, cwd: string): Promise<Finished> {
  requireBuild();
  const { stdout, stderr } = process;
  const before = {
    argv: process.argv,
    env: process.env,
    cwd: process.cwd(),
    exitCode: process.exitCode,
    exit: process.exit,
    writes: [stdout.write, stderr.write] as const,
    listeners: [stdout, stderr].map((stream) => stream.listeners('error')),
  };
  const printed = { stdout: '', stderr: '' };
  const into = (stream: keyof typeof printed) =>
    ((text: string | Uint8Array, ...rest: unknown[]) => {
      printed[stream] += typeof text === 'string' ? text : Buffer.from(text).toString();
      const written = rest.at(-1);
      if (typeof written === 'function') written();
      return true;
    }) as typeof stdout.write;

  process.argv = [process.execPath, fileURLToPath(CLI), ...args];
  process.env = onlyThese({ LOG_LEVEL: 'silent', ...env });
  process.exitCode = undefined;
  process.exit = (() => undefined) as unknown as typeof process.exit; // its last act, when everything is printed
  stdout.write = into('stdout');
  stderr.write = into('stderr');
  try {
    process.chdir(cwd);
    await importAnew(CLI);
    return { code: readExitCode(), stdout: printed.stdout, stderr: withoutProgress(printed.stderr) };
  } finally {
    process.argv = before.argv;
    process.env = before.env;
    process.exitCode = before.exitCode;
    process.exit = before.exit;
    [stdout.write, stderr.write] = before.writes;
    for (const [at, stream] of [stdout, stderr].entries())
      for (const listener of stream.listeners('error'))
        if (!before.listeners[at]?.includes(listener)) stream.off('error', listener as () => void);
    process.chdir(before.cwd);
  }
}

/** The exit code that the process would end with now. */
function readExitCode(): number {
  return Number(process.exitCode ?? 0);
}

function requireBuild(): void {
  if (!existsSync(CLI)) throw new Error('dist/cli.js is not there; run: npm run build');
}

function onlyThese(env: Env): Env {
  return { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env };
}
