// The services of a test: a database and a queue of its own.
import { randomBytes } from 'node:crypto';
import postgres from 'postgres';
import { inject } from 'vitest';

/** The values that the global setup hands to the test files. */
export interface Services {
  /** A database of the server under test; only connected to for creating and dropping others. */
  adminUrl: string;
  /** The name of the migrated database that others are cloned from. */
  template: string;
  redisUrl: string | null;
  /** The major version of the PostgreSQL under test. */
  postgresRelease: number;
}

declare module 'vitest' {
  interface ProvidedContext {
    services: Services;
  }
}

export interface TestDatabase {
  url: string;
  /** Drops the database, connections to it included. */
  drop(): Promise<void>;
}

/** A database with the state tables and nothing in them. One per test file, or per test that needs it untouched. */
export function createDatabase(): Promise<TestDatabase> {
  return create(inject('services').template);
}

/** A database with nothing in it at all, as a mirror is before anyone fills it. */
export function createEmptyDatabase({ encoding }: { encoding?: string } = {}): Promise<TestDatabase> {
  if (encoding === undefined) return create('template1');
  return create('template0', `ENCODING '${encoding}' LC_COLLATE 'C' LC_CTYPE 'C'`);
}

/** The address of Redis; undefined without Redis: then `describe.skipIf(!redisUrl())`. */
export function redisUrl(): string | undefined {
  return inject('services').redisUrl ?? undefined;
}

/** Release 13 serves as a mirror alone: without triggers, which write to a state in the same database. */
export const isForMirrorAlone = () => inject('services').postgresRelease < 14;

/** The stores that queue and quota can lie on, for `describe.each`; `url` is what REDIS_URL is set to. */
export const STORES = [
  { store: 'PostgreSQL', url: undefined, skip: false },
  { store: 'Redis', url: redisUrl(), skip: redisUrl() === undefined },
];

/** A prefix that no other test's queues and keys have, also not on a Redis that earlier runs have used. */
export function newQueuePrefix(): string {
  return `test-${randomBytes(6).toString('hex')}`;
}

async function create(template: string, options = ''): Promise<TestDatabase> {
  const name = `slotsync_test_${randomBytes(6).toString('hex')}`;
  // As files it takes a third less processor time than through the log, which releases before 15 never do.
  const strategy = inject('services').postgresRelease < 15 ? '' : 'STRATEGY FILE_COPY';
  await administer((sql) =>
    sql.unsafe(`CREATE DATABASE ${name} TEMPLATE ${template} ${strategy} ${options}`),
  );
  const url = new URL(inject('services').adminUrl);
  url.pathname = name;
  return {
    url: url.href,
    drop: () => administer((sql) => sql`DROP DATABASE IF EXISTS ${sql(name)} WITH (FORCE)`),
  };
}

/** The connection that creates and drops databases: a new one costs 25 ms of processor time at the server. */
let admin: postgres.Sql | undefined;

async function administer(statement: (sql: postgres.Sql) => PromiseLike<unknown>): Promise<void> {
  admin ??= postgres(inject('services').adminUrl, { max: 1, idle_timeout: 5, onnotice: () => {} });
  await statement(admin);
}
