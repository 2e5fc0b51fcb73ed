// The README and .env.example name what there is: every command and setting, and no other.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../../', import.meta.url));
const read = (file: string) => readFileSync(root + file, 'utf8');
const readme = read('README.md');

const commands = readdirSync(`${root}src/commands`).flatMap((file) =>
  [...read(`src/commands/${file}`).matchAll(/(?:\.command|\badd)\('([\w-]+)'\)/g)].map(([, name = '']) => name),
);
const settings = [...read('src/settings.ts').matchAll(/^ {2}([A-Z][A-Z_]+):/gm)].map(([, name = '']) => name);

/** First cells of the table below a heading. */
function cells(heading: string): string[] {
  const section = readme.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  return [...section.matchAll(/^\| (`[^|]+`[^|]*?) +\|/gm)].map(([, cell = '']) => cell);
}

describe('the README', () => {
  it('begins with the two commands that do all the set-up', () => {
    expect(readme).toMatch(/```sh\nnpm ci && npm run demo .*\nnpm ci && npm test .*\n```/);
  });

  it('has a row for every command, and no other', () => {
    const named = cells('Commands').map((cell) => /`([\w-]+)/.exec(cell)?.[1] ?? '');
    expect(named.toSorted()).toEqual(commands.toSorted());
  });

  it('has a row for every setting, and no other', () => {
    const named = cells('Settings').flatMap((cell) =>
      [...cell.matchAll(/`([A-Z_]+)`/g)].map(([, name = '']) => name),
    );
    expect(named.toSorted()).toEqual(settings.toSorted());
  });

  it('leads only to files that are there', () => {
    const links = [...readme.matchAll(/\]\(([\w./-]+)/g)].map(([, link = '']) => link);
    for (const link of links) expect(() => read(link), link).not.toThrow();
  });
});

describe('.env.example', () => {
  it('explains every setting, and no other', () => {
    const named = [...read('.env.example').matchAll(/^#? ?([A-Z][A-Z_]+)=/gm)].map(([, name = '']) => name);
    // The one name more is docker-compose.yml's own.
    expect([...new Set(named)].toSorted()).toEqual([...settings, 'STATE_DATABASE_PASSWORD'].toSorted());
  });
});
