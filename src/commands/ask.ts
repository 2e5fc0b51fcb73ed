import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';

/** Tells whether input and output are a terminal, so that a person can be asked. */
export const canAsk = () => process.stdin.isTTY && process.stdout.isTTY;

/** The line that is typed; empty when the input ends. */
export async function ask(question: string): Promise<string> {
  const lines = createInterface({ input: process.stdin, output: process.stdout, terminal: false });
  try {
    return (await Promise.race([lines.question(question), once(lines, 'close').then(() => '')])).trim();
  } finally {
    lines.close();
  }
}
