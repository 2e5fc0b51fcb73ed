// A real PostgreSQL for the demo and the tests, on machines that have none. PostgreSQL refuses to run as root, so
// root runs it as `nobody`, an account that every system has.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { lchown, mkdtemp, open, readFile, rm, stat } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { messageOf, SlotsyncError } from '../errors.js';
import { copyPostgresPackage, findPostgresPackage, type FileOwner } from './postgres-binaries.js';
import { startWatchdog } from './watchdog.js';

export interface EmbeddedPostgresOptions {
  /** The unpacked npm package with the programs; default: the one installed for this platform. */
  packageDirectory?: string;
  /** Where to listen, called again when the port turns out to be taken; default: any free port. */
  findPort?: () => Promise<number>;
}

export type EmbeddedPostgres = Awaited<ReturnType<typeof startEmbeddedPostgres>>;

interface Installation {
  folder: string;
  dataDirectory: string;
  logFile: string;
  /** Whom the programs run as; undefined: as this process does. */
  owner: FileOwner | undefined;
}

const START_TIMEOUT_MS = 30_000;
const STOP_TIMEOUT_MS = 10_000;
/** Between choosing a free port and listening on it, another process can take it. */
const START_ATTEMPTS = 3;
const INITDB_FLAGS = ['--no-sync', '--auth=trust', '--encoding=UTF8', '--locale=C', '--username=postgres'];
const SETTINGS = [
  'listen_addresses=127.0.0.1',
  'unix_socket_directories=',
  'max_connections=300',
  'timezone=UTC',
  'fsync=off',
  'synchronous_commit=off',
  'full_page_writes=off',
];

/**
 * Starts a PostgreSQL on a free port of 127.0.0.1, in a fresh temporary folder, with the superuser `postgres`
 * and no password. It takes about a second. The server does not keep this process alive, and ends with it however
 * that ends. Data is not safe there (`fsync=off`). Throws UsageError when no PostgreSQL comes with the installation.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions = {}) {
  const packageDirectory = options.packageDirectory ?? findPostgresPackage();
  const owner = process.getuid?.() === 0 ? await findNobody() : undefined;
  const folder = await mkdtemp(join(await temporaryFolder(owner), 'slotsync-postgres-'));
  if (owner) await lchown(folder, owner.uid, owner.gid);
  const [dataDirectory, logFile] = [join(folder, 'data'), join(folder, 'server.log')];
  const installation: Installation = { folder, dataDirectory, logFile, owner };
  const watchdog = startWatchdog({ folder, pidFile: join(dataDirectory, 'postmaster.pid') });
  const leave = async () => {
    await rm(folder, { recursive: true, force: true });
    await watchdog.release();
  };

  try {
    await copyPostgresPackage(packageDirectory, folder, owner);
    const initdb = join(folder, 'native', 'bin', 'initdb');
    await promisify(execFile)(initdb, [...INITDB_FLAGS, '-D', dataDirectory], { cwd: folder, ...owner });
    const started = await startOnFreePort(installation, options.findPort ?? findFreePort);
    let { server } = started;
    const { port } = started;

    const urlOf = (database: string) => `postgres://postgres@127.0.0.1:${port}/${database}`;
    let stopped: Promise<void> | undefined;
    return {
      url: urlOf('postgres'),
      port,
      dataDirectory,
      /** Creates an empty database and returns its url. Its name is plain: letters, digits, `_` and `-`. */
      async createDatabase(name: string): Promise<string> {
        const sql = postgres(urlOf('postgres'), { max: 1 });
        try {
          await sql`CREATE DATABASE ${sql(name)}`;
        } finally {
          await sql.end();
        }
        return urlOf(name);
      },
      /** Closes all connections and starts the server again, with the same data on the same port. */
      async restart(): Promise<void> {
        await server.end();
        server = await startServer(installation, port);
      },
      /** Closes all connections, ends the server and removes its folder. */
      stop(): Promise<void> {
        stopped ??= server.end().then(leave);
        return stopped;
      },
    };
  } catch (cause) {
    const log = await readFile(logFile, 'utf8').catch(() => '');
    await leave();
    const lastLines = `${messageOf(cause)}\n${log}`.trimEnd().split('\n').slice(-5).join('\n');
    throw new SlotsyncError('embedded_postgres_failed', `PostgreSQL did not start:\n${lastLines}`, {
      remedy:
        'Programs must be allowed to run from the temporary folder (TMPDIR chooses another one). ' +
        'Or set MIRROR_DATABASE_URL and STATE_DATABASE_URL to a PostgreSQL of your own.',
      cause,
    });
  }
}

async function startOnFreePort(installation: Installation, findPort: () => Promise<number>, attempt = 1) {
  const port = await findPort();
  try {
    return { port, server: await startServer(installation, port) };
  } catch (error) {
    if (attempt === START_ATTEMPTS) throw error;
    return startOnFreePort(installation, findPort, attempt + 1);
  }
}

/** Starts a server that does not keep this process alive. Fails when it does not get ready. */
async function startServer({ folder, dataDirectory, logFile, owner }: Installation, port: number) {
  const flags = [`port=${port}`, ...SETTINGS].flatMap((setting) => ['-c', setting]);
  const log = await open(logFile, 'a');
  const child = spawn(join(folder, 'native', 'bin', 'postgres'), ['-D', dataDirectory, ...flags], {
    cwd: folder,
    // Ctrl-C in a terminal signals the whole process group; this process may need the server for longer.
    detached: true,
    stdio: ['ignore', log.fd, log.fd],
    windowsHide: true,
    ...owner,
  });
  let hasEnded = false;
  const exit = once(child, 'exit')
    .catch(() => undefined)
    .then(() => (hasEnded = true));
  await log.close();

  /** Fast shutdown, which closes connections rather than waiting for them; immediate when that takes too long. */
  const end = async () => {
    child.ref();
    child.kill('SIGINT');
    const timer = setTimeout(() => child.kill('SIGQUIT'), STOP_TIMEOUT_MS);
    await exit;
    clearTimeout(timer);
  };
  // The server writes its state into the pid file. An answer from the port could come from another server.
  const isReady = async () => {
    const lines = (await readFile(join(dataDirectory, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
    return lines[0] === String(child.pid) && lines[7]?.trim() === 'ready';
  };
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!(await isReady())) {
    if (hasEnded || Date.now() > deadline) {
      await end();
      throw new Error('The server did not get ready.');
    }
    await pause(10);
  }
  child.unref();
  return { end };
}

async function findNobody(): Promise<FileOwner> {
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '');
  const [, uid = '65534', gid = '65534'] = /^nobody:[^:]*:(-?\d+):(-?\d+):/m.exec(passwd) ?? [];
  // Some systems write -2 there; the system calls want it unsigned.
  return { uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 };
}

/** The system's, unless it is a private one of ours and the server runs as `owner`. */
async function temporaryFolder(owner: FileOwner | undefined): Promise<string> {
  const folder = tmpdir();
  for (let path = folder; owner && path !== dirname(path); path = dirname(path)) {
    if (((await stat(path)).mode & constants.S_IXOTH) === 0) return '/tmp';
  }
  return folder;
}

async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
