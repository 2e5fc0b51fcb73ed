// Internals of libraries that no option replaces are used in one file each. A new version may change them, so the dependency
// is pinned to the version whose tests have passed.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import manifest from '../../package.json' with { type: 'json' };

const ROOT = path.join(import.meta.dirname, '../../src');
const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));

describe('a dependency whose internals are used', () => {
  it.each([
    // test/integration/mirror.test.ts fails when a COPY whose first row fails ends the process.
    ['postgres', 'handed.resolve', 'connections/postgres-copy.ts'],
    // test/integration/locks.test.ts fails when the queue's functions take advisory locks again.
    ['bullmq', 'runMigrations', 'queue/migrate-queue.ts'],
    // test/integration/workers.test.ts fails when the queues are not in their schema any more.
    ['bullmq', '{ schema }', 'queue/queue-pool.ts'],
  ] as const)('is pinned to an exact version, and used in one file only: %s, %s', (name, inside, place) => {
    expect(files.filter((file) => readFileSync(path.join(ROOT, file), 'utf8').includes(inside))).toEqual([
      place,
    ]);
    expect(manifest.dependencies[name]).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
