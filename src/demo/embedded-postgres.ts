// A real PostgreSQL for the demo and for tests, where none is set up. PostgreSQL refuses to run as root, so root runs it as
// the account `nobody`, which every system has.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { lchown, mkdtemp, open, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import postgres from 'postgres';
import { messageOf, SlotsyncError } from '../errors.js';
import type { Logger } from '../logger.js';
import { copyPostgresPackage, findPostgresPackage, type FileOwner } from './postgres-binaries.js';
import { startWatchdog } from './watchdog.js';

export interface EmbeddedPostgresOptions {
  log?: Pick<Logger, 'debug'>;
  /** Keep the temporary folder with data and server log after the stop. */
  keep?: boolean;
  /** The unpacked npm package with the programs; default: the one installed for this platform. */
  packageDirectory?: string;
  /** The port to listen at; called again when the port is taken. Default: any free port. */
  findPort?: () => Promise<number>;
}

export type EmbeddedPostgres = Awaited<ReturnType<typeof startEmbeddedPostgres>>;

interface Place {
  folder: string;
  data: string;
  logFile: string;
  /** The account the programs run as; undefined: that of this process. */
  owner: FileOwner | undefined;
}

interface Program {
  child: ChildProcess;
  /** The exit code, or the signal or error that ended it. Never rejects. */
  exit: Promise<number | string>;
}

const START_TIMEOUT_MS = 30_000;
const STOP_TIMEOUT_MS = 10_000;
/** Between choosing a free port and listening on it, another process can take it. */
const START_ATTEMPTS = 3;

/**
 * Starts a PostgreSQL on a free port of 127.0.0.1, in a fresh temporary folder, with the superuser `postgres`
 * and no password. It takes about a second. The server does not keep this process alive, and ends with it, even when it is
 * killed. Data is not durable (`fsync=off`). Throws UsageError when no PostgreSQL comes with the installation.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions = {}) {
  const packageDirectory = options.packageDirectory ?? findPostgresPackage();
  const keep = options.keep ?? false;
  const place = await makePlace();
  const watchdog = startWatchdog({
    folder: place.folder,
    pidFile: join(place.data, 'postmaster.pid'),
    keepFolder: keep,
  });
  const cleanUp = async () => {
    if (!keep) await rm(place.folder, { recursive: true, force: true });
    await watchdog.release();
  };

  try {
    await copyPostgresPackage(packageDirectory, place.folder, place.owner);
    await initialize(place);
    const started = await startSomewhere(place, options.findPort ?? findFreePort);
    let { server } = started;
    const { port } = started;
    options.log?.debug({ port, folder: place.folder }, 'embedded postgres started');

    const urlOf = (database: string) => `postgres://postgres@127.0.0.1:${port}/${database}`;
    let stopped: Promise<void> | undefined;
    return {
      url: urlOf('postgres'),
      port,
      dataDirectory: place.data,
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
        await stopServer(server);
        server = await startSomewhere(place, async () => port).then((again) => again.server);
      },
      /** Closes all connections, ends the server and removes its folder. */
      stop(): Promise<void> {
        stopped ??= stopServer(server).then(cleanUp);
        return stopped;
      },
    };
  } catch (cause) {
    // Read before the folder is removed: the reason is in the server's log.
    const error =
      cause instanceof SlotsyncError
        ? cause
        : await failure(`PostgreSQL could not be set up: ${messageOf(cause)}`, { place, cause });
    await cleanUp();
    throw error;
  }
}

async function makePlace(): Promise<Place> {
  const owner = process.getuid?.() === 0 ? await findNobody() : undefined;
  const parent = owner && !(await canAnyoneEnter(tmpdir())) ? '/tmp' : tmpdir();
  const folder = await mkdtemp(join(parent, 'slotsync-postgres-'));
  if (owner) await lchown(folder, owner.uid, owner.gid);
  return { folder, data: join(folder, 'data'), logFile: join(folder, 'server.log'), owner };
}

async function findNobody(): Promise<FileOwner> {
  const passwd = await readFile('/etc/passwd', 'utf8').catch(() => '');
  const line = passwd.split('\n').find((candidate) => candidate.startsWith('nobody:'));
  const [, , uid = '65534', gid = '65534'] = line?.split(':') ?? [];
  // Some systems write -2 there; the system calls want it unsigned.
  return { uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 };
}

async function canAnyoneEnter(path: string): Promise<boolean> {
  const { mode } = await stat(path);
  if ((mode & constants.S_IXOTH) === 0) return false;
  return path === dirname(path) || canAnyoneEnter(dirname(path));
}

async function initialize(place: Place): Promise<void> {
  const flags = [
    '--no-sync',
    '--no-instructions',
    '-A',
    'trust',
    '-E',
    'UTF8',
    '--locale=C',
    '-U',
    'postgres',
  ];
  const initdb = await launch(place, 'initdb', [...flags, '-D', place.data]);
  const exit = await initdb.exit;
  if (exit !== 0) throw await failure('initdb failed', { place, exit });
}

async function startSomewhere(place: Place, findPort: () => Promise<number>) {
  let exit: number | string | undefined;
  for (let attempt = 1; attempt <= START_ATTEMPTS; attempt += 1) {
    const port = await findPort();
    const server = await startServer(place, port);
    if (server.ready) return { server, port };
    exit = await server.exit;
  }
  throw await failure('PostgreSQL did not start', { place, exit });
}

async function startServer(place: Place, port: number): Promise<Program & { ready: boolean }> {
  const settings = [
    `port=${port}`,
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'max_connections=300',
    'timezone=UTC',
    'fsync=off',
    'synchronous_commit=off',
    'full_page_writes=off',
  ];
  const flags = settings.flatMap((setting) => ['-c', setting]);
  const server = await launch(place, 'postgres', ['-D', place.data, ...flags]);
  const waiting = new AbortController();
  const ready = await Promise.race([server.exit.then(() => false), untilReady(place, waiting.signal)]);
  waiting.abort();
  if (ready) server.child.unref();
  else await stopServer(server);
  return { ...server, ready };
}

/** Reads the server's state from its pid file, as pg_ctl does. At the port another server could answer. */
async function untilReady(place: Place, signal: AbortSignal): Promise<boolean> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  while (!signal.aborted && Date.now() < deadline) {
    const pidFile = await readFile(join(place.data, 'postmaster.pid'), 'utf8').catch(() => '');
    if (pidFile.split('\n')[7]?.trim() === 'ready') return true;
    await pause(10);
  }
  return false;
}

/** Fast shutdown, which closes connections; immediate shutdown when that takes too long. */
async function stopServer(server: Program): Promise<void> {
  server.child.ref();
  server.child.kill('SIGINT');
  const timer = setTimeout(() => server.child.kill('SIGQUIT'), STOP_TIMEOUT_MS);
  await server.exit;
  clearTimeout(timer);
}

async function launch(place: Place, program: string, args: string[]): Promise<Program> {
  const log = await open(place.logFile, 'a');
  try {
    const child = spawn(join(place.folder, 'native', 'bin', program), args, {
      cwd: place.folder,
      // A group of its own: Ctrl-C in a terminal reaches the whole group, and we still write to the server then.
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      windowsHide: true,
      ...place.owner,
    });
    const exit = once(child, 'exit').then(([code, signal]) => (code ?? signal) as number | string, messageOf);
    return { child, exit };
  } finally {
    await log.close();
  }
}

async function findFreePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const address = probe.address();
  probe.close();
  await once(probe, 'close');
  if (address === null || typeof address === 'string') throw new Error('a TCP server has a port');
  return address.port;
}

async function failure(
  message: string,
  { place, exit, cause }: { place: Place; exit?: number | string | undefined; cause?: unknown },
): Promise<SlotsyncError> {
  const log = await readFile(place.logFile, 'utf8').catch(() => '');
  const lastLines = log.trimEnd().split('\n').slice(-5).join('\n');
  return new SlotsyncError('embedded_postgres_failed', lastLines ? `${message}:\n${lastLines}` : message, {
    remedy:
      'Programs must be allowed to run from the temporary folder (TMPDIR chooses another one). ' +
      'Or set MIRROR_DATABASE_URL and STATE_DATABASE_URL to a PostgreSQL of your own.',
    facts: { exit },
    cause,
  });
}
