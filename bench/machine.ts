// The machine that the figures were measured on: nobody can compare them without it.
import { availableParallelism, cpus, totalmem } from 'node:os';
import type { Redis } from 'ioredis';
import type { Sql } from 'postgres';

/** The machine in a line. */
export async function describeMachine({ redis, sql }: { redis?: Redis; sql: Sql }): Promise<string> {
  const [version] = await sql`SHOW server_version`;
  const gigabytes = Math.round(totalmem() / 1024 ** 3);
  return [
    `${cpus()[0]?.model ?? 'unknown CPU'} × ${availableParallelism()}, ${gigabytes} GB`,
    `Node ${process.version}`,
    `PostgreSQL ${String(version?.['server_version']).split(' ')[0]}`,
    ...(redis ? [`Redis ${/redis_version:(\S+)/.exec(await redis.info('server'))?.[1]}`] : []),
  ].join('; ');
}
