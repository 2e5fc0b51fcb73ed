// Prints the answer of a command: a document for people, or its facts as JSON for programs. Apart from print.ts, because `--help` loads that.
import type { Document, Section } from '../documents/document.js';
import { columnsOf } from '../process/terminal.js';
import { printJson, printLines } from './print.js';
import { answerToText, contentToText } from './text.js';

interface Shown {
  json?: boolean | undefined;
  timeZone: string;
}

/** Every time is shown in the time zone. `facts`: what `--json` prints. */
export function printDocument(
  document: Omit<Document, 'title'>,
  { json, timeZone }: Shown,
  facts: unknown,
): void {
  if (json) printJson(facts);
  else printLines(answerToText(document, { timeZone, columns: columnsOf(process.stdout) }).split('\n'));
}

/** A part of an answer, without a heading. */
export function printContent(content: Omit<Section, 'id' | 'title'>, timeZone: string): void {
  printLines(contentToText(content, { timeZone, columns: columnsOf(process.stdout) }));
}
