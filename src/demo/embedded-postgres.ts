// Runs a real PostgreSQL for the demo, and for tests without a database of their own. PostgreSQL refuses to run as
// root, so root runs it as the account `nobody`. Other users can reach its port, but neither know its password nor
// enter its folder.
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { constants } from 'node:fs';
import fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, dirname, relative, resolve } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { z } from 'zod';
import { codeOf, messageOf, SlotsyncError, UsageError } from '../errors/errors.js';

export type EmbeddedPostgres = Awaited<ReturnType<typeof startEmbeddedPostgres>>;

const execute = promisify(execFile);
/** Number of attempts to start. Another process may take a free port before the server listens on it. */
const START_ATTEMPTS = 3;
const INITDB_FLAGS = [
  '--no-sync',
  '--auth=scram-sha-256',
  '--encoding=UTF8',
  '--locale=C',
  '--username=postgres',
];
const SERVER_FLAGS =
  '-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300 -c timezone=UTC ' +
  '-c fsync=off -c synchronous_commit=off -c full_page_writes=off';

/**
 * Starts PostgreSQL on a free port of 127.0.0.1, with a new temporary folder and a random superuser password, which is
 * only in the URLs. Starting takes about a second. The server stops when this process ends, even if it is killed. Data
 * is not durable (`fsync=off`). `packageDirectory` is the unpacked npm package with the programs; by default, the
 * package installed for this platform. Throws UsageError if the installation has no PostgreSQL.
 */
export async function startEmbeddedPostgres({ packageDirectory = findPostgresPackage() } = {}) {
  const owner = process.getuid?.() === 0 ? await findNobody() : undefined;
  const folder = await createTemporaryFolder(owner);
  if (owner) await fs.lchown(folder, owner.uid, owner.gid);
  const dataDirectory = join(folder, 'data');
  const logFile = join(folder, 'server.log');
  const watchdog = startWatchdog({ folder, pidFile: join(dataDirectory, 'postmaster.pid') });
  const run = (program: string, ...args: string[]) =>
    execute(join(folder, 'native/bin', program), ['-D', dataDirectory, ...args], { cwd: folder, ...owner });
  const start = (port: number) => run('pg_ctl', 'start', '-l', logFile, '-o', `-p ${port} ${SERVER_FLAGS}`);
  // Fast shutdown closes connections instead of waiting. Errors are ignored, because a crashed server cannot be
  // stopped.
  const stopServer = () =>
    run('pg_ctl', 'stop', '-m', 'fast', '-t', '10')
      .catch(() => run('pg_ctl', 'stop', '-m', 'immediate'))
      .catch(() => undefined);
  const startOnFreePort = async (attempt = 1): Promise<number> => {
    const port = await findFreePort();
    try {
      await start(port);
      return port;
    } catch (error) {
      await stopServer();
      if (attempt === START_ATTEMPTS) throw error;
      return startOnFreePort(attempt + 1);
    }
  };
  /** The password is in a file, because every user can see the arguments of a process. */
  const createCluster = async (password: string) => {
    const file = join(folder, 'password');
    await fs.writeFile(file, password, { mode: 0o600 });
    if (owner) await fs.lchown(file, owner.uid, owner.gid);
    await run('initdb', ...INITDB_FLAGS, `--pwfile=${file}`);
    await fs.rm(file);
  };
  const cleanUp = async () => {
    await fs.rm(folder, { recursive: true, force: true });
    await watchdog.release();
  };

  try {
    await copyPostgresPackage(packageDirectory, folder, owner);
    const password = randomBytes(24).toString('hex');
    await createCluster(password);
    const port = await startOnFreePort();

    const urlOf = (database: string) => `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
    let stopped: Promise<void> | undefined;
    return {
      url: urlOf('postgres'),
      port,
      dataDirectory,
      /** Creates an empty database and returns its URL. The name may contain letters, digits, `_` and `-`. */
      async createDatabase(name: string): Promise<string> {
        const sql = postgres(urlOf('postgres'), { max: 1 });
        try {
          await sql`CREATE DATABASE ${sql(name)}`;
        } finally {
          await sql.end();
        }
        return urlOf(name);
      },
      /** Restarts the server with the same data and port. Closes all connections. */
      async restart(): Promise<void> {
        await stopServer();
        await start(port);
      },
      stop(): Promise<void> {
        stopped ??= stopServer().then(cleanUp);
        return stopped;
      },
    };
  } catch (cause) {
    const log = await fs.readFile(logFile, 'utf8').catch(() => '');
    await cleanUp();
    const lastLines = `${messageOf(cause)}\n${log}`.trimEnd().split('\n').slice(-5).join('\n');
    throw new SlotsyncError('embedded_postgres_failed', `PostgreSQL did not start:\n${lastLines}`, {
      remedy:
        'Set TMPDIR to a folder from which programs may run. ' +
        'Or set MIRROR_DATABASE_URL and STATE_DATABASE_URL to a PostgreSQL of your own.',
      cause,
    });
  }
}

async function findNobody(): Promise<FileOwner> {
  const passwd = await fs.readFile('/etc/passwd', 'utf8').catch(() => '');
  const [, uid = '65534', gid = '65534'] = /^nobody:[^:]*:(-?\d+):(-?\d+):/m.exec(passwd) ?? [];
  // Some systems have the id -2, but system calls need unsigned numbers.
  return { uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 };
}

/**
 * Creates a folder that only its owner may enter, below the system's temporary folder, or `/tmp` if `owner` may not
 * enter that. Throws UsageError if no folder can be created.
 */
async function createTemporaryFolder(owner: FileOwner | undefined): Promise<string> {
  const isOpen = !owner || (await execute('test', ['-x', tmpdir()], owner).catch(() => false));
  const parent = isOpen ? tmpdir() : '/tmp';
  try {
    return await fs.mkdtemp(join(parent, 'slotsync-postgres-'));
  } catch (cause) {
    throw new UsageError(`no folder can be created in the temporary folder ${parent} (${codeOf(cause)})`, {
      remedy: 'Set TMPDIR to a folder in which this user may create files.',
      cause,
    });
  }
}

/** Returns a free port of 127.0.0.1. Another process may take the port before the caller listens on it. */
export async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

// Copies PostgreSQL from an optional npm package to a folder of its own. It cannot run inside node_modules. The
// package's install script, which creates symlinks, may not have run, and the server's user may not be allowed to enter
// the checkout.

interface FileOwner {
  uid: number;
  gid: number;
}

const symlinksSchema = z.array(z.object({ source: z.string(), target: z.string() }));

/** Returns the folder of the package for this platform. Throws UsageError if the package is not installed. */
export function findPostgresPackage(): string {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    // The package exports only its entry file, which lies one folder below the package's root.
    return resolve(dirname(createRequire(import.meta.url).resolve(name)), '..');
  } catch (cause) {
    throw new UsageError(`This installation has no PostgreSQL: the npm package ${name} is not installed.`, {
      remedy:
        'Only the demo needs it. To sync your own databases, set MIRROR_DATABASE_URL and STATE_DATABASE_URL.',
      cause,
    });
  }
}

/** Copies the package's programs and symlinks to `folder`/native, so that `owner` can run them. */
async function copyPostgresPackage(
  packageDirectory: string,
  folder: string,
  owner: FileOwner | undefined,
): Promise<void> {
  const native = join(packageDirectory, 'native');
  for (const path of ['', ...(await fs.readdir(native, { recursive: true }))]) {
    const from = join(native, path);
    const to = join(folder, 'native', path);
    const found = await fs.lstat(from);
    if (found.isSymbolicLink()) continue;
    if (found.isFile() && (!owner || found.mode & constants.S_IROTH)) {
      // A hard link takes a tenth of the time of a copy, but keeps the file's owner.
      await fs.link(from, to).catch(() => fs.copyFile(from, to));
      continue;
    }
    await (found.isDirectory() ? fs.mkdir(to, { mode: 0o700 }) : fs.copyFile(from, to));
    if (owner) await fs.lchown(to, owner.uid, owner.gid);
  }
  const list = await fs.readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of symlinksSchema.parse(JSON.parse(list))) {
    await fs.symlink(relative(dirname(target), source), join(folder, target));
  }
}

// The watchdog stops the server if the process that started it is killed. A shell reads from a pipe that only that
// process holds open. When the pipe ends, the shell stops the server by its pid file, and removes the folder.

/** Shell script of the watchdog. $1 is the folder, and $2 the pid file. */
const SCRIPT = `
read -r _
read -r pid < "$2" && kill -INT "$pid"
tries=0
while [ -e "$2" ] && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
rm -rf -- "$1"
`;

/**
 * Starts a watchdog for the server that writes `pidFile`, and removes that file when it ends. Call `release` once the
 * server has ended. Does nothing on Windows, which may have no shell.
 */
export function startWatchdog({ folder, pidFile }: { folder: string; pidFile: string }) {
  if (process.platform === 'win32') return { release: async () => {} };

  const args = ['-c', SCRIPT, 'watchdog', folder, pidFile];
  // Detached, because Ctrl-C in a terminal signals the whole process group.
  const shell = spawn('/bin/sh', args, { cwd: '/', detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  const exit = once(shell, 'exit').catch(() => undefined);
  const pipe = shell.stdin as Socket;
  pipe.on('error', () => undefined);
  pipe.unref();
  shell.unref();

  return {
    async release(): Promise<void> {
      shell.ref();
      pipe.end();
      await exit;
    },
  };
}
