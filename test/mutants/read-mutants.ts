// A mutant is one small patch of the program that breaks a guarantee, and the test that has to fail because of it.
// Its file begins with four facts, which `git apply` skips:
//
//   Changes: <what it does to the program, one sentence>
//   Guarantee: <number in docs/guarantees.md>
//   Test: <the test file that must fail>
//   Title: <the test in it that must fail, or a part of its title>
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface Mutant {
  /** The name of its file, without `.patch`. */
  name: string;
  /** Absolute. */
  file: string;
  changes: string;
  guarantee: number;
  test: string;
  title: string;
}

/** All mutants, by name. Throws when one lacks a fact. */
export function readMutants(): Mutant[] {
  const folder = fileURLToPath(new URL('.', import.meta.url));
  const files = readdirSync(folder).filter((file) => file.endsWith('.patch'));
  return files.sort().map((file) => {
    const [header = ''] = readFileSync(path.join(folder, file), 'utf8').split(/^diff --git /m);
    const factOf = (name: string) => {
      const fact = new RegExp(`^${name}: (.+)$`, 'm').exec(header)?.[1];
      if (fact === undefined) throw new Error(`test/mutants/${file} has no line '${name}: …' at its top`);
      return fact.trim();
    };
    return {
      name: file.replace(/\.patch$/, ''),
      file: path.join(folder, file),
      changes: factOf('Changes'),
      guarantee: Number(factOf('Guarantee')),
      test: factOf('Test'),
      title: factOf('Title'),
    };
  });
}
