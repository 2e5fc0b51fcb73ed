// The real services of a test run: those the environment names, else containers where Docker answers, else the
// PostgreSQL that comes with the npm packages and the redis-server on PATH.
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import type { TestProject } from 'vitest/node';
import { startEmbeddedPostgres } from '../../src/demo/embedded-postgres.js';
import { messageOf } from '../../src/errors/errors.js';
import { migrateQueue } from '../../src/queue/migrate-queue.js';
import { migrate } from '../../src/state/migrate.js';
import { findChromium } from './chromium.js';
import { atDistance } from './distance.js';
import { isDockerThere } from './docker.js';
import { isOnPath } from './programs.js';
import { isRedisInstalled, startRedisServer } from './redis-server.js';
import type { Services } from './services.js';

interface Service {
  url: string;
  stop(): Promise<unknown>;
}

const POSTGRES_IMAGE = 'postgres:18-alpine';
const REDIS_IMAGE = 'redis:7-alpine';

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { database, redis } = await startServices();
  const template = `slotsync_template_${randomBytes(4).toString('hex')}`;
  try {
    await createTemplate(database.url, template);
  } catch (error) {
    await Promise.all([database.stop(), redis?.stop()]);
    throw error;
  }
  const services: Services = {
    adminUrl: database.url,
    template,
    redisUrl: redis?.url ?? null,
    postgresRelease: await readRelease(database.url),
  };
  project.provide('services', services);

  return async () => {
    await dropTemplate(database.url, template);
    await Promise.all([database.stop(), redis?.stop()]);
    // Printed after the summary, so that a green run that left something out does not look complete.
    if (!redis) {
      process.stdout.write(
        '\n Without Redis, its tests were SKIPPED. Set TEST_REDIS_URL, start Docker, or install redis-server.\n\n',
      );
    }
    if (services.postgresRelease < 14)
      process.stdout.write('\n PostgreSQL 13 serves as a mirror alone: tests of triggers were SKIPPED.\n\n');
    if (!findChromium()) process.stdout.write('\n Without chromium, its tests were SKIPPED. Install it.\n\n');
    for (const program of ['git', 'pgbouncer', 'openssl', 'prometheus', 'psql'])
      if (!(await isOnPath(program)))
        process.stdout.write(`\n Without ${program}, its tests were SKIPPED. Install it.\n\n`);
  };
}

/** Starts what the environment does not name. To be stopped by the caller. */
export async function startServices(): Promise<{ database: Service; redis: Service | undefined }> {
  const docker = await dockerWhenNeeded();
  const [database, redis] = await Promise.all([providePostgres(docker), provideRedis(docker)]);
  return { database: await atDistance(database), redis: redis && (await atDistance(redis)) };
}

async function dockerWhenNeeded(): Promise<boolean> {
  if (process.env['TEST_DATABASE_URL'] && process.env['TEST_REDIS_URL']) return false;
  return isDockerThere();
}

async function providePostgres(docker: boolean): Promise<Service> {
  const url = process.env['TEST_DATABASE_URL'];
  if (url) return { url, stop: async () => {} };
  const container = docker && (await fromDocker('PostgreSQL', startPostgresContainer));
  if (container) return container;
  return startEmbeddedPostgres().catch((cause: unknown) => {
    throw new Error(
      'There is no PostgreSQL for the tests. Start Docker, or name a server whose user may create databases:\n' +
        '  TEST_DATABASE_URL=postgres://user:password@localhost:5432/postgres npx vitest run',
      { cause },
    );
  });
}

async function provideRedis(docker: boolean): Promise<Service | undefined> {
  const url = process.env['TEST_REDIS_URL'];
  if (url) return { url, stop: async () => {} };
  const container = docker && (await fromDocker('Redis', startRedisContainer));
  if (container) return container;
  return (await isRedisInstalled()) ? startRedisServer() : undefined;
}

/** An engine that answers can still have no image and no way to fetch one. */
async function fromDocker(name: string, start: () => Promise<Service>): Promise<Service | undefined> {
  try {
    return await start();
  } catch (error) {
    process.stderr.write(`Docker gave no ${name}, going on without: ${messageOf(error)}\n`);
    return undefined;
  }
}

async function startPostgresContainer(): Promise<Service> {
  const { PostgreSqlContainer } = await import('@testcontainers/postgresql');
  const container = await new PostgreSqlContainer(POSTGRES_IMAGE)
    .withCommand(['postgres', '-c', 'max_connections=300', '-c', 'fsync=off', '-c', 'timezone=UTC'])
    .start();
  return { url: container.getConnectionUri(), stop: async () => void (await container.stop()) };
}

async function startRedisContainer(): Promise<Service> {
  const { RedisContainer } = await import('@testcontainers/redis');
  const container = await new RedisContainer(REDIS_IMAGE).start();
  return { url: container.getConnectionUrl(), stop: async () => void (await container.stop()) };
}

async function createTemplate(adminUrl: string, template: string): Promise<void> {
  const sql = postgres(adminUrl, { max: 1 });
  try {
    await sql`CREATE DATABASE ${sql(template)}`;
  } finally {
    await sql.end();
  }
  const url = new URL(adminUrl);
  url.pathname = template;
  await migrate(url.href);
  await migrateQueue({ postgresUrl: url.href });
}

async function readRelease(adminUrl: string): Promise<number> {
  const sql = postgres(adminUrl, { max: 1 });
  try {
    const [row] = await sql<{ release: number }[]>`
      SELECT current_setting('server_version_num')::int / 10000 AS release`;
    return row?.release ?? 0;
  } finally {
    await sql.end();
  }
}

async function dropTemplate(adminUrl: string, template: string): Promise<void> {
  const sql = postgres(adminUrl, { max: 1 });
  try {
    await sql`DROP DATABASE IF EXISTS ${sql(template)} WITH (FORCE)`;
  } finally {
    await sql.end();
  }
}
