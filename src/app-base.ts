// Assembly of everything but the queue: what a command needs is opened when it first asks for it, and closed in the opposite
// order, also when the command fails. Modules are loaded at the same moment, so that a command pays only for what it uses.
import type { AlertDeps } from './alerts/tell.js';
import type { Configuration, LoadedConfiguration } from './config-file.js';
import type { QuotaUsage } from './destination/quota/limiter.js';
import { UsageError } from './errors.js';
import { createReleasers, once } from './lifecycle.js';
import type { Logger } from './logger.js';
import { noMeter, type Meter } from './meter.js';
import type { QueueStore } from './queue/queue-address.js';
import { createRequestCounter } from './request-counter.js';
import type { ApiSettings, Settings } from './settings.js';
import { openState, type State } from './state/database.js';
import { noteDatabase, readStateFacts } from './state/databases.js';
import { bindDestination, confirmDestination } from './state/destination-binding.js';
import { requireMigrated } from './state/migrate.js';
import type { StartedBy } from './state/schema.js';
import type { ReconcileDeps } from './sync/reconcile/reconcile.js';
import type { VerifyDeps } from './sync/verify/verify.js';

export interface BaseOptions {
  /** The command's name, by which others see this process at work. */
  command: string;
  configPath?: string | undefined;
  /** Counts for /metrics when HTTP_PORT is set. */
  isObserved?: boolean;
  /** Works before there is a configuration file: its defaults are taken then. */
  isUnconfigured?: boolean;
}

export type AppBase = ReturnType<typeof createAppBase>;

/** How long one thing may take to close. */
const RELEASE_WITHIN_MS = 3000;

/** Opens nothing yet. */
export function createAppBase(
  settings: Settings,
  log: Logger,
  { command, configPath = settings.configPath, isObserved = false, isUnconfigured = false }: BaseOptions,
) {
  const { add: own, releaseAll } = createReleasers({ log, withinMs: RELEASE_WITHIN_MS });
  /** Opens once, and closes with the app. */
  const owned = <T extends { close(): Promise<unknown> }>(open: () => Promise<T>): (() => Promise<T>) =>
    once(async () => {
      const opened = await open();
      return own(opened, () => opened.close());
    });

  const stateUrl = () => required(settings.stateUrl, 'STATE_DATABASE_URL');
  const api = () => required(settings.api, 'API_BASE_URL');

  /** With the lookups that are tables of the mirror as they are now; workers read them again for each run. */
  const configuration = once(async (): Promise<LoadedConfiguration> => {
    const loaded = await (await import('./config-file.js')).loadConfiguration(configPath);
    if (settings.mirrorUrl === undefined || !usesLookupTables(loaded)) return loaded;
    const { readLookupTables } = await import('./sync/current-streams.js');
    return { ...loaded, streams: await readLookupTables(await mirror(), loaded.streams) };
  });

  /** The section `service` of the configuration. */
  const service = once(async () => {
    const { existsConfiguration, DEFAULT_SERVICE } = await import('./config-file.js');
    if (isUnconfigured && !existsConfiguration(configPath)) return DEFAULT_SERVICE;
    return (await configuration()).service;
  });

  const connection = owned(async () => openState({ url: stateUrl() }));
  const state = once(async (): Promise<State> => {
    const opened = await connection();
    await requireMigrated(opened);
    return (openedState = opened);
  });
  let openedState: State | undefined;

  /** Of every time that is shown: the setting's, the schedule's, or that of the bookings. */
  const timeZone = once(async (): Promise<string> => {
    if (settings.timeZone !== undefined) return settings.timeZone;
    const { readSchedule, NIGHTLY } = await import('./state/runs/nightly-occurrences.js');
    const registered = await readSchedule((await state()).db, NIGHTLY);
    if (registered) return registered.timezone;
    const declared = await configuration().catch(() => undefined); // what needs the configuration reports its faults
    return declared?.schedule?.timezone ?? declared?.reservations?.bookings?.timezone ?? 'UTC';
  });

  /** The state bound to the destination of the settings. */
  const bound = once(async (): Promise<{ state: State; stateId: string }> => {
    const opened = await state();
    await noteDatabase(opened.db, 'state', await readStateFacts(opened.db));
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });

  const mirror = owned(async () => {
    const { createMirror } = await import('./mirror/mirror.js');
    return createMirror({ url: required(settings.mirrorUrl, 'MIRROR_DATABASE_URL') });
  });

  const triggers = owned(async () => {
    const { openTriggers } = await import('./mirror/install-triggers.js');
    const { CHANGES_CHANNEL } = await import('./state/inbox/add-changes.js');
    return openTriggers({ url: stateUrl(), channel: CHANGES_CHANNEL });
  });

  /** The quota is one organization's at one service. */
  async function openQuota(owner: Pick<ApiSettings, 'baseUrl' | 'organizationId'>, leaseMs?: number) {
    const { openLimiter } = await import('./destination/quota/open-limiter.js');
    const { redisUrl, requestsPerSecond: rate } = settings;
    if (redisUrl === undefined) await state(); // its migrations create the store
    const key = `${owner.baseUrl} ${owner.organizationId}`;
    const opened = await openLimiter({ redisUrl, stateUrl: stateUrl(), key, rate, leaseMs, log });
    own(opened, opened.disconnect);
    return own(opened.limiter, opened.limiter.close);
  }

  const limiter = once(async () => {
    return openQuota(api(), (await service()).requestTimeoutMs + 1000);
  });

  /** Of the state's destination, for those who only look. */
  let quota: { name: string; limiter: ReturnType<typeof openQuota> } | undefined;

  /** Undefined when no HTTP is asked for. */
  const http = once(async () => {
    if (!isObserved || settings.httpPort === 0) return undefined;
    const { createWorkerHttp } = await import('./http/worker-http.js');
    const streams = async () => (await configuration()).streams.map(({ name }) => name);
    const { httpHost: host, httpPort: port } = settings;
    return createWorkerHttp({ host, port, state, log, limiter, streams });
  });
  const counter = createRequestCounter();
  const meter = once(async (): Promise<Meter> => {
    const observed = (await http())?.meter ?? noMeter;
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
    const { startTracing } = await import('./tracing-export.js');
    const started = startTracing(log);
    if (started) own(started, started.close);
  });

  const destination = owned(async () => {
    await tracing();
    const { createDestination } = await import('./destination/destination.js');
    const { noteRequestsPeriodically } = await import('./sync/note-requests.js');
    const notes = noteRequestsPeriodically({ counter, state: () => openedState, log });
    own(notes, notes.close);
    const deps = { limiter: await limiter(), log, meter: await meter() };
    return createDestination({ api: api(), ...deps, ...(await service()) });
  });

  return {
    command,
    settings,
    log,
    own,
    stateUrl,
    configuration,
    state,
    timeZone,
    bound,
    mirror,
    triggers,
    limiter,
    http,
    meter,
    destination,
    close: releaseAll,

    queueStore: (): QueueStore =>
      settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl },

    /** Refuses a state that belongs to another destination, without binding a new one. */
    async confirmedState(): Promise<State> {
      const opened = await state();
      await confirmDestination(opened, api());
      return opened;
    },

    /** How the quota of the state's destination is used now. Throws what the store throws. */
    async quotaUsage(owner: Pick<ApiSettings, 'baseUrl' | 'organizationId'>): Promise<QuotaUsage> {
      const name = `${owner.baseUrl} ${owner.organizationId}`;
      if (quota?.name !== name) {
        const failed = (error: unknown) => {
          quota = undefined; // the next one opens it anew
          throw error;
        };
        quota = { name, limiter: openQuota(owner).catch(failed) };
      }
      return (await quota.limiter).usage();
    },

    /** What alerts need. Throws UsageError when a channel cannot be used. */
    async alerting(): Promise<AlertDeps> {
      const { createChannels } = await import('./alerts/channels.js');
      const { alerts: rules, streams } = await configuration();
      const channels = createChannels({ ...settings.alerts, proxy: settings.proxy }, rules);
      const names = streams.map(({ name }) => name);
      return { state: await state(), log, channels, rules, streams: names, timeZone: await timeZone() };
    },

    /** What a verify needs; a state that is new is bound to the destination. */
    async verifying(startedBy: StartedBy): Promise<VerifyDeps> {
      const { createPace } = await import('./sync/request-pace.js');
      const { DEFAULT_VERIFY_SHARE } = await import('./streams/config-schema.js');
      const { streams, verify } = await configuration();
      const { state: opened } = await bound();
      const { requestsPerSecond } = settings;
      const sides = { mirror: await mirror(), destination: await destination(), state: opened };
      const pace = createPace({ requestsPerSecond, share: verify?.share ?? DEFAULT_VERIFY_SHARE });
      return { ...sides, streams: new Map(streams.map((one) => [one.name, one])), startedBy, pace, log };
    },

    /** What a reconcile needs; a state that is new is bound to the destination. */
    async reconciling(startedBy: StartedBy): Promise<ReconcileDeps> {
      const { NO_RESERVATIONS } = await import('./streams/bookings.js');
      const { reservations = NO_RESERVATIONS } = await configuration();
      const { state: opened } = await bound();
      const sides = { mirror: await mirror(), destination: await destination(), state: opened };
      return { ...sides, reservations, startedBy, log };
    },
  };
}

/** A reconcile reads the tables of its own lookups. */
function usesLookupTables({ streams }: Configuration): boolean {
  return streams.some(({ lookups }) => lookups.tables.size > 0);
}

function required<T>(value: T | undefined, setting: string): T {
  if (value === undefined) throw new UsageError(`${setting} is not set`);
  return value;
}
