// Creates the app of one command: its settings, its log, and the parts that it opens. A part is opened, and its module
// loaded, when a command first needs it. Parts are closed in reverse order, even if the command fails. A command
// therefore pays only for the parts that it uses; the queue is one of them.
import { userInfo } from 'node:os';
import { once, createReleasers } from '../process/lifecycle.js';
import { createLogger, type Logger } from '../process/logger.js';
import {
  describeSettingsFile,
  findForeignFiles,
  findMisspelledSettings,
  readEnvironment,
} from '../config/environment.js';
import { beforeGivingUp } from '../connections/watchdog.js';
import { loadSettings, type Need, type Settings } from '../config/settings.js';
import { canDraw, hasColours } from '../process/terminal.js';
import type { Configuration, LoadedConfiguration } from '../config/config-file.js';
import type { Limiter } from '../destination/quota/limiter.js';
import type { Mirror } from '../mirror/mirror.js';
import { noMeter, type Meter, createRequestCounter } from '../process/meter.js';
import type { QueueStore } from '../queue/jobs.js';
import { requireReason, type Actor } from '../state/actions.js';
import type { State } from '../state/database.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import { createAppQuota } from './app-quota.js';
import { createAppState, required, type AppState } from './app-state.js';
import type { AlertDeps } from '../alerts/send-alerts.js';
import type { Destination } from '../destination/destination.js';
import type { StartedBy } from '../state/schema.js';
import type { ReconcileDeps } from '../sync/reconcile/reconcile.js';
import type { VerifyDeps } from '../sync/verify/verify.js';

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
  beforeGivingUp((server) =>
    log.fatal({ server }, 'server is silent: the process exits, and nothing is lost'),
  );
  const base = createAppBase(settings, log, { ...options, onTimeZone });
  return { ...base, misspelled, queue: once(async () => (await import('./app-queue.js')).openQueue(base)) };
}

export interface BaseOptions {
  /** Name of the command, by which other processes see this process in the state. */
  command: string;
  configPath?: string | undefined;
  /** If true and HTTP_PORT is set, metrics are counted for /metrics. */
  isObserved?: boolean;
  /** If true, the command works before a configuration file exists, with the defaults. */
  isUnconfigured?: boolean;
  parts?: AppParts;
  /** Called with the time zone of every time that is shown, as soon as it is known. */
  onTimeZone?: (timeZone: string) => void;
}

/** Parts that are already open. They replace the parts that the settings name, and their owner closes them. */
interface AppParts {
  configuration?: Configuration;
  mirror?: Mirror;
  state?: State;
  limiter?: Limiter;
  meter?: Meter;
}

export type AppBase = ReturnType<typeof createAppBase>;

const RELEASE_WITHIN_MS = 3000;

/** Creates an app without a queue. No part is opened yet. */
export function createAppBase(settings: Settings, log: Logger, options: BaseOptions) {
  const { command, isObserved = false, parts = {} } = options;
  const { add: own, releaseAll } = createReleasers({ log, withinMs: RELEASE_WITHIN_MS });
  /** Returns a function that opens a part once. The part is closed with the app. */
  const owned = <T extends { close(): Promise<unknown> }>(open: () => Promise<T>): (() => Promise<T>) =>
    once(async () => {
      const opened = await open();
      return own(opened, () => opened.close());
    });

  /** Writes the counted requests to the state before the state closes, whatever was opened first. */
  let requestNotes: { close(): Promise<void> } | undefined;
  const beforeClose = async () => requestNotes?.close();
  const opening = createAppState({ settings, given: parts.state, own, beforeClose });
  const { state, stateUrl, api } = opening;

  const openMirror = async () => {
    const { createMirror } = await import('../mirror/mirror.js');
    return createMirror({
      url: required(settings.mirrorUrl, 'MIRROR_DATABASE_URL'),
      statementSeconds: settings.mirrorStatementSeconds,
    });
  };
  const ownMirror = owned(openMirror);
  const mirror = async () => parts.mirror ?? ownMirror();

  const triggers = owned(async () => {
    const { openTriggers } = await import('../mirror/install-triggers.js');
    const { CHANGES_CHANNEL } = await import('../state/inbox/add-changes.js');
    return openTriggers({ url: stateUrl(), channel: CHANGES_CHANNEL });
  });

  const configured = createConfigured({ ...options, settings, mirror, state });
  const { service, streams } = configured;
  const quota = createAppQuota({ ...opening, settings, log, given: parts.limiter, own, service });
  const { limiter } = quota;

  /** Returns the HTTP part of a worker, or undefined if HTTP is off. */
  const http = once(async () => {
    if (!isObserved || settings.httpPort === 0) return undefined;
    const { createWorkerHttp } = await import('../http/worker-http.js');
    const names = async () => [...(await streams()).keys()];
    const { httpHost: host, httpPort: port } = settings;
    return createWorkerHttp({ host, port, state, log, limiter, streams: names });
  });
  const counter = createRequestCounter();
  const meter = once(async (): Promise<Meter> => {
    const observed = parts.meter ?? (await http())?.meter ?? noMeter;
    return {
      ...observed,
      requested(endpoint, status, seconds) {
        counter.requested(status, seconds);
        observed.requested(endpoint, status, seconds);
      },
    };
  });

  /** Loads the SDK only for commands that use the service. The SDK is closed after everything that traces. */
  const tracing = once(async () => {
    if (!settings.exportsTraces) return;
    const { startTracing } = await import('../process/tracing-export.js');
    const started = startTracing(log);
    if (started) own(started, started.close);
  });

  const destination = owned(async () => {
    await tracing();
    const { createDestination } = await import('../destination/destination.js');
    const { noteRequestsPeriodically } = await import('../state/requests.js');
    requestNotes = noteRequestsPeriodically(counter, opening.openedState, log);
    own(requestNotes, requestNotes.close);
    const deps = { limiter: await limiter(), log, meter: await meter() };
    return createDestination({ api: api(), ...deps, ...(await service()) });
  });

  const useCases = createUseCases({ ...configured, ...opening, settings, log, mirror, destination, meter });

  return {
    ...configured,
    ...opening,
    ...quota,
    ...useCases,
    command,
    settings,
    log,
    own,
    mirror,
    openMirror,
    triggers,
    http,
    meter,
    destination,
    close: releaseAll,

    /** Returns who runs the command, for the log of actions. Throws UsageError if the reason is too long. */
    async actor(reason?: string): Promise<Actor> {
      return { by: nameSystemUser(), via: 'command', reason: requireReason(reason) };
    },

    queueStore: (): QueueStore =>
      settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl },

    /**
     * Throws SlotsyncError if the queue's store cannot be reached, and UsageError if it cannot be used. BullMQ would
     * wait for the store without limit.
     */
    async requireQueueStore(): Promise<void> {
      if (settings.redisUrl !== undefined) return quota.requireRedis(Infinity);
      const { requireQueueTables } = await import('../queue/require-queue-tables.js');
      await requireQueueTables(await state());
    },
  };
}

/** Loads the configuration, and what is derived from it, at first use. */
function createConfigured({
  settings,
  mirror,
  state,
  configPath = settings.configPath,
  isUnconfigured = false,
  parts = {},
  onTimeZone = () => undefined,
}: BaseOptions & { settings: Settings; mirror: () => Promise<Mirror>; state: AppState['state'] }) {
  /** Includes the present content of lookups that are mirror tables. Workers read them again for each run. */
  const configuration = once(async (): Promise<LoadedConfiguration> => {
    if (parts.configuration)
      return { ...parts.configuration, loadedAt: new Date(), isChanged: async () => false };
    const loaded = await (await import('../config/config-file.js')).loadConfiguration(configPath);
    // A reconcile reads its own lookup tables itself.
    const usesTables = loaded.streams.some(({ lookups }) => lookups.tables.size > 0);
    if (settings.mirrorUrl === undefined || !usesTables) return loaded;
    const { readLookupTables } = await import('../sync/run/current-streams.js');
    return { ...loaded, streams: await readLookupTables(await mirror(), loaded.streams) };
  });

  const service = once(async () => {
    const { existsConfiguration, DEFAULT_SERVICE } = await import('../config/config-file.js');
    if (isUnconfigured && !existsConfiguration(configPath)) return DEFAULT_SERVICE;
    return (await configuration()).service;
  });

  /** Returns the time zone of every time that is shown: that of the setting, the schedule, the bookings, or UTC. */
  async function findTimeZone(): Promise<string> {
    if (settings.timeZone !== undefined) return settings.timeZone;
    const { listSyncSchedules } = await import('../state/schedules.js');
    const [registered] = await listSyncSchedules((await state()).db);
    if (registered) return registered.timezone;
    const declared = await configuration().catch(() => undefined); // other code reports faults of the configuration
    return declared?.schedule?.timezone ?? declared?.reservations?.bookings?.timezone ?? 'UTC';
  }
  const timeZone = once(async () => {
    const zone = await findTimeZone();
    onTimeZone(zone);
    return zone;
  });

  const streams = async (): Promise<SyncDeps['streams']> =>
    new Map((await configuration()).streams.map((stream) => [stream.name, stream]));
  return { configuration, service, timeZone, streams };
}

/** Returns the name of the operating system's user, or `uid 1000` for a user without a name, as in a container. */
function nameSystemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}

interface UseCasesOptions extends AppState, ReturnType<typeof createConfigured> {
  settings: Settings;
  log: Logger;
  mirror: () => Promise<Mirror>;
  destination: () => Promise<Destination & { patient: Destination }>;
  meter: () => Promise<Meter>;
}

/** Assembles the dependencies of the use cases that commands and workers run. */
function createUseCases({ settings, log, mirror, destination, meter, ...parts }: UseCasesOptions) {
  const { configuration, streams, timeZone, state, recognized } = parts;

  /** Returns the dependencies of the use cases. The state must be bound to the destination, or confirmed to be. */
  const syncing = async (opened: State) => ({
    mirror: await mirror(),
    destination: await destination(),
    state: opened,
    streams: await streams(),
    meter: await meter(),
    history: (await configuration()).history,
    historyDays: (await configuration()).historyDays,
    timeZone,
    log,
  });

  /** Creates the channels of alerts. Throws UsageError if a channel cannot be used. */
  const alertChannels = async () => {
    const { createChannels } = await import('../alerts/channels.js');
    const { alerts: rules, report, streams: declared } = await configuration();
    return createChannels(
      { ...settings.alerts, proxy: settings.proxy },
      {
        mail: rules.mail,
        report,
        readReport: async (runId) => {
          const { readReport } = await import('../situation/report.js');
          const { readRun } = await import('../state/runs/read-runs.js');
          const { db } = await state();
          const { requestsPerSecond } = settings;
          const deps = { requestsPerSecond, streams: declared.map(({ name }) => name) };
          return readReport(db, { nightly: await readRun(db, runId) }, deps);
        },
        timeZone,
      },
    );
  };

  return {
    syncing,
    alertChannels,

    /** Returns the dependencies of alerts. Throws UsageError if a channel cannot be used. */
    async alerting(): Promise<AlertDeps> {
      const channels = await alertChannels();
      const { alerts: rules, report } = await configuration();
      const names = [...(await streams()).keys()];
      return {
        state: await state(),
        log,
        channels,
        rules,
        report,
        streams: names,
        timeZone: await timeZone(),
      };
    },

    /** Returns the dependencies of a verify. Binds a new state to the destination. */
    async verifying(startedBy: StartedBy): Promise<VerifyDeps> {
      const { createPace } = await import('../sync/run/request-pace.js');
      const { DEFAULT_VERIFY_SHARE } = await import('../streams/config-schema.js');
      const { share = DEFAULT_VERIFY_SHARE } = (await configuration()).verify ?? {};
      const pace = createPace({ requestsPerSecond: settings.requestsPerSecond, share });
      const { patient } = await destination();
      return { ...(await syncing((await recognized()).state)), destination: patient, startedBy, pace };
    },

    /** Returns the dependencies of a reconcile. Binds a new state to the destination. */
    async reconciling(startedBy: StartedBy): Promise<ReconcileDeps> {
      const { NO_RESERVATIONS } = await import('../streams/bookings.js');
      const { reservations = NO_RESERVATIONS } = await configuration();
      const { patient } = await destination();
      return {
        ...(await syncing((await recognized()).state)),
        destination: patient,
        reservations,
        startedBy,
      };
    },
  };
}
