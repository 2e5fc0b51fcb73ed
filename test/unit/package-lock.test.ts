// npm drops the binaries of other platforms from the lock where the registry does not have them; then `npm ci` there
// installs a program that does not start.
import { expect, it } from 'vitest';
import lock from '../../package-lock.json' with { type: 'json' };

interface Locked {
  version?: string;
  optionalDependencies?: Record<string, string>;
}

it('package-lock.json: every optional dependency is locked, at the version that is asked for', () => {
  const packages: Record<string, Locked> = lock.packages;
  const missing = Object.values(packages).flatMap(({ optionalDependencies = {} }) =>
    Object.entries(optionalDependencies).filter(([name, version]) => {
      const locked = Object.entries(packages).filter(([place]) => place.endsWith(`node_modules/${name}`));
      const isRange = !/^\d/.test(version);
      return !locked.some(([, one]) => isRange || one.version === version);
    }),
  );
  expect(missing).toEqual([]);
});
