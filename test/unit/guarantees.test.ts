// docs/guarantees.md and the tests name each other: every guarantee has tests, and each test that names a guarantee is listed.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string) => readFileSync(path.join(root, file), 'utf8');

const guarantees = [
  ...read('docs/guarantees.md').matchAll(/^## (\d+)\. (.+)\n([\s\S]*?)(?=^## |$(?![\s\S]))/gm),
].map(([, number = '', title = '', text = '']) => ({
  number: Number(number),
  title,
  sentence: text.split('\n- ')[0]?.trim() ?? '',
  tests: [...(/^- Tests: (.+(?:\n {2}.+)*)/m.exec(text)?.[1]?.matchAll(/`([^`]+)`/g) ?? [])].map(
    ([, file = '']) => file,
  ),
}));

/** Returns the guarantees that a test file names in comments such as `// Guarantees 2, 4`. */
function markedIn(file: string): Set<number> {
  const markers = read(file).matchAll(/^ *\/\/ Guarantees? (\d+(?:, \d+)*)/gm);
  return new Set([...markers].flatMap(([, numbers = '']) => numbers.split(', ').map(Number)));
}

const testFiles = readdirSync(`${root}test`, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.test.ts'))
  .map((file) => `test/${file.replaceAll(path.sep, '/')}`)
  .filter((file) => file !== 'test/unit/guarantees.test.ts');

describe('the guarantees', () => {
  it('are numbered 1 to 11, each once, in order', () => {
    expect(guarantees.map(({ number }) => number)).toEqual(Array.from({ length: 11 }, (_, at) => at + 1));
  });

  it('include the five of the README, by the same names', () => {
    const section = read('README.md').split('\n## What it guarantees\n')[1]?.split('\n## ')[0] ?? '';
    const listed = [...section.matchAll(/^\| \*\*([^*]+)\*\*/gm)].map(([, title]) => title);
    expect(listed).toHaveLength(5);
    expect(guarantees.map(({ title }) => title)).toEqual(expect.arrayContaining(listed));
  });

  it.each(guarantees)(
    'have a sentence, and tests that exist and name the guarantee: $number, $title',
    ({ number, sentence, tests }) => {
      expect(sentence).toMatch(/\.$/);
      expect(tests.length).toBeGreaterThan(0);
      for (const file of tests) {
        expect(existsSync(path.join(root, file)), file).toBe(true);
        expect([...markedIn(file)], file).toContain(number);
      }
    },
  );

  it.each(testFiles)('list %s under each guarantee that it names', (file) => {
    for (const number of markedIn(file))
      expect(guarantees.find((one) => one.number === number)?.tests, `guarantee ${number}`).toContain(file);
  });
});
