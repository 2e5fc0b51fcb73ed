// The next step that a text names: who acts, and by which command.
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';

/** The commands there are. */
const COMMANDS = [
  ...readFileSync(new URL('../../src/commands/command-table.ts', import.meta.url), 'utf8').matchAll(
    /program\.command\('(\w+)'\)/g,
  ),
].map(([, name = '']) => name);

export type Turn = 'retry' | 'wait' | 'person';
const TURNS: Record<Turn, RegExp> = {
  retry: /\btries again\b|\bonce it answers again\b/i,
  wait: /\bno action needed\b/i,
  person: /\b(correct|check|deactivate|update|grant|raise|approve|ask)\b/i,
};

/** The text names who acts next, and a command that exists. */
export function expectNextStep(text: string, turn: Turn): void {
  expect(text).toMatch(TURNS[turn]);
  const named = [...text.matchAll(/\bslotsync (\w+)/g)].map(([, name]) => name);
  expect(named, `a command in: ${text}`).not.toEqual([]);
  expect(COMMANDS).toEqual(expect.arrayContaining(named));
}
