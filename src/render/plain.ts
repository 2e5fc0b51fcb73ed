// A text of a document without anything but its characters, all in one line: for a terminal, a mail, a chat, a spreadsheet.
import type { Cell, Part, Point, Text } from '../documents/document.js';
import { formatMinute, formatNumber, formatTime } from '../text/format.js';
import { visibleInLine } from '../text/visible-text.js';

/** Every time is shown in the time zone. */
export function plain(text: Text, timeZone: string): string {
  return typeof text === 'string'
    ? visibleInLine(text)
    : text.parts.map((part) => plainPart(part, timeZone)).join('');
}

export function plainCell(cell: Cell, timeZone: string): string {
  return typeof cell === 'number' ? formatNumber(cell) : plain(cell, timeZone);
}

export function plainPart(part: Part, timeZone: string): string {
  if (typeof part === 'string') return visibleInLine(part);
  if (part instanceof Date) return formatTime(part, timeZone);
  if ('minute' in part) return formatMinute(part.minute, timeZone);
  if ('command' in part) return visibleInLine(part.command);
  if ('status' in part) return visibleInLine(part.status);
  return typeof part.text === 'number' ? formatNumber(part.text) : visibleInLine(part.text);
}

/** The command that an operator types, where there is no button. */
export const commandOf = (command: string | { command: string }): string =>
  visibleInLine(typeof command === 'string' ? command : command.command);

/** The commands of a point that its sentence about what happens next does not name. */
export function commandsBeside({ next = '', commands = [] }: Point, timeZone: string): string[] {
  const sentence = plain(next, timeZone);
  return commands.map(commandOf).filter((command) => !sentence.includes(command));
}
