// A command on a terminal of 80 columns: `script`, part of every Debian; the one of other systems has other options.
import { spawn, spawnSync } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { Env } from './program.js';

const CLI = fileURLToPath(new URL('../../dist/cli.js', import.meta.url));

export const hasTerminal = () =>
  spawnSync('script', ['--version']).stdout?.toString().includes('util-linux') ?? false;

/** The output of `slotsync …command` there, with its colours. */
export async function readTerminal(
  command: string,
  { env, cwd }: { env: Env; cwd: string },
): Promise<string> {
  const typed = `stty cols 80 rows 50; '${process.execPath}' '${CLI}' ${command}`;
  const terminal = spawn('script', ['-qec', typed, '/dev/null'], {
    cwd,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], TERM: 'xterm', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return (await text(terminal.stdout)).replaceAll('\r', '');
}

/** The text without what a terminal obeys. */
// eslint-disable-next-line no-control-regex
export const withoutColours = (shown: string) => shown.replaceAll(/\x1b\[[?\d;]*[A-Za-z]/g, '');
