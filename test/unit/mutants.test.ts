// The mutants of test/mutants/ are only a proof while they apply to the tree. `npm run test:mutants` runs them.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { readMutants, ROOT } from '../mutants/read-mutants.js';
import { isOnPath } from '../support/programs.js';

const mutants = readMutants();
const hasGit = await isOnPath('git');
const GUARANTEES = Array.from({ length: 11 }, (_, at) => at + 1);

describe('mutants', () => {
  it.each(GUARANTEES)('include at least two for guarantee %i', (number) => {
    expect(mutants.filter(({ guarantee }) => guarantee === number).length).toBeGreaterThanOrEqual(2);
  });

  it.each(mutants)('name a guarantee and an existing test: $name', ({ guarantee, test, title }) => {
    expect(GUARANTEES).toContain(guarantee);
    expect(existsSync(path.join(ROOT, test)), test).toBe(true);
    // Titles of nested blocks are joined by a space: the last words are those of one title.
    const words = title.split(' ').slice(-3).join(' ');
    expect(readFileSync(path.join(ROOT, test), 'utf8'), test).toContain(words);
  });

  it.skipIf(!hasGit)('apply to the tree', () => {
    const refused = mutants.flatMap(({ name, file }) => {
      const { status, stderr } = spawnSync('git', ['apply', '--check', file], {
        cwd: ROOT,
        encoding: 'utf8',
      });
      return status === 0 ? [] : [`${name}: ${stderr}`];
    });
    expect(refused).toEqual([]);
  });
});
