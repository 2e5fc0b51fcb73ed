// A terminal as a person sees it: what is written to it becomes lines of a screen. It obeys what the program uses, and
// fails on every other escape sequence. A line that is longer than the screen goes on in the next one.
import type { Output } from '../../src/process/terminal.js';

export function createScreen({ columns = 80, rows = 24 } = {}) {
  let lines: string[][] = [[]];
  let outside: { lines: string[][]; row: number; column: number } | undefined;
  let [row, column] = [0, 0];
  let isCursorShown = true;

  function put(character: string): void {
    if (column >= columns) [row, column] = [row + 1, 0];
    while (lines.length <= row) lines.push([]);
    const line = lines[row] ?? [];
    while (line.length < column) line.push(' ');
    line[column] = character;
    column += 1;
  }

  function obey(parameters: string, command: string): void {
    const top = Math.max(0, lines.length - rows);
    if (command === 'm') return;
    if (command === 'H') [row, column] = [outside ? 0 : top, 0];
    else if (command === 'A') row = Math.max(0, row - Number(parameters || 1));
    else if (command === 'B') row += Number(parameters || 1);
    else if (command === 'G') column = Number(parameters || 1) - 1;
    else if (command === 'J' && parameters === '') {
      lines[row] = (lines[row] ?? []).slice(0, column);
      lines.length = row + 1;
    } else if (command === 'K') lines[row] = (lines[row] ?? []).slice(0, column);
    else if (parameters === '?25') isCursorShown = command === 'h';
    else if (parameters === '?1049' && command === 'h') {
      outside = { lines, row, column };
      [lines, row, column] = [[[]], 0, 0];
    } else if (parameters === '?1049' && outside) {
      ({ lines, row, column } = outside);
      outside = undefined;
    } else throw new Error(`the terminal does not know ESC [ ${parameters}${command}`);
  }

  return {
    isTTY: true as const,
    columns,
    rows,
    getColorDepth: () => 1,
    write(text: string): boolean {
      // eslint-disable-next-line no-control-regex
      for (const [part, parameters = '', command] of text.matchAll(/\x1b\[([?\d;]*)([A-Za-z])|[^]/gu)) {
        if (command !== undefined) obey(parameters, command);
        else if (part === '\n') [row, column] = [row + 1, 0];
        else if (part === '\r') column = 0;
        else if (part < ' ' || part === '\x7f') throw new Error(`the terminal obeys ${JSON.stringify(part)}`);
        else put(part);
        while (lines.length <= row) lines.push([]);
      }
      return true;
    },
    /** The lines, without empty ones at the end. */
    shown: () =>
      lines
        .map((line) => line.join('').trimEnd())
        .join('\n')
        .trimEnd()
        .split('\n'),
    isCursorShown: () => isCursorShown,
    isAlternate: () => outside !== undefined,
  } satisfies Output & Record<string, unknown>;
}
