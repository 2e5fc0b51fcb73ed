// Backups that are put back: of one database, and of a PostgreSQL whose data directory can be copied while it is stopped, and copies of it that are started:
// as a replica, as a recovery of the backup, or as they are.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFile, chmod, chown, cp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join, dirname } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { startEmbeddedPostgres } from '../../src/demo/embedded-postgres.js';
import { until } from './wait.js';
import { findFreePort } from './free-port.js';

const execute = promisify(execFile);
// A replica needs as many connections as its primary.
const FLAGS = '-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=300 -c fsync=off';

export type Cluster = Awaited<ReturnType<typeof startCluster>>;

/** To be stopped by the caller; what was started of it is stopped then too. */
export async function startCluster() {
  const server = await startEmbeddedPostgres();
  const folder = dirname(server.dataDirectory);
  const { uid, gid } = await ownerOf(server.dataDirectory);
  const started: string[] = [];
  const pgCtl = (data: string, ...args: string[]) =>
    execute(join(folder, 'native/bin/pg_ctl'), ['-D', data, '-w', ...args], { cwd: folder, uid, gid });

  async function give(data: string): Promise<void> {
    const all = await readdir(data, { recursive: true });
    await Promise.all([data, ...all.map((name) => join(data, name))].map((name) => chown(name, uid, gid)));
  }

  return {
    url: server.url,
    createDatabase: server.createDatabase,
    restart: server.restart,
    /** Ends the server, and leaves its data. */
    halt: () => pgCtl(server.dataDirectory, 'stop', '-m', 'fast'),

    /** A backup: a copy of the data, for which the server is stopped. */
    async backUp(): Promise<string> {
      await pgCtl(server.dataDirectory, 'stop', '-m', 'fast');
      const data = join(folder, `backup-${randomBytes(4).toString('hex')}`);
      await cp(server.dataDirectory, data, { recursive: true, preserveTimestamps: true });
      await chmod(data, 0o700);
      await give(data);
      await server.restart();
      return data;
    },

    /** Starts a backup. Returns the url of a database in it, and what promotes it when it is a replica. */
    async start(data: string, as: 'replica' | 'recovery' | 'it was', database: string) {
      const url = new URL(server.url);
      if (as !== 'it was') {
        const setting =
          as === 'replica'
            ? `primary_conninfo = 'host=127.0.0.1 port=${url.port} user=${url.username} password=${url.password}'`
            : `restore_command = 'false'`;
        await appendFile(join(data, 'postgresql.auto.conf'), `\n${setting}\n`);
        const signal = as === 'replica' ? 'standby.signal' : 'recovery.signal';
        await writeFile(join(data, signal), '');
        await give(data);
      }
      const port = await findFreePort();
      await pgCtl(data, 'start', '-l', join(data, 'server.log'), '-o', `-p ${port} ${FLAGS}`);
      started.push(data);
      url.port = String(port);
      url.pathname = database;
      const isRecovered = () =>
        inDatabase(url.href, async (sql) => {
          const [row] = await sql<{ recovers: boolean }[]>`SELECT pg_is_in_recovery() AS recovers`;
          return row?.recovers === (as === 'replica');
        });
      await until(isRecovered, { describe: `the server to be a ${as}` });
      return { url: url.href, promote: () => pgCtl(data, 'promote') };
    },

    async stop(): Promise<void> {
      for (const data of started) await pgCtl(data, 'stop', '-m', 'immediate');
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** PostgreSQL refuses to run as root: then its files have another owner. */
async function ownerOf(file: string): Promise<{ uid: number; gid: number }> {
  const { uid, gid } = await stat(file);
  return { uid, gid };
}

/** Runs statements in a database of their own connection. */
export async function inDatabase<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 1 });
  }
}

/** Closes every connection to a database, and does something for which there may be none. */
async function alone(url: string, statement: (name: string) => string): Promise<void> {
  const admin = new URL(url);
  const name = admin.pathname.slice(1);
  admin.pathname = 'postgres';
  await inDatabase(admin.href, async (sql) =>
    until(
      async () => {
        await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${name}`;
        return sql.unsafe(statement(name)).then(
          () => true,
          (error: { code: string }) => (error.code === '55006' ? false : Promise.reject(error)),
        );
      },
      { describe: 'the connections to end' },
    ),
  );
}

/** A copy of a database; returns what puts it back under the same name, as a restore of a dump does. */
export async function backUpDatabase(url: string): Promise<() => Promise<void>> {
  await alone(url, (name) => `CREATE DATABASE ${name}_backup TEMPLATE ${name}`);
  return async () => {
    await alone(url, (name) => `DROP DATABASE ${name}`);
    const backup = new URL(url);
    backup.pathname += '_backup';
    await alone(backup.href, (name) => `ALTER DATABASE ${name} RENAME TO ${name.replace('_backup', '')}`);
  };
}
