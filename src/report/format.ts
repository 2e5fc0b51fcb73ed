// Tables, numbers, durations and times as people read them.
import Table from 'cli-table3';

export type Cell = string | number;

const PLAIN = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: '  ',
};

/** Columns under headings; numbers to the right. */
export function table(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const numeric = headings.map(
    (_, at) => rows.length > 0 && rows.every((row) => typeof row[at] === 'number'),
  );
  const made = new Table({
    head: [...headings],
    chars: PLAIN,
    colAligns: numeric.map((isNumber) => (isNumber ? 'right' : 'left')),
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0, compact: true },
  });
  made.push(...rows.map((row) => row.map((cell) => (typeof cell === 'number' ? formatNumber(cell) : cell))));
  return made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');
}

export function formatNumber(value: number): string {
  return value.toLocaleString('en-US').replaceAll(',', ' ');
}

/** `3 rows`, `1 row`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${formatNumber(count)} ${count === 1 ? one : many}`;
}

/** `45 s`, `12 min`, `3 h 20 min`. */
export function formatDuration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatTime(at: Date | null): string {
  return at ? at.toISOString().replace('T', ' ').slice(0, 19) : '–';
}

/** The local time in a time zone, to the minute. */
export function formatInZone(at: Date, timeZone: string): string {
  return at.toLocaleString('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'short' });
}

/** A text of at most so many characters; what is left out at its end is shown as `…`. */
export function shorten(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, most - 1).join('')}…`;
}
