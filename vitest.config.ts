import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.js';

// Limits are for what hangs, not for what is slow: the suite is green beside four busy loops.
const limits = { testTimeout: 300_000, hookTimeout: 300_000 };
const globalSetup = ['test/support/global-setup.ts'];

/** `most` of each scenario; 0: all of them. Scenarios have a database each, and wait for it most of the time. */
const schedules = (name: string, most: number) => ({
  extends: true as const,
  test: {
    name,
    include: ['test/schedules/**/*.test.ts'],
    globalSetup: [...globalSetup, 'test/schedules/print-counts.ts'],
    provide: { schedulesAtMost: most },
    maxConcurrency: 20,
    ...limits,
  },
});

export default defineConfig({
  test: {
    // The tests with services wait more than they compute: 1 CPU minute in 3.
    maxWorkers: availableParallelism() + 5,
    teardownTimeout: 30_000,
    // Files share their worker's modules, which hold no state: loading them for each file took half of the time.
    isolate: false,
    sequence: { sequencer: LongestFirst },
    // As `until` in test/support/wait.ts; a second, the default, is the machine's speed.
    expect: { poll: { timeout: 120_000, interval: 20 } },
    projects: [
      // Pure: no services are started for `npm run test:unit`.
      { extends: true, test: { name: 'unit', include: ['test/unit/**/*.test.ts'], ...limits } },
      {
        extends: true,
        test: {
          name: 'services',
          include: ['test/integration/**/*.test.ts', 'test/e2e/**/*.test.ts', 'test/upgrades/**/*.test.ts'],
          globalSetup,
          ...limits,
        },
      },
      // Interleavings of a few processes, one after the other: some of them for `npm test`, and all of them.
      schedules('schedules', 2),
      schedules('all-schedules', 0),
      // Redis with Sentinels and as a Cluster, each with a failover: `npm run test:redis`.
      {
        extends: true,
        test: { name: 'redis', include: ['test/redis/**/*.test.ts'], globalSetup, ...limits },
      },
      // Servers that crash and come back, and minutes of random faults: `npm run test:faults`.
      {
        extends: true,
        test: { name: 'faults', include: ['test/faults/**/*.test.ts'], globalSetup, ...limits },
      },
    ],
  },
});
