// Text that fits a width: broken between words, with the rest of a line below its beginning, and a command to copy kept
// in one piece where it fits a line.
import stringWidth from 'string-width';

/** Each of these takes one column. Most texts are of these alone, and a hundred times as quick to measure so. */
const SINGLE = /^[\x20-\x7E\xA1-\xAC\xAE-\u02FF\u2010-\u2013\u2018-\u201D\u2026\u2190-\u2193\u2500-\u2595]*$/;

/** Columns that the text takes on a terminal. */
export function widthOf(text: string): number {
  return SINGLE.test(text) ? text.length : stringWidth(text);
}

/** A letter with its marks, or a picture of several, is one. */
const charactersOf = (text: string) => [...new Intl.Segmenter().segment(text)].map(({ segment }) => segment);

/** The indentation and the mark of a list, below which the rest of a line is not written. */
const BEGINNING = /^ *(?:(?:→|-|\$|…) )?/;
const HANGING = 2;
/** Narrower than this, the rest of a line is not indented. */
const LEAST_COLUMNS = 20;

/**
 * A line as lines of at most so many columns. A word or a command that is longer stands on a line of its own as it is: the
 * terminal continues it on the next one, and copies it as one.
 */
export function wrapLine(line: string, columns: number): string[] {
  if (widthOf(line) <= columns) return [line];
  const [beginning = ''] = BEGINNING.exec(line) ?? [];
  const indent = beginning.length > 0 ? beginning.length : HANGING;
  const hanging = columns - indent < LEAST_COLUMNS ? 0 : indent;
  const [first = '', ...rest] = fill(piecesOf(line.slice(beginning.length)), columns - indent);
  return [beginning + first, ...rest.map((more) => ' '.repeat(hanging) + more)];
}

/** A text as lines of at most so many columns; a command or a word that is longer stands alone as it is. */
export const fillLines = (text: string, columns: number): string[] => fill(piecesOf(text), columns);

/** A text as lines of at most so many columns; a word that is longer is broken. */
export function wrapWords(text: string, columns: number): string[] {
  return fill(text.split(' '), columns).flatMap((line) => breakLine(line, columns));
}

/** A line cut where the columns end. */
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

/** The beginning of a text, as much as a terminal shows in so many columns: at least one character. */
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

/** Begins a command, until the sentence goes on. */
const COMMAND = /^[`(]?(?:slotsync|npm|SELECT)$/;

/** A number, and its next three digits or the unit after it, which stay on one line: `1 200`, `10 %`, `(3 min)`. */
const NUMBER = /^\(?\d+(?: \d{3})*$/;
const UNIT = /^(?:%|(?:ms|s|min|h|d|\d{3})\b)/;

/** Words, and commands as one piece each, and numbers with their units. */
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
