// Output for people: lines on standard output, or one JSON document for programs; notes, progress and errors on standard
// error. Nothing else writes there, so that no text can control the terminal or begin a line: every line is made visible, then
// laid out in the terminal's width, then coloured.
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

/** The colours of statuses. */
const STATUSES: Readonly<Record<string, Colour>> = {
  failed: 'red',
  dead: 'red',
  'given up': 'red',
  Failed: 'red',
  'Sending stopped': 'red',
  'Not seen': 'red',
  partial: 'yellow',
  held: 'yellow',
  Held: 'yellow',
  paused: 'yellow',
  deferred: 'yellow',
  cancelled: 'yellow',
  drift: 'yellow',
  succeeded: 'green',
  synced: 'green',
};

/**
 * A word is coloured where nothing but a status stands: as a cell of a table, or between the signs of our own sentences. Text
 * that comes from elsewhere is visible by then, and can at most have such a word coloured.
 */
const STATUS = new RegExp(
  `(?<=^|  |[,:'] |\\(|Run \\d+ | is | are )(?:${Object.keys(STATUSES).join('|')})(?=$|  |[,.;:)]| (?:in|since|for|\\())`,
  'g',
);

export function printLine(line = ''): void {
  printLines([line]);
}

export function printLines(lines: readonly string[]): void {
  write(process.stdout, layOut(process.stdout, lines));
}

/** A line on standard error, where it does not mix with the output. */
export function printNote(line: string): void {
  write(process.stderr, layOut(process.stderr, [line]));
}

/** Text that is to be copied whole, such as a document or a program: it is not laid out. */
export function printText(text: string): void {
  write(process.stdout, visible(text));
}

/** A line on the terminal of standard error that the next one, or whatever is printed next, replaces. */
export function drawLine(line: string): void {
  process.stderr.write(drawnLine(visibleInLine(line)));
}

/** Ends the process with its exit code, when everything is printed. */
export function exitWhenPrinted(): void {
  // After a write that failed, the error is reported first.
  process.stdout.write('', (error) => (error ? setImmediate(() => process.exit()) : process.exit()));
}

/** Big integers are printed as text. */
export function printJson(value: unknown): void {
  printText(
    JSON.stringify(value, (_, field: unknown) => (typeof field === 'bigint' ? String(field) : field), 2),
  );
}

/** The facts as JSON with `--json`, else the lines. */
export function print({ json }: { json?: boolean | undefined }, document: unknown, lines: readonly string[]) {
  if (json) printJson(document);
  else if (lines.length > 0) printLines(lines);
}

/** The lines as this output shows them: within its width, and with colours where it has them. */
export function layOut(output: Output, lines: readonly string[]): string {
  return paint(output, wrapLines(lines, columnsOf(output))).join('\n');
}

const wrapLines = (lines: readonly string[], columns: number) =>
  lines.flatMap((line) => wrapLine(visibleInLine(line), columns));

/** A screen of its own on the terminal of standard output. What was there before is there again when it is closed. */
export function openScreen() {
  const { stdout } = process;
  const leave = () => void stdout.write(CLOSE_SCREEN);
  process.once('exit', leave);
  stdout.write(OPEN_SCREEN);
  return {
    /** As many lines as fit, how many do not, their own last line, and a foot. */
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

/** The nights of a stream, and the first line of \`status\`. */
const NIGHTS = /(?<=^|  )[✓~h✗c…·]{14}(?=$|  )/;
const COLOURS_OF_NIGHTS: Readonly<Record<string, Colour>> = { '✓': 'green', '✗': 'red', '·': 'dim' };

function colourStatuses(line: string): string {
  const nights = (marks: string) =>
    Array.from(marks, (mark) => coloured(mark, COLOURS_OF_NIGHTS[mark] ?? 'yellow')).join('');
  return line
    .replace(STATUS, (status) => coloured(status, STATUSES[status] ?? 'dim'))
    .replace(NIGHTS, nights)
    .replace(/^All well(?=:)/, (well) => coloured(well, 'green'))
    .replace(/^\d+ things? needs? you(?=:)/, (turn) => coloured(turn, 'yellow'));
}

function write(output: Output, text: string): void {
  output.write(canDraw(output) ? overDrawnLine(`${text}\n`) : `${text}\n`);
}
