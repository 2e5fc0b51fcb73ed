// The files that a release is made of: the package for npm.
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const NPM = process.platform === 'win32' ? 'npm.cmd' : 'npm';
const execute = promisify(execFile);

interface Packed {
  version: string;
  size: number;
  unpackedSize: number;
  files: { path: string }[];
}

/** The package that `npm pack` would make of the build. Skips `prepack`, which would build anew under other tests. */
let packed: Promise<Packed> | undefined;
const pack = () => (packed ??= runPack());

async function runPack(): Promise<Packed> {
  const { stdout } = await execute(NPM, ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: ROOT });
  // npm 10 prints a list, npm 11 an object by name.
  const [result] = Object.values(JSON.parse(stdout) as Record<string, Packed>);
  if (!result) throw new Error('npm pack named no package');
  return result;
}

it('package: it has what runs, the documents and the licence, and nothing else', async () => {
  const { version, size, unpackedSize, files } = await pack();
  expect(version).toBe(manifest.version);
  const paths = files.map(({ path }) => path);
  expect(paths).toEqual(
    expect.arrayContaining([
      'LICENSE',
      'README.md',
      'CHANGELOG.md',
      'VERSIONING.md',
      'package.json',
      'dist/cli.js',
      'dist/index.js',
      'dist/index.d.ts',
      'dist/demo/university.sql',
      'dist/page/page.css',
      'migrations/0000_state.sql',
      'migrations/meta/_journal.json',
      'migrations/repeatable/locks.sql',
      'migrations/repeatable/quota.sql',
      'docs/README.md',
      'examples/university/sync.config.ts',
      'examples/systemd/slotsync-worker.service',
    ]),
  );
  const allowed =
    /^(?:(?:LICENSE|README\.md|CHANGELOG\.md|VERSIONING\.md|package\.json)$|(?:dist|migrations|docs|examples)\/)/;
  expect(paths.filter((path) => !allowed.test(path))).toEqual([]);
  const unwanted = /(?:^|\/)\.env|\.map$|\.png$|_snapshot\.json$|^dist\/.*\.test\.|\.tsbuildinfo$/;
  expect(paths.filter((path) => unwanted.test(path))).toEqual([]);
  // Room for growth; a folder that gets in by mistake is larger.
  expect(size / 1024).toBeLessThan(1000);
  expect(unpackedSize / 1024).toBeLessThan(3500);
});

it('package: each declaration that a user can import is in it, and no other', async () => {
  const { files } = await pack();
  const declarations = files.map(({ path }) => path).filter((path) => path.endsWith('.d.ts'));
  for (const file of declarations) {
    const imported = readFileSync(`${ROOT}${file}`, 'utf8').matchAll(/ from '(\.[^']+)\.js'/g);
    for (const [, module = ''] of imported)
      expect(declarations).toContain(new URL(`${module}.d.ts`, `file:///${file}`).pathname.slice(1));
  }
  expect(declarations.length).toBeLessThan(15);
});

it('version: package.json, the lock, the README and the manifest for Kubernetes name the same', () => {
  const read = (file: string) => readFileSync(`${ROOT}${file}`, 'utf8');
  const { version } = manifest;
  const lock = JSON.parse(read('package-lock.json')) as {
    version: string;
    packages: Record<string, { version: string }>;
  };
  expect([lock.version, lock.packages['']?.version]).toEqual([version, version]);
  expect(read('README.md')).toContain(`> **Version ${version}. `);
  for (const file of ['examples/kubernetes/slotsync.yaml', 'examples/kubernetes/README.md'])
    expect(new Set([...read(file).matchAll(/\/slotsync:([\w.-]+)/g)].map(([, tag]) => tag))).toEqual(
      new Set([version]),
    );
  expect(read('CHANGELOG.md')).toMatch(new RegExp(`^## \\[${version}\\] - \\d{4}-\\d\\d-\\d\\d$`, 'm'));
});
