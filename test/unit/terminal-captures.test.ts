// docs/terminal.md shows the captures of docs/terminal as scripts/terminal-captures.mjs made them.
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import stringWidth from 'string-width';
import { describe, expect, it } from 'vitest';

const docs = fileURLToPath(new URL('../../docs/', import.meta.url));
const files = readdirSync(`${docs}terminal`);
const linesOf = (file: string) => readFileSync(`${docs}terminal/${file}`, 'utf8').trimEnd().split('\n');

describe('terminal captures', () => {
  it.each(files)('%s: no line is wider than the terminal', (file) => {
    const columns = Number(/-(\d+)\.txt$/.exec(file)?.[1]);
    for (const line of linesOf(file)) expect(stringWidth(line), line).toBeLessThanOrEqual(columns);
  });

  it('docs/terminal.md: each block is the beginning of its capture', () => {
    const page = readFileSync(`${docs}terminal.md`, 'utf8');
    const blocks = [
      ...page.matchAll(/^(?:<!-- ([\w-]+\.txt)(?:, (\d+) lines)? -->\n\n)?```\n([^]*?)\n```$/gm),
    ];
    expect(blocks.length).toBeGreaterThan(4);
    for (const [, file = 'no capture is named', count = '1000', shown] of blocks) {
      expect(files).toContain(file);
      const lines = linesOf(file);
      const head = lines.slice(0, Number(count));
      expect(shown).toBe([...head, ...(head.length < lines.length ? ['…'] : [])].join('\n'));
    }
  });
});
