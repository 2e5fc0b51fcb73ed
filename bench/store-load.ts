// The work that a store of queues and quotas has done so far: Redis by INFO, PostgreSQL by its statistics and the processor time of its
// processes.
import { readdirSync, readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import postgres from 'postgres';

export interface StoreLoad {
  /** Redis: commands, those of scripts included. PostgreSQL: transactions. */
  operations: number;
  /** Redis: script calls. A grant and a release are two of them, a step of a job at least one. */
  scripts: number | undefined;
  /** User and system together. */
  processorSeconds: number;
  /** Redis: `used_memory`, connections included. */
  memoryBytes: number | undefined;
  connections: number;
}

export interface ObservedStore {
  read(): Promise<StoreLoad>;
  close(): Promise<unknown>;
}

export function observeRedis(url: string): ObservedStore {
  const redis = new Redis(url);
  return {
    async read() {
      const info = await redis.info('everything');
      const number = (name: string) => Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(info)?.[1] ?? NaN);
      const calls = [...info.matchAll(/^cmdstat_(\S+?):calls=(\d+)/gm)].map(
        ([, name = '', count]) => [name, Number(count)] as const,
      );
      const sum = (of: readonly (readonly [string, number])[]) =>
        of.reduce((total, [, count]) => total + count, 0);
      return {
        operations: sum(calls),
        scripts: sum(calls.filter(([name]) => /^(eval|evalsha|fcall)$/.test(name))),
        processorSeconds: number('used_cpu_user') + number('used_cpu_sys'),
        memoryBytes: number('used_memory'),
        connections: number('connected_clients') - 1,
      };
    },
    close: () => redis.quit(),
  };
}

export function observePostgres(url: string): ObservedStore {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  return {
    async read() {
      const [row] = await sql<{ transactions: number; connections: number; pid: number }[]>`
        SELECT (SELECT sum(xact_commit + xact_rollback)::float8 FROM pg_stat_database) AS transactions,
          (SELECT count(*)::int - 1 FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
          pg_backend_pid() AS pid`;
      if (row === undefined) throw new Error('one row');
      return {
        operations: row.transactions,
        scripts: undefined,
        processorSeconds: processorSecondsOfSiblings(row.pid),
        memoryBytes: undefined,
        connections: row.connections,
      };
    },
    close: () => sql.end({ timeout: 1 }),
  };
}

/** The processor time of all living processes that have the same parent, and of its ended children. Needs /proc. */
function processorSecondsOfSiblings(pid: number): number {
  const parent = statOf(pid)?.parent;
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  const ticks = pids.flatMap((name) => {
    const stat = statOf(Number(name));
    if (stat?.parent === parent) return stat?.used ?? [];
    return Number(name) === parent ? (stat?.ended ?? []) : [];
  });
  return ticks.reduce((sum, each) => sum + each, 0) / TICKS_PER_SECOND;
}

/** `getconf CLK_TCK`: 100 on every Linux. */
const TICKS_PER_SECOND = 100;

function statOf(pid: number) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /s, '')
      .split(' ')
      .map(Number);
    const [, parent = 0] = fields;
    const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15);
    return { parent, used: user + system, ended: childUser + childSystem };
  } catch {
    return undefined; // it has ended
  }
}
