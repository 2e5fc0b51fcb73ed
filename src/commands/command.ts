// Runs a command: imports its module, opens the connections that it needs, and closes them at the end. Each module is
// imported only by the command that needs it, so that `--help` and `status` start fast.
import type { Command } from 'commander';
import type { App, AppOptions } from '../app/app.js';
import { closeOnSignal } from './signals.js';
import { errorEntry } from '../errors/error-catalogue.js';
import type { Run } from '../state/runs/read-runs.js';

export interface CommonOptions {
  json?: boolean;
  config?: string;
  envFile?: string;
}

export interface ReasonOption {
  reason?: string;
}

export function common(command: Command): Command {
  return (
    command
      .option('--json', 'print one JSON document instead of text')
      .option('-c, --config <file>', 'configuration file (default: sync.config.ts, or SLOTSYNC_CONFIG)')
      // Node itself also reads `--env-file`. If the file is missing, Node exits before this program starts.
      .option('--settings, --env-file <file>', 'file with settings (default: .env, if there is one)')
  );
}

/** Result of a command: the exit code of the process. Undefined means 0. */
type Ended = Promise<number | void>;

/** Returns an action for commander that creates an app and passes it to the command that `load` imports. */
export function withApp<A extends unknown[]>(
  opens: Omit<AppOptions, 'command' | 'configPath' | 'envFile'>,
  load: () => Promise<(app: App, ...args: A) => Ended>,
): (...args: A) => Promise<void> {
  return async (...args) => {
    const [{ createApp }, run] = await Promise.all([import('../app/app.js'), load()]);
    const { config: configPath, envFile } = args.at(-2) as CommonOptions; // commander adds the command itself
    const command = (args.at(-1) as Command).name();
    const app = await createApp({ ...opens, command, configPath, envFile });
    const signals = closeOnSignal(app.close);
    try {
      process.exitCode = (await run(app, ...args)) ?? EXIT.done;
    } catch (error) {
      await app.explainRights(error);
    } finally {
      await signals.ended();
      await app.close();
    }
  };
}

/** Returns an action for commander, for a command that needs no app. */
export function withoutApp<A extends unknown[]>(
  load: () => Promise<(...args: A) => Ended>,
): (...args: A) => Promise<void> {
  return async (...args) => {
    process.exitCode = (await (await load())(...args)) ?? EXIT.done;
  };
}

export function describePlace({ settings: { api } }: App): string {
  return `organization ${api?.organizationId} at ${api?.baseUrl}`;
}

// Exit codes of the process: 0 done, 1 something failed, 2 wrong use or configuration, 3 held for approval. A run whose
// held records are all frozen or rejected by an operator needs nobody, so its exit code is 0.

export const EXIT = { done: 0, failed: 1, usage: 2, held: 3 } as const;

export function exitCodeOfErrorCode(code: string | null): number {
  return errorEntry(code).exitCode ?? EXIT.failed;
}

export function exitCodeOfRun(run: Pick<Run, 'status' | 'errorCode' | 'holds'>): number {
  const { status, errorCode, holds } = run;
  if (status === 'succeeded') return EXIT.done;
  if (status === 'held') {
    const held = Object.values(holds).flatMap((ofStream) => Object.values(ofStream));
    return held.every(({ reason, isRejected }) => reason === 'frozen' || isRejected) ? EXIT.done : EXIT.held;
  }
  return status === 'failed' ? exitCodeOfErrorCode(errorCode) : EXIT.failed;
}
