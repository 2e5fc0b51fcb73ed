// Output of commands: text or JSON on standard output, and notes, progress and errors on standard error. Only this file
// writes to both, so that no text can control the terminal or forge a line. Control characters are made visible, lines
// are wrapped to the width of the terminal, and then colored.
import { plural } from '../text/format.js';
import {
  canDraw,
  CLOSE_SCREEN,
  coloured,
  columnsOf,
  drawnLine,
  drawnScreen,
  hasColours,
  OPEN_SCREEN,
  overDrawnLine,
  type Colour,
  type Output,
} from '../process/terminal.js';
import { visible, visibleInLine } from '../text/visible-text.js';
import { breakLine, headOf, wrapLine } from './wrap.js';

const STATUSES = {
  red: ['failed', 'dead', 'given up', 'Failed', 'Not seen'],
  yellow: ['partial', 'held', 'Held', 'paused', 'deferred', 'cancelled', 'drift'],
  green: ['succeeded', 'synced'],
} as const;
const COLOUR_OF = new Map(
  Object.entries(STATUSES).flatMap(([colour, words]) =>
    words.map((word) => [word as string, colour as Colour]),
  ),
);

/**
 * Matches a status only where it is not part of a sentence: as a table cell, or between punctuation that slotsync
 * prints. Text of other systems is sanitized before, so at worst a word in it gets a color.
 */
const STATUS = new RegExp(
  `(?<=^|  |[,:'] |\\(|Run \\d+ | is | are )(?:${[...COLOUR_OF.keys()].join('|')})(?=$|  |[,.;:)]| (?:in|since|for|\\())`,
  'g',
);

export function printLine(line = ''): void {
  printLines([line]);
}

export function printLines(lines: readonly string[]): void {
  write(process.stdout, layOut(process.stdout, lines));
}

/** Prints a line on standard error, where it does not mix with the output. */
export function printNote(line: string): void {
  write(process.stderr, layOut(process.stderr, [line]));
}

/** Prints text without wrapping, so that a document or a program can be copied as it is. */
export function printText(text: string): void {
  write(process.stdout, visible(text));
}

/** Draws a line on the terminal of standard error. The next line that is drawn or printed replaces it. */
export function drawLine(line: string): void {
  process.stderr.write(drawnLine(visibleInLine(line)));
}

/** Exits with `process.exitCode` when everything is printed. */
export function exitWhenPrinted(): void {
  // After a failed write, waits until the `error` event has been reported.
  process.stdout.write('', (error) => (error ? setImmediate(() => process.exit()) : process.exit()));
}

/** Prints JSON. Big integers are printed as strings. */
export function printJson(value: unknown): void {
  printText(
    JSON.stringify(value, (_, field: unknown) => (typeof field === 'bigint' ? String(field) : field), 2),
  );
}

/** Prints `document` as JSON with `--json`, otherwise prints the lines. */
export function print({ json }: { json?: boolean | undefined }, document: unknown, lines: readonly string[]) {
  if (json) printJson(document);
  else if (lines.length > 0) printLines(lines);
}

/** Wraps the lines to the width of the output, and colors statuses if the output supports colors. */
export function layOut(output: Output, lines: readonly string[]): string {
  return paint(output, wrapLines(lines, columnsOf(output))).join('\n');
}

const wrapLines = (lines: readonly string[], columns: number) =>
  lines.flatMap((line) => wrapLine(visibleInLine(line), columns));

/** Opens a separate screen on the terminal of standard output. Closing it restores the former content. */
export function openScreen() {
  const { stdout } = process;
  const leave = () => void stdout.write(CLOSE_SCREEN);
  process.once('exit', leave);
  stdout.write(OPEN_SCREEN);
  return {
    /** Draws the lines that fit, the number of lines that do not fit, the last line, and a footer. */
    draw(text: readonly string[], foot: string): void {
      const columns = columnsOf(stdout);
      const all = wrapLines(text, columns).flatMap((line) => breakLine(line, columns));
      const room = Math.max(2, stdout.rows - 2);
      const more = all.length - room + 1;
      const shown =
        all.length > room
          ? [...all.slice(0, room - 2), `… ${plural(more, 'more line')}`, ...all.slice(-1)]
          : all;
      const empty = Array.from({ length: room - shown.length }, () => '');
      const lines = [...shown, ...empty, '', headOf(visibleInLine(foot), columns - 1)];
      stdout.write(drawnScreen(paint(stdout, lines)));
    },
    close(): void {
      process.off('exit', leave);
      leave();
    },
  };
}

function paint(output: Output, lines: readonly string[]): readonly string[] {
  return hasColours(output) ? lines.map(colourStatuses) : lines;
}

/** Matches the marks of a stream's 14 nights, as `slotsync status` prints them. */
const NIGHTS = /(?<=^|  )[✓~h✗c…·]{14}(?=$|  )/;
const COLOURS_OF_NIGHTS: Readonly<Record<string, Colour>> = { '✓': 'green', '✗': 'red', '·': 'dim' };

function colourStatuses(line: string): string {
  const nights = (marks: string) =>
    Array.from(marks, (mark) => coloured(mark, COLOURS_OF_NIGHTS[mark] ?? 'yellow')).join('');
  return line
    .replace(STATUS, (status) => coloured(status, COLOUR_OF.get(status) ?? 'dim'))
    .replace(NIGHTS, nights)
    .replace(/^All well(?=:)/, (well) => coloured(well, 'green'))
    .replace(/^\d+ things? needs? you(?=:)/, (turn) => coloured(turn, 'yellow'))
    .replace(/^\d+ things? needs? you now(?=:)/, (turn) => coloured(turn, 'red'));
}

function write(output: Output, text: string): void {
  output.write(canDraw(output) ? overDrawnLine(`${text}\n`) : `${text}\n`);
}
