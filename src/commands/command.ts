// How every command is run: its module is loaded, what it needs is opened, and everything is closed again. A module is
// loaded only by the command that needs it, so that `--help` and `status` start fast.
import type { Command } from 'commander';
import type { App, AppOptions } from '../app/app.js';
import { EXIT } from './exit-code.js';
import { closeOnSignal } from './signals.js';

/** Options of every command that uses the settings. */
export interface CommonOptions {
  json?: boolean;
  config?: string;
  envFile?: string;
}

/** The option of commands whose actions are noted. */
export interface ReasonOption {
  reason?: string;
}

export function common(command: Command): Command {
  return (
    command
      .option('--json', 'print one JSON document instead of text')
      .option('-c, --config <file>', 'configuration file (default: sync.config.ts, or SLOTSYNC_CONFIG)')
      // Node reads --env-file itself, wherever it stands, and ends before this program when that file is not there.
      .option('--settings, --env-file <file>', 'file with settings (default: .env, if there is one)')
  );
}

/** A command resolves to the process's exit code, 0 without one. */
type Ended = Promise<number | void>;

/** An action for commander: runs what `load` returns with an app. */
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

/** The same for a command that needs no app. */
export function withoutApp<A extends unknown[]>(
  load: () => Promise<(...args: A) => Ended>,
): (...args: A) => Promise<void> {
  return async (...args) => {
    process.exitCode = (await (await load())(...args)) ?? EXIT.done;
  };
}

/** The organization and the address, as messages name the service. */
export function describePlace({ settings: { api } }: App): string {
  return `organization ${api?.organizationId} at ${api?.baseUrl}`;
}
