// The order of test files. By default those with the most bytes start first on a machine that has not run them before, such
// as CI's; a few short files that take long would be alone at the end.
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** The longest files, in this order: most of it waits, so it is begun first and the rest is run beside it. */
const LONGEST = [
  'e2e/postgres-connections',
  'e2e/round-trips',
  'e2e/incremental',
  'e2e/configuration-changed',
  'e2e/backfill',
  'e2e/worker',
  'e2e/bad-input',
  'e2e/pause',
  'e2e/circuit-breaker',
  'e2e/quota',
  'integration/reconcile',
  'e2e/verify',
  'integration/embedded-postgres',
  'e2e/page',
  'integration/verify',
  'e2e/redis',
  'e2e/demo',
  'e2e/large-rows',
  'e2e/refused-inputs',
  'integration/objects',
  'integration/limits',
  'e2e/sync',
  'integration/first-load',
  'integration/poll-cursor',
  'integration/runs',
  'e2e/interrupted',
  'e2e/explain',
  'integration/match-in-runs',
  'e2e/pgbouncer',
  'integration/retire-booked',
  'e2e/examples',
  'e2e/nightly',
];

export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    // A worker keeps its modules only for files of one project: those stay together.
    const projects = [...new Set(sorted.map(({ project }) => project.name))];
    return sorted.toSorted(
      (a, b) =>
        projects.indexOf(a.project.name) - projects.indexOf(b.project.name) ||
        rankOf(a.moduleId) - rankOf(b.moduleId),
    );
  }
}

function rankOf(file: string): number {
  const name = path.posix.join(path.basename(path.dirname(file)), path.basename(file, '.test.ts'));
  const rank = LONGEST.indexOf(name);
  return rank < 0 ? LONGEST.length : rank;
}
