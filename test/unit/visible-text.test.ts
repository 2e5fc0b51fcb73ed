// Control characters are shown, not obeyed, wherever text is printed.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { visible, visibleInLine } from '../../src/text/visible-text.js';

/** A title for the terminal, a cleared screen, a colour of one byte, a reversed word, a deletion, and a line feed. */
const OBEYED = '\x1b]0;x\x07 \x1b[2J \x9b31m \u202Edrow\u202C \x7f\b\r \u2028 \u0085 \u2066';

describe('a text for a terminal', () => {
  it('shows control characters as JSON escapes them, and keeps line feeds', () => {
    expect(visible(OBEYED)).toBe(
      '\\u001b]0;x\\u0007 \\u001b[2J \\u009b31m \\u202edrow\\u202c \\u007f\\u0008\\u000d \\u2028 \\u0085 \\u2066',
    );
    expect(visible('Aula Å\n  שלום 会議室 👩‍🔧')).toBe('Aula Å\n  שלום 会議室 👩‍🔧');
  });

  it('shows line feeds within a line, and leaves text that is escaped already unchanged', () => {
    expect(visibleInLine('a\nb\r\nc')).toBe(String.raw`a\nb\u000d\nc`);
    expect(visibleInLine(visibleInLine(`${OBEYED}\n`))).toBe(visibleInLine(`${OBEYED}\n`));
  });

  it('keeps the meaning of JSON', () => {
    const value = { [OBEYED]: [`${OBEYED}\n\t"\\u001b`, 'C:\\users\\'] };
    const json = visible(JSON.stringify(value));
    expect(JSON.parse(json)).toEqual(value);
    expect(visible(json)).toBe(json);
  });
});

it.each([
  [
    'only print.ts writes to a standard stream, and cli.ts for an old Node',
    /\b(?:console\.|(?:stdout|stderr)\.write)/,
    ['cli.ts', 'render/print.ts'],
  ],
  ['only terminal.ts contains an escape sequence', /\\x1b|\\u001b|\\e\[/i, ['process/terminal.ts']],
])('%s', (_, pattern, expected) => {
  const root = fileURLToPath(new URL('../../src/', import.meta.url));
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
  expect(files.filter((file) => pattern.test(readFileSync(root + file, 'utf8')))).toEqual(expected);
});
