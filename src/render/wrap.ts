// Wraps text to a width: breaks between words, indents continued lines, and keeps commands in one piece to copy.
import stringWidth from 'string-width';

/** Matches text whose characters all take one column. Its length is its width, which is fast to compute. */
const SINGLE = /^[\x20-\x7E\xA1-\xAC\xAE-\u02FF\u2010-\u2013\u2018-\u201D\u2026\u2190-\u2193\u2500-\u2595]*$/;

export function widthOf(text: string): number {
  return SINGLE.test(text) ? text.length : stringWidth(text);
}

/** Splits text into graphemes: a letter with its accents, or an emoji of several characters, is one element. */
const charactersOf = (text: string) => [...new Intl.Segmenter().segment(text)].map(({ segment }) => segment);

/** Matches the indentation and the list mark of a line. Continued lines are indented by the same width. */
const BEGINNING = /^ *(?:(?:→|-|\$|…) )?/;
const HANGING = 2;
/** Minimum number of columns for which continued lines are indented. */
const LEAST_COLUMNS = 20;

/**
 * Wraps a line to at most `columns` columns. A longer word or command stays unbroken on its own line: the terminal
 * continues it on the next line, and copies it as one.
 */
export function wrapLine(line: string, columns: number): string[] {
  if (widthOf(line) <= columns) return [line];
  const [beginning = ''] = BEGINNING.exec(line) ?? [];
  const indent = beginning.length > 0 ? beginning.length : HANGING;
  const hanging = columns - indent < LEAST_COLUMNS ? 0 : indent;
  const [first = '', ...rest] = fill(piecesOf(line.slice(beginning.length)), columns - indent);
  return [beginning + first, ...rest.map((more) => ' '.repeat(hanging) + more)];
}

/** Wraps text to at most `columns` columns. A longer word or command stays unbroken on its own line. */
export const fillLines = (text: string, columns: number): string[] => fill(piecesOf(text), columns);

/** Wraps text to at most `columns` columns. A longer word is broken. */
export function wrapWords(text: string, columns: number): string[] {
  return fill(text.split(' '), columns).flatMap((line) => breakLine(line, columns));
}

export function breakLine(line: string, columns: number): string[] {
  const made: string[] = [];
  let rest = line;
  while (widthOf(rest) > columns) {
    const head = headOf(rest, columns);
    made.push(head);
    rest = rest.slice(head.length);
  }
  return [...made, rest];
}

function fill(pieces: readonly string[], columns: number): string[] {
  const made: string[] = [];
  let line: string | undefined;
  for (const piece of pieces) {
    const longer: string = line === undefined ? piece : `${line} ${piece}`;
    if (line === undefined || widthOf(longer) <= columns) {
      line = longer;
      continue;
    }
    made.push(line.trimEnd());
    line = piece;
  }
  return [...made, line ?? ''];
}

/** Returns as much of the text as fits into `columns` columns, but at least one character. */
export function headOf(text: string, columns: number): string {
  let head = '';
  let width = 0;
  for (const character of charactersOf(text)) {
    width += widthOf(character);
    if (head !== '' && width > columns) break;
    head += character;
  }
  return head;
}

/** Matches the first word of a command within a sentence. */
const COMMAND = /^[`(]?(?:slotsync|npm|SELECT)$/;

/** Match a number, and the digits or unit after it, which stay on one line: `1 200`, `10 %`, `(3 min)`. */
const NUMBER = /^\(?\d+(?: \d{3})*$/;
const UNIT = /^(?:%|(?:ms|s|min|h|d|\d{3})\b)/;

/** Splits text into words, keeping commands whole and numbers together with their units. */
function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  let isCommand = false;
  for (const word of text.split(' ')) {
    const isUnit = UNIT.test(word) && NUMBER.test(pieces.at(-1) ?? '');
    if (isCommand || isUnit) pieces.push(`${pieces.pop()} ${word}`);
    else pieces.push(word);
    const piece = pieces.at(-1) ?? '';
    isCommand = (isCommand || COMMAND.test(word)) && !(/[,;.:)`]$/.test(piece) && !isQuoteOpen(piece));
  }
  return pieces;
}

const isQuoteOpen = (text: string) => text.split("'").length % 2 === 0;
