// Collects the number of schedules of each scenario, and prints these numbers in the last line of the suite.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestProject } from 'vitest/node';

declare module 'vitest' {
  interface ProvidedContext {
    /** A file with one line for each scenario: its name, its schedules, and how many of them failed. */
    scheduleCounts: string;
    /** Largest number of schedules of each scenario. 0: all of them. */
    schedulesAtMost: number;
  }
}

export default function setup(project: TestProject): () => void {
  const folder = mkdtempSync(path.join(tmpdir(), 'slotsync-schedules-'));
  const file = path.join(folder, 'counts');
  writeFileSync(file, '');
  project.provide('scheduleCounts', file);
  return () => {
    const lines = readFileSync(file, 'utf8').trim().split('\n').filter(Boolean).sort();
    rmSync(folder, { recursive: true });
    const counts = lines.map((line) => line.split(' '));
    const sum = (at: number) => counts.reduce((total, count) => total + Number(count[at] ?? 0), 0);
    const each = counts.map(([name, schedules, failed]) =>
      failed === '0' ? `${name} ${schedules}` : `${name} ${schedules} (${failed} failed)`,
    );
    process.stdout.write(`\n Schedules explored: ${sum(1)}, failed: ${sum(2)} (${each.join(', ')})\n`);
  };
}
