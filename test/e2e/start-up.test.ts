// A command loads only what it uses: start-up is half of what `status` and every test of the program cost.
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rehearse, type Rehearsal } from '../support/rehearsal.js';

let world: Rehearsal;
let folder: string;
beforeAll(async () => {
  world = await rehearse({ rows: 1, sandbox: { rate: 0 } });
  folder = await mkdtemp(path.join(tmpdir(), 'slotsync-modules-'));
});
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true });
});

/** Returns the packages and the modules of `dist/` that the program has loaded when it ends. V8 lists every script. */
async function loadedBy(...args: string[]): Promise<{ packages: string[]; modules: string[] }> {
  const coverage = await mkdtemp(path.join(folder, 'run-'));
  // Without it, and before a worker has noted the schedule, the configuration says it.
  const { code, stderr } = await world.start(args, { NODE_V8_COVERAGE: coverage, TIMEZONE: 'UTC' }).finished;
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  const urls: string[] = [];
  for (const file of await readdir(coverage)) {
    const { result } = JSON.parse(await readFile(path.join(coverage, file), 'utf8')) as {
      result: { url: string }[];
    };
    urls.push(...result.map(({ url }) => url));
  }
  const named = (pattern: RegExp) =>
    [...new Set(urls.flatMap((url) => pattern.exec(url)?.[1] ?? []))].toSorted();
  return { packages: named(/\/node_modules\/((?:@[^/]+\/)?[^/]+)/), modules: named(/\/dist\/(.+)\.js$/) };
}

describe('the start of the program', () => {
  it.skipIf(process.platform === 'win32')('has an executable file after the build', async () => {
    const { mode } = await stat(new URL('../../dist/cli.js', import.meta.url));
    expect(mode & 0o111).toBe(0o111);
  });

  it('fails on an older Node in one line, before anything is loaded', async () => {
    const { engines } = JSON.parse(
      await readFile(new URL('../../package.json', import.meta.url), 'utf8'),
    ) as { engines: { node: string } };
    const [oldest = ''] = /\d.*/.exec(engines.node) ?? [];
    const runOn = (version: string) => {
      const versions = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`;
      const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(versions)}`;
      return world.start(['--version'], { NODE_OPTIONS }).finished;
    };
    for (const version of ['18.20.4', '20.9.0', oldest.replace(/\d+$/, '0')])
      expect(await runOn(version)).toEqual({
        code: 2,
        stdout: '',
        stderr: `slotsync: Node ${version} is too old: ${oldest} or later is needed.\n`,
      });
    for (const version of [oldest, '20.20.0', '26.0.0'])
      expect(await runOn(version)).toMatchObject({ code: 0, stderr: '' });
  });

  it.each([[['--help']], [['--version']], [['sync', '--help']]])(
    'loads only the command table and the width of text for %j',
    async (args) => {
      const { packages, modules } = await loadedBy(...args);
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
    },
  );

  it('loads the state for status, but no queue, destination, mirror or configuration', async () => {
    await world.run(['sync']);
    for (const options of [[], ['--json']]) {
      const { packages, modules } = await loadedBy('status', ...options);
      expect(packages).toEqual(expect.arrayContaining(['drizzle-orm', 'postgres']));
      const unused = [
        'bullmq',
        'ioredis',
        'pg',
        'undici',
        'jiti',
        'prom-client',
        'cron-parser',
        'hono',
        '@opentelemetry/api',
      ];
      expect(packages.filter((name) => unused.includes(name))).toEqual([]);
      expect(
        modules.filter((name) =>
          /^(mirror|http|page|sandbox|demo)\/|destination\/client|config-file/.test(name),
        ),
      ).toEqual([]);
    }
  });

  it('loads no server, no page and no queue for a small sync', async () => {
    const { packages, modules } = await loadedBy('sync');
    const unused = ['hono', '@hono/node-server', 'prom-client', 'bullmq', 'ioredis', 'pg'];
    expect(packages).toContain('undici');
    expect(packages.filter((name) => unused.includes(name))).toEqual([]);
    expect(modules.filter((name) => /^(http|page)\/|^app\/app-page$/.test(name))).toEqual([]);
  });

  it('loads no queue for pause and failures', async () => {
    for (const command of ['pause', 'failures']) {
      const { packages } = await loadedBy(command);
      expect(packages).not.toContain('bullmq');
    }
  });
});
