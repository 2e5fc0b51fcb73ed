// Colours of statuses. A word is coloured where nothing but a status stands: as a cell of a table, or between the signs
// of our own sentences. Text that comes from elsewhere is visible by then, and can at most have such a word coloured.
import { coloured, type Colour } from '../process/terminal.js';

const STATUSES: Readonly<Record<string, Colour>> = {
  failed: 'red',
  dead: 'red',
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

const STATUS = new RegExp(
  `(?<=^|  |[,:'] |\\(|Run \\d+ | is | are )(?:${Object.keys(STATUSES).join('|')})(?=$|  |[,.;:)]| (?:in|since|for|\\())`,
  'g',
);

export function colourStatuses(line: string): string {
  return line.replace(STATUS, (status) => coloured(status, STATUSES[status] ?? 'dim'));
}
