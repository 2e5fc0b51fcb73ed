// Processes that tests start end with them, however the test run ends.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../support/wait.js';

const ROOT = resolve(import.meta.dirname, '../..');

/** A process as the test runner's, which has started two others, one of them frozen. */
const RUNNER = `
  const { spawn } = await import('node:child_process');
  const { createJiti } = await import('jiti');
  const { endWithTests } = await createJiti(process.cwd() + '/', { fsCache: false }).import('./test/support/child-processes.ts');
  const start = () => {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' });
    endWithTests(child);
    return child.pid;
  };
  const [running, frozen] = [start(), start()];
  process.kill(frozen, 'SIGSTOP');
  console.log(JSON.stringify([running, frozen]));
  setInterval(() => {}, 1000);`;

test.each(['SIGKILL', 'SIGTERM'] as const)(
  'child process: it is killed, also when frozen, when %s ends the process that started it',
  async (signal) => {
    const runner = spawn(process.execPath, ['--input-type=module', '--eval', RUNNER], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void runner.kill('SIGKILL'));
    const [line] = (await once(runner.stdout, 'data')) as [Buffer];
    const pids = JSON.parse(line.toString()) as number[];
    expect(pids.map(isAlive)).toEqual([true, true]);
    runner.kill(signal);
    await until(() => !pids.some(isAlive), { describe: 'both to be gone' });
  },
);

/** A process that has ended and whose end nobody has asked for (a zombie) is not alive. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !existsSync('/proc') || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
