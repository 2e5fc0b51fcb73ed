// What every command shares: its options, its assembly, its exit code.
import { InvalidArgumentError, type Command } from 'commander';
import { createApp, type App, type AppOptions } from '../app.js';
import { errorEntry } from '../error-catalogue.js';
import { codeOf } from '../errors.js';

/** Done; something failed; wrong use or configuration; held for approval. */
export const EXIT = { done: 0, failed: 1, usage: 2, held: 3 } as const;

export interface CommonOptions {
  json?: boolean;
  config?: string;
}

export function exitCodeOf(error: unknown): number {
  return exitCodeOfFailure(codeOf(error));
}

export function exitCodeOfFailure(code: string | null): number {
  return errorEntry(code).exitCode ?? EXIT.failed;
}

/** Adds the options every command has. */
export function common(command: Command): Command {
  return command
    .option('--json', 'print one JSON document instead of text')
    .option('-c, --config <file>', 'configuration file (default: sync.config.ts, or SLOTSYNC_CONFIG)');
}

/** Opens what the command needs, runs it, closes everything. The result is the process's exit code. */
export async function withApp(options: AppOptions, run: (app: App) => Promise<number>): Promise<void> {
  const app = createApp(options);
  try {
    process.exitCode = await run(app);
  } finally {
    await app.close();
  }
}

/** Parses an option's value; commander names the option in its message. */
export function wholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new InvalidArgumentError('a whole number is needed.');
  return value;
}
