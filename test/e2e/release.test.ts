// Files of a release: the package for npm, and the image.
import { execFile } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
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

it('the package contains the program, the documents and the licence, and nothing else', async () => {
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

it('the package contains exactly the declarations that a user can import', async () => {
  const { files } = await pack();
  const declarations = files.map(({ path }) => path).filter((path) => path.endsWith('.d.ts'));
  for (const file of declarations) {
    const imported = readFileSync(`${ROOT}${file}`, 'utf8').matchAll(/ from '(\.[^']+)\.js'/g);
    for (const [, module = ''] of imported)
      expect(declarations).toContain(new URL(`${module}.d.ts`, `file:///${file}`).pathname.slice(1));
  }
  expect(declarations.length).toBeLessThan(15);
});

it('package.json, the lock, the README and the manifest for Kubernetes have the same version', () => {
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

interface Stage {
  name: string | undefined;
  folder: string;
  entryPoint: string[];
}

/**
 * Plays the steps of the Dockerfile in temporary folders, one for each stage: COPY copies, RUN runs. Three steps that take
 * long, or that change this machine, are replaced: for `npm ci` it links the packages of this tree that would be installed, for
 * the compiler it copies what the compiler has written here, and it leaves the cache of npm as it is.
 */
async function playDockerfile(): Promise<Stage> {
  const ignored = readFileSync(path.join(ROOT, '.dockerignore'), 'utf8').split('\n');
  const lines = readFileSync(path.join(ROOT, 'Dockerfile'), 'utf8').split('\n');
  const stages: Stage[] = [];
  for (const line of lines) {
    const [instruction = '', ...words] = line.split(' ');
    const stage = stages.at(-1);
    if (instruction === 'FROM') {
      const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-image-'));
      onTestFinished(() => rmSync(folder, { recursive: true }));
      stages.push({ name: words[2], folder, entryPoint: [] });
    } else if (stage && instruction === 'COPY') copy(words, stage, stages, ignored);
    else if (stage && instruction === 'RUN')
      for (const command of line.slice(4).split(' && ')) await play(command, stage);
    else if (stage && instruction === 'ENTRYPOINT')
      stage.entryPoint = JSON.parse(words.join(' ')) as string[];
    else expect(['', '#', 'ENV', 'WORKDIR', 'USER', 'CMD']).toContain(instruction);
  }
  const last = stages.at(-1);
  if (!last) throw new Error('the Dockerfile has no stage');
  return last;
}

function copy(
  words: readonly string[],
  { folder }: Stage,
  stages: readonly Stage[],
  ignored: readonly string[],
): void {
  const from = words.find((word) => word.startsWith('--from='))?.slice(7);
  const places = words.filter((word) => !word.startsWith('--'));
  const target = places.at(-1) ?? '';
  for (const source of places.slice(0, -1)) {
    if (from === undefined) expect(ignored, '.dockerignore').toContain(`!${source}`);
    const base = from === undefined ? ROOT : (stages.find(({ name }) => name === from)?.folder ?? '');
    const place = target.endsWith('/') ? path.join(target, path.basename(source)) : target;
    cpSync(path.join(base, source.replace(/^\/app\//, '')), path.join(folder, place), { recursive: true });
  }
}

async function play(command: string, { folder }: Pick<Stage, 'folder'>): Promise<void> {
  if (command === 'npm cache clean --force') return;
  const script = /^npm run (\w+)$/.exec(command)?.[1];
  if (script !== undefined) {
    const { scripts } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as {
      scripts: Record<string, string>;
    };
    for (const step of (scripts[script] ?? '').split(' && ')) await play(step, { folder });
    return;
  }
  if (command.startsWith('tsc ')) {
    compile(command, folder);
    return;
  }
  if (!command.startsWith('npm ci ')) {
    const [program = '', ...args] = command.split(' ');
    await execute(program, args, { cwd: folder });
    return;
  }
  const { packages } = JSON.parse(readFileSync(path.join(folder, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean; devOptional?: boolean }>;
  };
  const without = (kind: string) => command.includes(`--omit=${kind}`);
  for (const [place, { dev, optional, devOptional }] of Object.entries(packages)) {
    if (!/^node_modules\/(?:@[^/]+\/)?[^/]+$/.test(place) || !existsSync(path.join(ROOT, place))) continue;
    if ((without('dev') && (dev || devOptional)) || (without('optional') && (optional || devOptional)))
      continue;
    mkdirSync(path.dirname(path.join(folder, place)), { recursive: true });
    symlinkSync(path.join(ROOT, place), path.join(folder, place), 'junction');
  }
}

/** Takes the output of the compiler from the build of this tree, if the configuration and the sources are there. */
function compile(command: string, folder: string): void {
  for (let file: string | undefined = command.split(' -p ')[1]; file !== undefined;) {
    const configuration = JSON.parse(readFileSync(path.join(folder, file), 'utf8')) as { extends?: string };
    file = configuration.extends;
  }
  const isSource = (place: string) => existsSync(path.join(folder, 'src', place));
  expect(['index.ts', 'cli.ts'].filter((place) => !isSource(place))).toEqual([]);
  cpSync(path.join(ROOT, 'dist'), path.join(folder, 'dist'), {
    recursive: true,
    // The step after the compiler adds these.
    filter: (place) => !/\.(?:css|svg|sql)$|browser\.js$/.test(place),
  });
}

it.skipIf(process.platform === 'win32')(
  'the image finds all of its files and packages after the steps of the Dockerfile',
  async () => {
    const { folder, entryPoint } = await playDockerfile();
    const [program = '', ...args] = entryPoint;
    const { stdout } = await execute(program, [...args, '--version'], { cwd: folder });
    expect(stdout).toBe(`${manifest.version}\n`);
    // `--version` loads few modules. Each of the others is imported, which fails without a package that it names.
    const importAll = `
      import { readdirSync } from 'node:fs';
      const files = readdirSync('dist', { recursive: true }).filter((file) => /(?<!^cli|page.browser)\\.js$/.test(file));
      for (const file of files) await import('./dist/' + file);
      console.log(files.length);
      process.exit();`;
    const imported = await execute(program, ['--input-type=module', '--eval', importAll], { cwd: folder });
    expect(Number(imported.stdout)).toBeGreaterThan(300);
    for (const file of ['migrations/0000_state.sql', 'dist/page/page.css', 'dist/demo/university.sql'])
      expect(existsSync(path.join(folder, file)), file).toBe(true);
  },
);

it.skipIf(process.platform === 'win32')(
  'a tag that differs from the version stops the release workflow',
  async () => {
    const workflow = readFileSync(path.join(ROOT, '.github/workflows/release.yml'), 'utf8');
    const [, command = ''] = /run: (test .*GITHUB_REF_NAME.*)/.exec(workflow) ?? [];
    const runWith = (tag: string) =>
      execute('sh', ['-c', command], { cwd: ROOT, env: { PATH: process.env['PATH'], GITHUB_REF_NAME: tag } });
    await expect(runWith(`v${manifest.version}`)).resolves.toBeDefined();
    await expect(runWith('v0.0.1')).rejects.toMatchObject({ code: 1 });
  },
);
