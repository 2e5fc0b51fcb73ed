#!/usr/bin/env node
// argv to command, and every failure to one clear message and an exit code.
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { addCommands } from './commands/command-table.js';
import { EXIT, exitCodeOfErrorCode } from './commands/exit-code.js';
import { codeOf } from './errors.js';
import { describeError, errorToJson } from './report/error-message.js';
import { printJson, printLine, printNote } from './report/print.js';

async function main(argv: readonly string[]): Promise<void> {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  const program = new Command('slotsync')
    .description(
      'Keeps a scheduling service true to a Postgres mirror, within the organization’s request quota.',
    )
    .version(version)
    .configureOutput({
      writeOut: (text) => printLine(text.replace(/\n$/, '')),
      writeErr: (text) => printNote(text.replace(/\n$/, '')),
    })
    .showHelpAfterError('(slotsync --help lists the commands and options)')
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for approval.',
    );
  addCommands(program);
  for (const command of [program, ...program.commands]) command.exitOverride();

  try {
    await program.parseAsync(argv);
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? EXIT.done : EXIT.usage;
      return;
    }
    process.exitCode = exitCodeOfErrorCode(codeOf(error));
    if (argv.includes('--json')) printJson(errorToJson(error));
    printNote(describeError(error));
  }
}

// `slotsync plan | head` closes the pipe early: that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  throw error;
});

await main(process.argv);
