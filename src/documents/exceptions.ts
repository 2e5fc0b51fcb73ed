// Documents about exceptions: records that slotsync leaves as they are, because an operator decided so.
import { commandFor } from '../situation/commands.js';
import type { Exception } from '../state/exceptions.js';
import { counted, plural } from '../text/format.js';
import { linkToRecord, section, text, type Document, type Text } from './document.js';

/** Example: `since 2026-11-22 07:12 CET, by anna, until 2026-12-01 00:00 CET: the caretaker names it`. */
export function describeException(exception: Omit<Exception, 'stream' | 'localKey'>): Text {
  const { since, until, by, reason } = exception;
  return text`since ${{ minute: since }}, by ${by ?? 'somebody'}${until && text`, until ${{ minute: until }}`}: ${reason}`;
}

/** Returns the number of exceptions in force as a sentence, or false for zero. */
export const describeExceptions = (count: number): string | false =>
  count > 0 &&
  counted`${count} exception{|s}: slotsync does not change {this record|these records}. To list {it|them}: slotsync exceptions`;

export const endCommand = (stream: string, key: string): string =>
  commandFor('slotsync except', stream, key, '--end');

export const exceptionsDocument = (all: readonly Exception[]): Document => ({
  title: 'Exceptions',
  lead: [all.length === 0 ? 'There are no exceptions.' : `${plural(all.length, 'exception')}.`],
  sections: [
    section('exceptions', 'Records that slotsync does not change', {
      points: all.map((exception) => ({
        status: 'excepted',
        text: text`${linkToRecord(exception.stream, exception.localKey)}, ${describeException(exception)}`,
        next: `To end it: ${endCommand(exception.stream, exception.localKey)}`,
      })),
    }),
  ],
});
