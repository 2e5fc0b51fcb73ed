// A PgBouncer for one test, in front of the PostgreSQL of the test run. It refuses to run as root, so root runs it as the
// account `nobody`.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startWatchdog } from '../../src/demo/embedded-postgres.js';
import { findFreePort } from './free-port.js';
import { isOnPath } from './programs.js';
import { until } from './wait.js';

const NOBODY = 65_534;

/** Whether `pgbouncer` is on PATH. */
export const isPgbouncerInstalled = () => isOnPath('pgbouncer');

/** Starts one in front of the server of `serverUrl`; databases and users keep their names. */
export async function startPgbouncer(options: { serverUrl: string; poolMode: 'session' | 'transaction' }) {
  const server = new URL(options.serverUrl);
  const port = await findFreePort();
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-pgbouncer-'));
  const pidFile = join(folder, 'pgbouncer.pid');
  const password = decodeURIComponent(server.password);
  const ini = [
    '[databases]',
    `* = host=${server.hostname} port=${server.port || 5432} user=${server.username}${password && ` password=${password}`}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = any',
    `pool_mode = ${options.poolMode}`,
    'max_client_conn = 200',
    'default_pool_size = 20',
    `pidfile = ${pidFile}`,
    '',
  ].join('\n');
  await writeFile(join(folder, 'pgbouncer.ini'), ini, { mode: 0o600 });
  const isRoot = process.getuid?.() === 0;
  if (isRoot) for (const path of [folder, join(folder, 'pgbouncer.ini')]) await chown(path, NOBODY, NOBODY);
  const watchdog = startWatchdog({ folder, pidFile });
  const child = spawn('pgbouncer', ['pgbouncer.ini'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(isRoot ? { uid: NOBODY, gid: NOBODY } : {}),
  });
  let log = '';
  child.stderr.on('data', (text: Buffer) => (log += text.toString()));
  const exit = once(child, 'exit');
  const stop = async () => {
    child.kill('SIGKILL');
    await exit;
    await rm(folder, { recursive: true, force: true });
    await watchdog.release();
  };
  try {
    await until(() => child.exitCode !== null || accepts(port), {
      describe: () => `pgbouncer to start: ${log}`,
    });
    if (child.exitCode !== null) throw new Error(`pgbouncer ended at once: ${log}`);
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    /** The same address, through the pooler. */
    through(url: string): string {
      const pooled = new URL(url);
      pooled.host = `127.0.0.1:${port}`;
      return pooled.href;
    },
    log: () => log,
    stop,
  };
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const settle = (does: boolean) => {
      socket.destroy();
      resolve(does);
    };
    socket.on('connect', () => settle(true));
    socket.on('error', () => settle(false));
  });
}
