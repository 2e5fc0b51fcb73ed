import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

const timeouts = { testTimeout: 30_000, hookTimeout: 60_000 };

export default defineConfig({
  test: {
    // The tests with services mostly wait, but some measure arrival times: few at once.
    maxWorkers: Math.max(3, availableParallelism() - 1),
    teardownTimeout: 30_000,
    projects: [
      // Pure: no services are started for `vitest run --project unit`.
      { test: { name: 'unit', include: ['test/unit/**/*.test.ts'], ...timeouts } },
      {
        test: {
          name: 'services',
          include: ['test/integration/**/*.test.ts', 'test/e2e/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          ...timeouts,
        },
      },
      // Servers that crash and come back; alone: npm run test:faults.
      {
        test: {
          name: 'faults',
          include: ['test/faults/**/*.test.ts'],
          globalSetup: ['test/support/global-setup.ts'],
          ...timeouts,
        },
      },
    ],
  },
});
