#!/usr/bin/env node
// argv to command, and whatever goes wrong to one clear message and an exit code.
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { EXIT, exitCodeOf } from './commands/command.js';
import { addApprove } from './commands/approve.js';
import { addBackfill } from './commands/backfill.js';
import { addCancel } from './commands/cancel.js';
import { addCheck } from './commands/check.js';
import { addDemo } from './commands/demo.js';
import { addExplain } from './commands/explain.js';
import { addFailures } from './commands/failures.js';
import { addMigrate } from './commands/migrate.js';
import { addPause } from './commands/pause.js';
import { addPlan } from './commands/plan.js';
import { describeError, printJson } from './report/format.js';
import { addReconcile } from './commands/reconcile.js';
import { addPush } from './commands/push.js';
import { addReject } from './commands/reject.js';
import { addResume } from './commands/resume.js';
import { addRetry } from './commands/retry.js';
import { addRuns } from './commands/runs.js';
import { addSandbox } from './commands/sandbox.js';
import { addStatus } from './commands/status.js';
import { addSync } from './commands/sync.js';
import { addTriggers } from './commands/triggers.js';
import { addWorker } from './commands/worker.js';
import { codeOf, messageOf, SlotsyncError, UsageError } from './errors.js';

const ADDERS = [
  addDemo,
  addMigrate,
  addCheck,
  addPlan,
  addSync,
  addBackfill,
  addWorker,
  addPush,
  addTriggers,
  addStatus,
  addRuns,
  addFailures,
  addRetry,
  addApprove,
  addReject,
  addPause,
  addResume,
  addCancel,
  addReconcile,
  addExplain,
  addSandbox,
];

async function main(argv: readonly string[]): Promise<void> {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  const program = new Command('slotsync')
    .description(
      'Keeps a scheduling service true to a Postgres mirror, within the organization’s request quota.',
    )
    .version(version)
    .showHelpAfterError('(slotsync --help shows what there is)')
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for approval.',
    );
  for (const add of ADDERS) add(program);
  for (const command of [program, ...program.commands]) command.exitOverride();

  try {
    await program.parseAsync(argv);
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? EXIT.done : EXIT.usage;
      return;
    }
    process.exitCode = exitCodeOf(error);
    if (argv.includes('--json')) {
      const faults = error instanceof UsageError ? { faults: error.faults } : {};
      const remedy = error instanceof SlotsyncError && error.remedy !== '' ? { remedy: error.remedy } : {};
      printJson({ error: { code: codeOf(error), message: messageOf(error), ...faults, ...remedy } });
    }
    process.stderr.write(`${describeError(error)}\n`);
  }
}

// `slotsync plan | head` closes the pipe early; that is the reader's right, not a failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit();
  throw error;
});

await main(process.argv);
