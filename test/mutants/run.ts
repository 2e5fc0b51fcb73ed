// `npm run test:mutants [name…]`: shows that the tests notice what they are there for. Each mutant is applied to a copy
// of the tree, the test that it names is run there, and the mutant is killed when that test fails. First the same tests
// are run without any mutant: all of them must pass.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startServices } from '../support/global-setup.js';
import { readMutants, ROOT, type Mutant } from './read-mutants.js';

type Verdict = 'killed' | 'survived' | 'does not apply' | 'does not build' | 'no test ran';

interface Report {
  testResults: { name: string; assertionResults: { fullName: string; status: string }[] }[];
}

/** A test that a mutant keeps waiting fails after this time. Milliseconds. */
const TEST_TIMEOUT = 120_000;
/** A test run that does not end is killed after this time. Milliseconds. */
const RUN_TIMEOUT = 10 * 60_000;

const interruption = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());
const copy = mkdtempSync(path.join(tmpdir(), 'slotsync-mutants-'));
/** Started once for all test runs, each of which makes its own databases. */
const { database, redis } = await startServices();
const env = {
  ...process.env,
  TEST_DATABASE_URL: database.url,
  ...(redis && { TEST_REDIS_URL: redis.url }),
  // The copy is no repository, and git is not to look for one around it.
  GIT_CEILING_DIRECTORIES: path.dirname(copy),
};
try {
  process.exitCode = await main(process.argv.slice(2));
} finally {
  await Promise.all([database.stop(), redis?.stop()]);
  rmSync(copy, { recursive: true, force: true });
}

async function main(names: readonly string[]): Promise<number> {
  const mutants = readMutants().filter(
    ({ name }) => names.length === 0 || names.some((wanted) => name.includes(wanted)),
  );
  if (mutants.length === 0) {
    process.stderr.write(`No mutant has such a name: ${names.join(' ')}. They are in test/mutants/.\n`);
    return 2;
  }
  copyTree();
  const began = performance.now();
  print(`The tests of ${mutants.length} mutants, without any mutant`);
  const faults = await testWithoutMutants(mutants);
  if (interruption.signal.aborted) return 130;
  for (const fault of faults) print(`- ${fault}`);
  if (faults.length > 0) return 1;
  print(`all pass, ${secondsSince(began)} s\n`);

  const verdicts = new Map<Mutant, Verdict>();
  for (const mutant of mutants) {
    const started = performance.now();
    const verdict = await judge(mutant);
    if (interruption.signal.aborted) return 130;
    verdicts.set(mutant, verdict);
    const line = `${String(mutant.guarantee).padStart(2)}  ${mutant.name.padEnd(46)} ${verdict}`;
    print(`${line.padEnd(68)} ${secondsSince(started).padStart(4)} s`);
  }
  return summarize(verdicts, secondsSince(began));
}

/** The working tree as it is now: files that git knows, and new ones. */
function copyTree(): void {
  const listed = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  if (listed.status !== 0) throw new Error('git cannot list the files of the tree', { cause: listed.error });
  for (const file of listed.stdout.split('\0')) {
    if (file === '' || file === 'node_modules' || !existsSync(path.join(ROOT, file))) continue;
    cpSync(path.join(ROOT, file), path.join(copy, file));
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(copy, 'node_modules'));
}

/** The faults of the tests before anything is changed; empty when each mutant's test runs and passes. */
async function testWithoutMutants(mutants: readonly Mutant[]): Promise<string[]> {
  if (mutants.some(needsBuild) && !(await build())) return ['the program does not build'];
  const tests = await runTests(mutants);
  const failed = tests.filter(({ status }) => status === 'failed');
  const missing = mutants.filter(
    ({ test, title }) =>
      !tests.some(({ file, name, status }) => file === test && name.includes(title) && status === 'passed'),
  );
  return [
    ...failed.map(({ file, name }) => `fails: ${file}: ${name}`),
    ...missing.map(({ name, test, title }) => `${name}: in ${test} no test passes that is called: ${title}`),
  ];
}

async function judge(mutant: Mutant): Promise<Verdict> {
  if (!apply(mutant, '--check') || !apply(mutant)) return 'does not apply';
  try {
    if (needsBuild(mutant) && !(await build())) return 'does not build';
    const tests = await runTests([mutant]);
    if (tests.some(({ status }) => status === 'failed')) return 'killed';
    return tests.some(({ status }) => status === 'passed') ? 'survived' : 'no test ran';
  } finally {
    apply(mutant, '--reverse');
  }
}

/** Tests of the built program. */
function needsBuild({ test }: Mutant): boolean {
  return test.startsWith('test/e2e/') || test.startsWith('test/faults/');
}

async function build(): Promise<boolean> {
  const npm = process.platform === 'win32' ? 'npm.cmd' : 'npm';
  return (await execute(npm, ['run', '--silent', 'build'])) === 0;
}

function apply({ file }: Mutant, ...options: readonly string[]): boolean {
  // As it was copied: the working tree may change meanwhile.
  const patch = path.join(copy, path.relative(ROOT, file));
  const { status, stderr } = spawnSync('git', ['apply', ...options, patch], {
    cwd: copy,
    env,
    encoding: 'utf8',
  });
  if (status !== 0) process.stderr.write(stderr);
  return status === 0;
}

/** Runs the tests that these mutants name, and nothing else. */
async function runTests(mutants: readonly Mutant[]) {
  const files = [...new Set(mutants.map(({ test }) => test))];
  const titles = mutants.map(({ title }) => title.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`));
  const results = path.join(copy, 'results.json');
  rmSync(results, { force: true });
  const vitest = path.join(copy, 'node_modules/vitest/vitest.mjs');
  const which = [...files, '--testNamePattern', titles.join('|')];
  const reporter = ['--reporter', 'json', '--outputFile', results];
  await execute(process.execPath, [vitest, 'run', ...which, ...reporter, `--testTimeout=${TEST_TIMEOUT}`]);
  if (!existsSync(results)) return [];
  const { testResults } = JSON.parse(readFileSync(results, 'utf8')) as Report;
  return testResults.flatMap(({ name: file, assertionResults }) =>
    assertionResults.map(({ fullName, status }) => ({
      file: path.relative(copy, file).replaceAll(path.sep, '/'),
      name: fullName,
      status,
    })),
  );
}

/** The exit code of a program that was run in the copy. */
function execute(command: string, args: readonly string[]): Promise<number | null> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.any([interruption.signal, AbortSignal.timeout(RUN_TIMEOUT)]);
    const child = spawn(command, args, {
      cwd: copy,
      env,
      stdio: 'ignore',
      signal,
      shell: command.endsWith('.cmd'),
    });
    child.once('error', (error) => (error.name === 'AbortError' ? resolve(null) : reject(error)));
    child.once('close', resolve);
  });
}

function summarize(verdicts: ReadonlyMap<Mutant, Verdict>, seconds: string): number {
  const left = [...verdicts].filter(([, verdict]) => verdict !== 'killed');
  const guarantees = new Set([...verdicts.keys()].map(({ guarantee }) => guarantee));
  print('\nguarantee  mutants  killed');
  for (const guarantee of [...guarantees].sort((a, b) => a - b)) {
    const its = [...verdicts].filter(([mutant]) => mutant.guarantee === guarantee);
    const killed = its.filter(([, verdict]) => verdict === 'killed');
    print(
      [guarantee, its.length, killed.length].map((n, at) => String(n).padStart(at === 1 ? 8 : 9)).join(' '),
    );
  }
  print(`\n${verdicts.size - left.length} of ${verdicts.size} mutants killed, ${seconds} s`);
  for (const [{ name, changes, test, title }, verdict] of left) {
    print(`\n${name}: ${verdict}\n  ${changes}\n  should fail: ${test}\n  ${title}`);
  }
  return left.length === 0 ? 0 : 1;
}

function secondsSince(start: number): string {
  return ((performance.now() - start) / 1000).toFixed(0);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
