// Runs an npm script with another release of Node: `npm run test:node -- 22`, `npm run test:node -- 24 test:unit`.
// The registry has Node's binaries as packages; npm keeps what it fetched in its cache.
import { spawnSync } from 'node:child_process';

const [release, script = 'test', ...args] = process.argv.slice(2);
if (!/^\d+(\.\d+){0,2}$/.test(release ?? '')) {
  console.error('usage: npm run test:node -- <release, such as 22> [npm script, default: test] [arguments]');
  process.exit(2);
}
const name = { 'win32-x64': 'win-x64', 'darwin-arm64': 'bin-darwin-arm64' };
const system = `${process.platform}-${process.arch}`;
const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
// `npm exec` puts the package's `node` first on PATH, for npm, the script and every process they start.
const node = ['exec', '--yes', `--package=node-${name[system] ?? system}@${release}`, '--'];
spawnSync(npm, [...node, 'node', '-p', '`Node ${process.version}`'], { stdio: 'inherit' });
const { status } = spawnSync(npm, [...node, 'npm', 'run', script, '--', ...args], { stdio: 'inherit' });
process.exit(status ?? 1);
