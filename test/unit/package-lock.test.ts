// npm drops binaries of other platforms from the lock if the registry lacks them. On these platforms, `npm ci` then
// installs a program that does not start.
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import lock from '../../package-lock.json' with { type: 'json' };
import manifest from '../../package.json' with { type: 'json' };

interface Locked {
  version?: string;
  optionalDependencies?: Record<string, string>;
}

it('package-lock.json has every optional dependency, at the version that is asked for', () => {
  const packages: Record<string, Locked> = lock.packages;
  const missing = Object.values(packages).flatMap(({ optionalDependencies = {} }) =>
    Object.entries(optionalDependencies).filter(([name, version]) => {
      const locked = Object.entries(packages).filter(([place]) => place.endsWith(`node_modules/${name}`));
      const isRange = !/^\d/.test(version);
      return !locked.some(([, entry]) => isRange || entry.version === version);
    }),
  );
  expect(missing).toEqual([]);
});

/** Internals of dependencies that no option replaces, each used in one file. The tests named here fail when they change. */
it.each([
  ['drizzle-orm', 'state/database.ts', 'prepareQuery'],
  ['postgres', 'connections/postgres-copy.ts', 'handed.resolve'], // mirror.test.ts: a COPY whose first row fails
  ['bullmq', 'queue/migrate-queue.ts', 'runMigrations'], // locks.test.ts: the queue's functions take advisory locks again
  ['bullmq', 'queue/queue-pool.ts', '{ schema }'], // workers.test.ts: the queues are not in their schema
  ['bullmq', 'queue/queue-pool.ts', 'extends PostgresConnection'],
  ['pg', 'queue/queue-pool.ts', 'extends pg.Pool'],
  ['ioredis', 'connections/redis-connection.ts', 'override duplicate'],
] as const)(
  'the version of %s is exact, because only %s relies on its internals: %s',
  (name, file, internal) => {
    const sources = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((one) =>
      one.endsWith('.ts'),
    );
    expect(sources.filter((one) => readFileSync(`src/${one}`, 'utf8').includes(internal))).toEqual([file]);
    expect(manifest.dependencies[name]).toMatch(/^\d+\.\d+\.\d+$/);
  },
);
