// What people read: lines on standard output, or one JSON document for programs; notes and errors on standard error.
// Nothing else writes there but the progress bar, so that no text can control the terminal.
import { visible } from '../visible-text.js';

export function printLine(text = ''): void {
  process.stdout.write(`${visible(text)}\n`);
}

/** A line on standard error, where it does not mix with the output. */
export function printNote(text: string): void {
  process.stderr.write(`${visible(text)}\n`);
}

/** Ends the process with its exit code, when everything is printed. */
export function exitWhenPrinted(): void {
  process.stdout.write('', () => process.exit());
}

/** Big integers are printed as text. */
export function printJson(value: unknown): void {
  printLine(
    JSON.stringify(value, (_, field: unknown) => (typeof field === 'bigint' ? String(field) : field), 2),
  );
}

/** One document with `--json`, else the lines. */
export function print({ json }: { json?: boolean | undefined }, document: unknown, lines: readonly string[]) {
  if (json) printJson(document);
  else for (const line of lines) printLine(line);
}

/** The lines that apply: what is false, null or undefined is left out. */
export function lines(
  ...parts: readonly (string | readonly string[] | false | null | undefined)[]
): string[] {
  return parts.flat().filter((line) => typeof line === 'string');
}
