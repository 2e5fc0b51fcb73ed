// How much processor time a store has used, in microseconds: everything, reading the network included.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { Redis } from 'ioredis';

const CLOCK_TICK_MICROS = 10_000;

export async function redisCpuMicros(redis: Redis): Promise<number> {
  const info = await redis.info('cpu');
  const seconds = (name: string) => Number(new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1]);
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6;
}

/** The server and all its processes; undefined where the system has no /proc. Exact to hundredths of a second. */
export async function postgresCpuMicros(dataDirectory: string): Promise<number | undefined> {
  try {
    const pidFile = await readFile(path.join(dataDirectory, 'postmaster.pid'), 'utf8');
    const server = pidFile.split('\n')[0]?.trim() ?? '';
    const children = (await readFile(`/proc/${server}/task/${server}/children`, 'utf8')).trim().split(' ');
    const ended = await ticks(server, [13, 14, 15, 16]); // its own, and that of children that have ended
    const running = await Promise.all(children.map((child) => ticks(child, [13, 14]).catch(() => 0)));
    return running.reduce((sum, each) => sum + each, ended) * CLOCK_TICK_MICROS;
  } catch {
    return undefined;
  }
}

/** The sum of these fields of a process's stat, counted from 0. */
async function ticks(pid: string, fields: readonly number[]): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The name stands in parentheses and may hold anything.
  const rest = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.reduce((sum, field) => sum + Number(rest[field - 2]), 0);
}
