// Assembly of everything but the queue: what a command needs is opened when it first asks for it, and closed in the opposite
// order, also when the command fails. Modules are loaded at the same moment, so that a command pays only for what it uses.
import { userInfo } from 'node:os';
import type { Configuration, LoadedConfiguration } from '../config/config-file.js';
import type { Settings } from '../config/settings.js';
import type { Limiter } from '../destination/quota/limiter.js';
import type { Mirror } from '../mirror/mirror.js';
import { createReleasers, once } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { noMeter, type Meter } from '../process/meter.js';
import { createRequestCounter } from '../process/request-counter.js';
import type { QueueStore } from '../queue/jobs.js';
import { requireReason, type Actor } from '../state/actions.js';
import type { State } from '../state/database.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import { createAppQuota } from './app-quota.js';
import { createAppState, required, type AppState } from './app-state.js';
import { createUseCases } from './app-use-cases.js';

export interface BaseOptions {
  /** The command's name, by which others see this process at work. */
  command: string;
  configPath?: string | undefined;
  /** Counts for /metrics when HTTP_PORT is set. */
  isObserved?: boolean;
  /** Works before there is a configuration file: its defaults are taken then. */
  isUnconfigured?: boolean;
  parts?: AppParts;
  /** Hears of the zone of every time that is shown, as soon as it is known. */
  onTimeZone?: (timeZone: string) => void;
}

/** Parts that are open already and are used instead of those that the settings name. Their owner closes them. */
export interface AppParts {
  configuration?: Configuration;
  mirror?: Mirror;
  state?: State;
  limiter?: Limiter;
  meter?: Meter;
}

export type AppBase = ReturnType<typeof createAppBase>;

/** How long one thing may take to close. */
const RELEASE_WITHIN_MS = 3000;

/** Opens nothing yet. */
export function createAppBase(settings: Settings, log: Logger, options: BaseOptions) {
  const { command, isObserved = false, parts = {} } = options;
  const { add: own, releaseAll } = createReleasers({ log, withinMs: RELEASE_WITHIN_MS });
  /** Opens once, and closes with the app. */
  const owned = <T extends { close(): Promise<unknown> }>(open: () => Promise<T>): (() => Promise<T>) =>
    once(async () => {
      const opened = await open();
      return own(opened, () => opened.close());
    });

  /** Requests that were counted are noted before the state closes, whatever was opened first. */
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

  /** Undefined when no HTTP is asked for. */
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

  /** Spans are of work with the service: other commands do not load the SDK. Closed after everything that traces. */
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
    requestNotes = noteRequestsPeriodically({ counter, state: opening.openedState, log });
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

    /** Who runs the command, for what it notes. Throws UsageError when the reason is too long. */
    async actor(reason?: string): Promise<Actor> {
      return { by: nameSystemUser(), via: 'command', reason: requireReason(reason) };
    },

    queueStore: (): QueueStore =>
      settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl },

    /**
     * Throws SlotsyncError when the queue's store cannot be reached, and UsageError when it cannot be used: BullMQ would wait for
     * it without limit.
     */
    async requireQueueStore(): Promise<void> {
      if (settings.redisUrl !== undefined) return quota.requireRedis(Infinity);
      const { requireQueueTables } = await import('../queue/require-queue-tables.js');
      await requireQueueTables(await state());
    },
  };
}

interface ConfiguredOptions extends Pick<
  BaseOptions,
  'isUnconfigured' | 'parts' | 'onTimeZone' | 'configPath'
> {
  settings: Settings;
  mirror: () => Promise<Mirror>;
  state: AppState['state'];
}

/** Loads the configuration when it is first asked for, and what follows from it. */
function createConfigured({
  settings,
  mirror,
  state,
  configPath = settings.configPath,
  isUnconfigured = false,
  parts = {},
  onTimeZone = () => undefined,
}: ConfiguredOptions) {
  /** With the lookups that are tables of the mirror as they are now; workers read them again for each run. */
  const configuration = once(async (): Promise<LoadedConfiguration> => {
    if (parts.configuration)
      return { ...parts.configuration, loadedAt: new Date(), isChanged: async () => false };
    const loaded = await (await import('../config/config-file.js')).loadConfiguration(configPath);
    if (settings.mirrorUrl === undefined || !usesLookupTables(loaded)) return loaded;
    const { readLookupTables } = await import('../sync/run/current-streams.js');
    return { ...loaded, streams: await readLookupTables(await mirror(), loaded.streams) };
  });

  /** The section `service` of the configuration. */
  const service = once(async () => {
    const { existsConfiguration, DEFAULT_SERVICE } = await import('../config/config-file.js');
    if (isUnconfigured && !existsConfiguration(configPath)) return DEFAULT_SERVICE;
    return (await configuration()).service;
  });

  /** The zone of every time that is shown: the setting's, the schedule's, or that of the bookings. */
  async function findTimeZone(): Promise<string> {
    if (settings.timeZone !== undefined) return settings.timeZone;
    const { listSyncSchedules } = await import('../state/schedules.js');
    const [registered] = await listSyncSchedules((await state()).db);
    if (registered) return registered.timezone;
    const declared = await configuration().catch(() => undefined); // what needs the configuration reports its faults
    return declared?.schedule?.timezone ?? declared?.reservations?.bookings?.timezone ?? 'UTC';
  }
  const timeZone = once(async () => {
    const zone = await findTimeZone();
    onTimeZone(zone);
    return zone;
  });

  /** Every stream of the configuration by its name. */
  const streams = async (): Promise<SyncDeps['streams']> =>
    new Map((await configuration()).streams.map((stream) => [stream.name, stream]));
  return { configuration, service, timeZone, streams };
}

/** A reconcile reads the tables of its own lookups. */
function usesLookupTables({ streams }: Configuration): boolean {
  return streams.some(({ lookups }) => lookups.tables.size > 0);
}

/** The operating system's user, by name; `uid 1000` where the system has no name for it, as in a container. */
function nameSystemUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
}
