// Installs the package as a user does, in a folder with a blank in its name: `npm run test:install`, and on another release of
// Node `npm run test:node -- 22 test:install`. Plays the demo, then installs the package over itself, as an upgrade does.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const folder = mkdtempSync(path.join(tmpdir(), 'slotsync package-'));
const app = path.join(folder, 'some app');
const isWindows = process.platform === 'win32';

function run(cwd, program, ...args) {
  console.log(`$ ${program} ${args.join(' ')}`);
  const started = performance.now();
  const { status } = spawnSync(isWindows ? `${program}.cmd` : program, args, { cwd, stdio: 'inherit' });
  console.log(`exit code ${status}, ${((performance.now() - started) / 1000).toFixed(1)} s\n`);
  if (status !== 0) throw new Error(`${program} ${args.join(' ')} failed`);
}

try {
  mkdirSync(app);
  writeFileSync(path.join(app, 'package.json'), '{ "name": "some-app", "private": true }');
  run('.', 'npm', 'pack', '--silent', '--pack-destination', folder);
  const [tarball] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  for (const attempt of ['install', 'upgrade']) {
    console.log(`${attempt}, Node ${process.version}`);
    run(app, 'npm', 'install', '--no-audit', '--no-fund', path.join('..', tarball));
    run(app, 'npx', '--no-install', 'slotsync', '--version');
    if (attempt === 'install') run(app, 'npx', '--no-install', 'slotsync', 'demo');
  }
} finally {
  rmSync(folder, { recursive: true });
}
