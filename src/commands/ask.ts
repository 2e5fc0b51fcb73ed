import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { UsageError } from '../errors/errors.js';
import { printLine } from '../render/print.js';

/** Tells whether input and output are a terminal, so that a person can be asked. */
export const canAsk = () => process.stdin.isTTY && process.stdout.isTTY;

/** A question to the person at the terminal before something is done that cannot be undone. */
interface Confirmation {
  lines: readonly string[];
  /** Answered by `yes`. */
  question: string;
  /** The message and the remedy where nobody can be asked. */
  unasked: readonly [message: string, remedy: string];
}

/** Returns whether the person types yes, or the command was called with `--yes`. Throws UsageError where nobody can be asked. */
export async function confirm(
  { yes, json }: { yes?: boolean; json?: boolean },
  { lines, question, unasked: [message, remedy] }: Confirmation,
): Promise<boolean> {
  if (yes) return true;
  if (json || !canAsk()) throw new UsageError(message, { remedy });
  lines.forEach(printLine);
  return (await ask(`${question} Type yes: `)) === 'yes';
}

/** The line that is typed; empty when the input ends. */
async function ask(question: string): Promise<string> {
  const typed = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  try {
    return (await Promise.race([typed.question(question), once(typed, 'close').then(() => '')])).trim();
  } finally {
    typed.close();
  }
}
