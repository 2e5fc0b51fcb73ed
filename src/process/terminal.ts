// Terminals and the escape sequences that they obey. No other file of this program has any: data passes
// through visible-text.ts first, so that it cannot hold one.
import { styleText } from 'node:util';

/** A standard stream; a pipe and a file have neither width nor colours. */
export type Output = Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'rows' | 'getColorDepth'> & {
  write(text: string): unknown;
};

const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;

export type Colour = 'red' | 'green' | 'yellow' | 'dim';

/** From the cursor to the end of the screen: also what is left of a line that was wrapped when the window got narrower. */
const ERASE_BELOW = '\x1b[J';
const ERASE_TO_END_OF_LINE = '\x1b[K';
const HOME = '\x1b[H';

/** A screen of its own, which leaves what was there as it was, without a cursor. */
export const OPEN_SCREEN = '\x1b[?1049h\x1b[?25l';
export const CLOSE_SCREEN = '\x1b[?25h\x1b[?1049l';

/** Whether it can be drawn on: not a pipe, a file, or a terminal that obeys nothing. */
export function canDraw(stream: Output): boolean {
  return stream.isTTY && process.env['TERM'] !== 'dumb';
}

/** Unlimited where no terminal is: a program that reads the output gets whole lines. */
export function columnsOf(stream: Output): number {
  return stream.isTTY ? stream.columns || DEFAULT_COLUMNS : Infinity;
}

/** Unlimited where no terminal is. */
export function rowsOf(stream: Output): number {
  return stream.isTTY ? stream.rows || DEFAULT_ROWS : Infinity;
}

/** Node decides as other programs do: NO_COLOR and TERM=dumb mean no colours, FORCE_COLOR means colours also in a pipe. */
export function hasColours(stream: Output): boolean {
  const { FORCE_COLOR: forced } = process.env;
  if (forced !== undefined) return forced !== '0' && forced !== 'false';
  return stream.isTTY && stream.getColorDepth() > 1;
}

export function coloured(text: string, colour: Colour): string {
  return styleText(colour, text, { validateStream: false });
}

/** Text on a terminal, in place of a line that is drawn there, if there is one. */
export function overDrawnLine(text: string): string {
  return `\r${ERASE_BELOW}${text}`;
}

/**
 * A line that the next text replaces. The cursor stays at its beginning: whatever is written next, also after the window
 * got narrower and the terminal wrapped the line, begins there.
 */
export function drawnLine(text: string): string {
  return `${text}${ERASE_BELOW}\r`;
}

/** Lines from the top of the screen, written over what is there without clearing it first, so that nothing flickers. */
export function drawnScreen(lines: readonly string[]): string {
  return `${HOME}${lines.map((line) => `${line}${ERASE_TO_END_OF_LINE}`).join('\r\n')}${ERASE_BELOW}`;
}
