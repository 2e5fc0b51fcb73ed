// A Redis for the tests alone, from the `redis-server` on PATH. Tests that take Redis away start one of their own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { startWatchdog } from '../../src/demo/embedded-postgres.js';
import { findFreePort } from './free-port.js';
import { isOnPath } from './programs.js';
import { until } from './wait.js';

export type RedisServer = Awaited<ReturnType<typeof startRedisServer>>;

/** Whether `redis-server` is on PATH. */
export const isRedisInstalled = () => isOnPath('redis-server');

interface RedisServerOptions {
  port?: number;
  keepsData?: boolean;
  /** More settings of redis.conf. */
  settings?: Record<string, string | number>;
  /** Lines for the end of its configuration file, which a Sentinel and a node of a Cluster rewrite. */
  lines?: readonly string[];
  /** A Sentinel instead of a server. */
  isSentinel?: boolean;
}

/**
 * Starts a Redis on 127.0.0.1 that ends with this process, however that ends. Unless `keepsData`, it writes nothing to
 * disk: started again on the same `port`, it comes back empty.
 */
export async function startRedisServer(options: RedisServerOptions = {}) {
  const port = options.port ?? (await findFreePort());
  const folder = await mkdtemp(join(tmpdir(), 'slotsync-redis-'));
  const pidFile = join(folder, 'redis.pid');
  const appendonly = options.keepsData ? 'yes' : 'no';
  const shared = { port, bind: '127.0.0.1', dir: folder, pidfile: pidFile, daemonize: 'no' };
  const ofServer = options.isSentinel ? {} : { save: '', appendonly };
  const settings = Object.entries({ ...shared, ...ofServer, ...options.settings });
  const lines = settings.map(([name, value]) => `${name} ${value === '' ? '""' : value}`);
  const file = join(folder, 'redis.conf');
  await writeFile(file, [...lines, ...(options.lines ?? [])].join('\n'));
  const flags = [file, ...(options.isSentinel ? ['--sentinel'] : [])];
  const watchdog = startWatchdog({ folder, pidFile });

  async function launch() {
    const server = spawn('redis-server', flags, { detached: true, stdio: 'ignore' });
    const exit = once(server, 'exit').catch((error: unknown) => [error]);
    server.unref();
    const end = async (signal: NodeJS.Signals) => {
      server.ref();
      server.kill(signal);
      await exit;
    };
    try {
      await until(() => server.exitCode !== null || answersPing(port), {
        describe: 'redis-server to answer',
      });
      if (server.exitCode !== null)
        throw new Error(`redis-server ended at once with code ${server.exitCode}`);
    } catch (error) {
      await end('SIGKILL');
      throw error;
    }
    return { end, child: server };
  }
  const leave = async () => {
    await rm(folder, { recursive: true, force: true });
    await watchdog.release();
  };
  const stop = async (signal: NodeJS.Signals) => {
    await server.end(signal);
    await leave();
  };

  let server = await launch().catch(async (error: unknown) => {
    await leave();
    throw error;
  });
  return {
    url: `redis://127.0.0.1:${port}`,
    port,
    folder,
    stop: () => stop('SIGTERM'),
    /** As when its host hangs: connections stay open, and nothing is answered until `thaw`. */
    freeze: () => server.child.kill('SIGSTOP'),
    thaw: () => server.child.kill('SIGCONT'),
    /** Ends the process and leaves the folder: `restart` starts it again. */
    crash: () => server.end('SIGKILL'),
    /** As when the machine goes: connections are cut, nothing is said. */
    kill: () => stop('SIGKILL'),
    /** Cuts all connections and starts the server again on its port, with its data (`keepsData`) or with nothing. */
    async restart(data: 'kept' | 'lost', downMs = 0): Promise<void> {
      await server.end('SIGKILL');
      if (data === 'lost') await rm(join(folder, 'appendonlydir'), { recursive: true, force: true });
      if (downMs > 0) await pause(downMs);
      server = await launch();
    },
  };
}

function answersPing(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'));
    socket.setTimeout(1_000, () => socket.destroy());
    socket.on('data', (answer) => {
      resolve(/^(\+PONG|-NOAUTH|-CLUSTERDOWN)/.test(answer.toString()));
      socket.destroy();
    });
    socket.on('error', () => resolve(false));
    socket.on('close', () => resolve(false));
  });
}
