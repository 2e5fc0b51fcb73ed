import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import { UsageError } from '../errors/errors.js';
import { printLine } from '../render/print.js';

export const canAsk = () => process.stdin.isTTY && process.stdout.isTTY;

/** Confirmation that a command requires before an action that cannot be undone. */
interface Confirmation {
  lines: readonly string[];
  question: string;
  /** Message and remedy of the UsageError that is thrown if there is no terminal to ask on. */
  unasked: readonly [message: string, remedy: string];
}

/** Returns true if the user types yes, or passed `--yes`. Throws UsageError if there is no terminal. */
export async function confirm(
  { yes, json }: { yes?: boolean; json?: boolean },
  { lines, question, unasked: [message, remedy] }: Confirmation,
): Promise<boolean> {
  if (yes) return true;
  if (json || !canAsk()) throw new UsageError(message, { remedy });
  lines.forEach(printLine);
  return (await ask(`${question} Type yes: `)) === 'yes';
}

/** Returns the line that the user types, or an empty string if the input ends. */
async function ask(question: string): Promise<string> {
  const typed = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  try {
    return (await Promise.race([typed.question(question), once(typed, 'close').then(() => '')])).trim();
  } finally {
    typed.close();
  }
}
