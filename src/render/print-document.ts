// Prints the result of a command as text or as JSON. Separate from print.ts, because `--help` loads only print.ts.
import type { Document, Section } from '../documents/document.js';
import { columnsOf } from '../process/terminal.js';
import { printJson, printLines } from './print.js';
import { answerToText, contentToText } from './text.js';

interface Shown {
  json?: boolean | undefined;
  timeZone: string;
}

/** Prints the document as text with times in `timeZone`, or with `json` the `facts` as JSON. */
export function printDocument(
  document: Omit<Document, 'title'>,
  { json, timeZone }: Shown,
  facts: unknown,
): void {
  if (json) printJson(facts);
  else printLines(answerToText(document, { timeZone, columns: columnsOf(process.stdout) }).split('\n'));
}

export function printContent(content: Omit<Section, 'id' | 'title'>, timeZone: string): void {
  printLines(contentToText(content, { timeZone, columns: columnsOf(process.stdout) }));
}
