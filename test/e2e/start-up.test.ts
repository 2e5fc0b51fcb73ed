// A command loads only what it uses: start-up is half of what `status` and every test of the program cost.
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import manifest from '../../package.json' with { type: 'json' };
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { rehearseOnce } from '../support/rehearsals.js';

const CLI = new URL('../../dist/cli.js', import.meta.url).href;

const world = rehearseOnce({ rows: 1, sandbox: { rate: 0 } });
let folder: string;
beforeAll(async () => void (folder = await mkdtemp(path.join(tmpdir(), 'slotsync-modules-'))));
afterAll(() => rm(folder, { recursive: true }));

/**
 * Returns the packages and the modules of `dist/` that one process has loaded after these commands. V8 lists every script.
 * Several commands cost the start of one process.
 */
async function loadedBy(...commands: string[]): Promise<{ packages: string[]; modules: string[] }> {
  const coverage = await mkdtemp(path.join(folder, 'run-'));
  const script = `
    const exit = process.exit;
    for (const [at, command] of ${JSON.stringify(commands)}.entries()) {
      process.argv = [process.execPath, 'slotsync', ...command.split(' ')];
      process.exit = () => undefined; // the last act of a command
      await import(${JSON.stringify(CLI)} + '?' + at);
      if (process.exitCode) break;
    }
    exit();`;
  // Without TIMEZONE, and before a worker has noted the schedule, the configuration says it.
  const env = { ...world.env, PATH: process.env['PATH'], NODE_V8_COVERAGE: coverage, TIMEZONE: 'UTC' };
  const run = promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
    cwd: world.folder,
    env,
  });
  expect(await run).toMatchObject({ stderr: '' });
  const urls: string[] = [];
  for (const file of await readdir(coverage)) {
    const { result } = JSON.parse(await readFile(path.join(coverage, file), 'utf8')) as {
      result: { url: string }[];
    };
    urls.push(...result.map(({ url }) => url));
  }
  const named = (pattern: RegExp) =>
    [...new Set(urls.flatMap((url) => pattern.exec(url)?.[1] ?? []))].toSorted();
  return {
    packages: named(/\/node_modules\/((?:@[^/]+\/)?[^/]+)/),
    modules: named(/\/dist\/(.+)\.js(?:\?\d+)?$/),
  };
}

describe('the start of the program', () => {
  it.skipIf(process.platform === 'win32')('has an executable file after the build', async () => {
    const { mode } = await stat(new URL('../../dist/cli.js', import.meta.url));
    expect(mode & 0o111).toBe(0o111);
  });

  it('fails on an older Node in one line', async () => {
    const [oldest = ''] = /\d.*/.exec(manifest.engines.node) ?? [];
    const versions = Object.getOwnPropertyDescriptor(process, 'versions') ?? {};
    onTestFinished(() => void Object.defineProperty(process, 'versions', versions));
    const runOn = (node: string) => {
      Object.defineProperty(process, 'versions', { ...versions, value: { ...process.versions, node } });
      return world.run(['--version']);
    };
    for (const version of ['18.20.4', '20.9.0', oldest.replace(/\d+$/, '0')])
      expect(await runOn(version)).toEqual({
        code: 2,
        stdout: '',
        stderr: `slotsync: Node ${version} is too old: ${oldest} or later is needed.\n`,
      });
    for (const version of [oldest, '20.20.0', '26.0.0'])
      expect(await runOn(version)).toMatchObject({ code: 0, stdout: `${manifest.version}\n`, stderr: '' });
  });

  it('loads only the command table and the width of text for help and the version', async () => {
    const { packages, modules } = await loadedBy('--help', '--version', 'sync --help');
    expect(packages).toEqual(['commander', 'get-east-asian-width', 'string-width']);
    expect(modules).toEqual([
      'cli',
      'commands/command',
      'commands/command-table',
      'commands/program',
      'commands/read-options',
      'commands/signals',
      'errors/error-catalogue',
      'errors/errors',
      'process/terminal',
      'render/print',
      'render/wrap',
      'text/format',
      'text/visible-text',
      'time/zoned-time',
    ]);
  });

  it('loads the state for status, but no queue, destination, mirror or configuration', async () => {
    await world.read('sync');
    const { packages, modules } = await loadedBy('status', 'status --json');
    expect(packages).toEqual(expect.arrayContaining(['drizzle-orm', 'postgres']));
    const unused =
      /^(bullmq|ioredis|pg|undici|jiti|prom-client|cron-parser|hono|@opentelemetry\/api)$|^(mirror|http|page|sandbox|demo)\/|destination\/client|config-file/;
    expect([...packages, ...modules].filter((name) => unused.test(name))).toEqual([]);
  });

  it('loads no server, no page and no queue for a small sync, pause and failures', async () => {
    const { packages, modules } = await loadedBy('sync', 'pause', 'failures');
    expect(packages).toContain('undici');
    const unused = /^(hono|@hono\/node-server|prom-client|bullmq|ioredis|pg)$|^(http|page)\/|^app\/app-page$/;
    expect([...packages, ...modules].filter((name) => unused.test(name))).toEqual([]);
  });
});
