// Defines the escape sequences for terminals. No other file contains any: data passes through visible-text.ts first, so
// that data cannot contain an escape sequence.
import { styleText } from 'node:util';

/** A standard stream. If it is a pipe or a file, it has neither width nor colours. */
export type Output = Pick<NodeJS.WriteStream, 'isTTY' | 'columns' | 'rows' | 'getColorDepth'> & {
  write(text: string): unknown;
};

const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;

export type Colour = 'red' | 'green' | 'yellow' | 'dim';

/** Erases from the cursor to the end of the screen, also the rest of a line that wrapped when the window shrank. */
const ERASE_BELOW = '\x1b[J';
const ERASE_TO_END_OF_LINE = '\x1b[K';
const HOME = '\x1b[H';

/** Opens a separate screen without a cursor. After it is closed, the terminal shows its previous content. */
export const OPEN_SCREEN = '\x1b[?1049h\x1b[?25l';
export const CLOSE_SCREEN = '\x1b[?25h\x1b[?1049l';

/** Returns true if the stream is a terminal that obeys escape sequences, not a pipe, a file or a dumb terminal. */
export function canDraw(stream: Output): boolean {
  return stream.isTTY && process.env['TERM'] !== 'dumb';
}

/** Returns the width, Infinity without a terminal: a program that reads the output gets whole lines. */
export function columnsOf(stream: Output): number {
  return stream.isTTY ? stream.columns || DEFAULT_COLUMNS : Infinity;
}

/** Returns the height, Infinity without a terminal. */
export function rowsOf(stream: Output): number {
  return stream.isTTY ? stream.rows || DEFAULT_ROWS : Infinity;
}

/** Returns true if output has colours. NO_COLOR and TERM=dumb turn them off; FORCE_COLOR turns them on. */
export function hasColours(stream: Output): boolean {
  const { FORCE_COLOR: forced } = process.env;
  if (forced !== undefined) return forced !== '0' && forced !== 'false';
  return stream.isTTY && stream.getColorDepth() > 1;
}

export function coloured(text: string, colour: Colour): string {
  return styleText(colour, text, { validateStream: false });
}

/** Returns text that replaces the line that `drawnLine` may have drawn on the terminal. */
export function overDrawnLine(text: string): string {
  return `\r${ERASE_BELOW}${text}`;
}

/**
 * Returns a line that the next output replaces. The cursor stays at the line's beginning. The next output begins there,
 * even if the terminal has wrapped the line because the window shrank.
 */
export function drawnLine(text: string): string {
  return `${text}${ERASE_BELOW}\r`;
}

/** Returns lines that overwrite the screen from its top. The screen is not cleared first, to avoid flicker. */
export function drawnScreen(lines: readonly string[]): string {
  return `${HOME}${lines.map((line) => `${line}${ERASE_TO_END_OF_LINE}`).join('\r\n')}${ERASE_BELOW}`;
}
