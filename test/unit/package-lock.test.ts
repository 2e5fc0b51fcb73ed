// npm drops binaries of other platforms from the lock if the registry lacks them. On these platforms, `npm ci` then
// installs a program that does not start.
import { readFileSync } from 'node:fs';
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

it.each([
  ['drizzle-orm', 'src/state/database.ts', 'prepareQuery'],
  ['postgres', 'src/connections/postgres-copy.ts', 'handed.resolve'],
  ['bullmq', 'src/queue/queue-pool.ts', 'extends PostgresConnection'],
  ['pg', 'src/queue/queue-pool.ts', 'extends pg.Pool'],
  ['ioredis', 'src/connections/redis-connection.ts', 'override duplicate'],
] as const)('the version of %s is exact, because %s relies on its internals (%s)', (name, file, internal) => {
  expect(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8')).toContain(internal);
  expect(manifest.dependencies[name]).toMatch(/^\d+\.\d+\.\d+$/);
});
