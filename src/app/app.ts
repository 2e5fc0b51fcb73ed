// Creates the app of one command: its settings, its log, and the parts that it opens. The queue is loaded only by
// commands that queue or work something.
import { createAppBase, type BaseOptions } from './app-base.js';
import { once } from '../process/lifecycle.js';
import { createLogger } from '../process/logger.js';
import {
  describeSettingsFile,
  findForeignFiles,
  findMisspelledSettings,
  readEnvironment,
} from '../config/environment.js';
import { beforeGivingUp } from '../connections/watchdog.js';
import { loadSettings, type Need } from '../config/settings.js';
import { canDraw, hasColours } from '../process/terminal.js';

export interface AppOptions extends BaseOptions {
  needs: readonly Need[];
  envFile?: string | undefined;
  /** Log level if LOG_LEVEL is not set. */
  logLevel?: string;
}

export type App = Awaited<ReturnType<typeof createApp>>;

/** Creates an app and opens nothing yet. Throws UsageError if a needed setting is missing. */
export async function createApp({ needs, envFile, logLevel = 'warn', ...options }: AppOptions) {
  const env = readEnvironment(envFile);
  const misspelled = findMisspelledSettings(envFile, env);
  const settings = loadSettings(needs, env, describeSettingsFile(envFile), misspelled);
  const { stderr } = process;
  const shown = canDraw(stderr) ? { timeZone: settings.timeZone, hasColours: hasColours(stderr) } : undefined;
  const mixin = settings.exportsTraces ? (await import('../process/tracing.js')).traceIds : undefined;
  const log = createLogger(settings.logLevel ?? logLevel, shown, undefined, mixin);
  for (const reason of findForeignFiles([envFile, options.configPath ?? settings.configPath]))
    log.warn({ reason }, 'file could have been written by others');
  for (const reason of misspelled) log.warn({ reason }, 'setting is misspelled');
  const onTimeZone = (timeZone: string) => void (shown && (shown.timeZone = timeZone));
  beforeGivingUp((server) => log.fatal({ server }, 'silent server: the process ends, and nothing is lost'));
  const base = createAppBase(settings, log, { ...options, onTimeZone });
  return { ...base, misspelled, queue: once(async () => (await import('./app-queue.js')).openQueue(base)) };
}
