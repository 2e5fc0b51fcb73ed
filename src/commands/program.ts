// Parses argv, runs the command, and turns every failure into one message and an exit code.
import { readFileSync } from 'node:fs';
import { Command, CommanderError, Help } from 'commander';
import { addCommands } from './command-table.js';
import { EXIT, exitCodeOfErrorCode } from './command.js';
import { codeOf, UsageError, describeError, errorToJson } from '../errors/errors.js';
import { exitWhenPrinted, printJson, printLines, printNote } from '../render/print.js';

async function main(argv: readonly string[]): Promise<void> {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  const program = new Command('slotsync')
    .description(
      'Keeps the objects of a scheduling service equal to a PostgreSQL mirror, within the organization’s request quota.',
    )
    .version(version)
    // Omits [options], which every command has, so that the descriptions fit beside the names in 80 columns.
    .configureHelp({
      subcommandTerm: (command) => new Help().subcommandTerm(command).replace(' [options]', ''),
    })
    .configureOutput({
      writeOut: (text) => printLines(text.replace(/\n$/, '').split('\n')),
      writeErr: (text) => printNote(text.replace(/\n$/, '')),
      outputError: () => undefined, // printed below, as every error
    })
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for\napproval.',
    );
  addCommands(program);
  for (const command of [program, ...program.commands]) command.exitOverride();

  try {
    requireWorkingFolder();
    await program.parseAsync(argv);
  } catch (thrown) {
    if (thrown instanceof CommanderError && /^commander\.(help|version)/.test(thrown.code)) {
      process.exitCode = thrown.exitCode === 0 ? EXIT.done : EXIT.usage;
      return;
    }
    const error = thrown instanceof CommanderError ? asUsageError(thrown) : thrown;
    process.exitCode = exitCodeOfErrorCode(codeOf(error));
    if (codeOf(error) === 'unexpected') {
      const { createLogger, logUnexpected } = await import('../process/logger.js');
      logUnexpected(createLogger('error', undefined), error);
    }
    if (argv.includes('--json')) printJson(errorToJson(error));
    describeError(error).forEach(printNote);
  }
}

function asUsageError({ message }: CommanderError): UsageError {
  const text = message.replace(/^error: /, '').replace(/\n\(Did you mean (.*\?)\)$/, '; did you mean $1');
  return new UsageError(text, {
    remedy:
      'slotsync --help lists the commands, slotsync <command> --help its options. Put -- before a key that begins with -.',
  });
}

function requireWorkingFolder(): void {
  try {
    process.cwd();
  } catch (error) {
    throw new UsageError('the working directory no longer exists', {
      remedy: 'Change to an existing directory.',
      cause: error,
    });
  }
}

/** Turns exit code 0 into 1 if output was lost, such as on a full disk, so that nobody takes it as complete. */
function outputLost(error: Error): void {
  process.once('exit', (code) => {
    if (code === EXIT.done) process.exitCode = EXIT.failed;
  });
  printNote(
    `slotsync: standard output could not be written (${codeOf(error)}): the printed output is incomplete`,
  );
}

/** Runs a command and sets `process.exitCode`. */
export async function runProgram(argv: readonly string[]): Promise<void> {
  // `slotsync sync 2>&1 | head` closes the pipe early. The command continues, and its exit code reports the work.
  process.stderr.on('error', () => undefined);
  let isLost = false;
  process.stdout.on('error', (error) => {
    if (codeOf(error) === 'EPIPE' || isLost) return;
    isLost = true;
    outputLost(error);
  });
  await main(argv);
  // Timers and connections that a configuration file leaves behind must not keep the process alive.
  exitWhenPrinted();
}
