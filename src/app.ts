// Assembly: what a command needs is opened when it first asks for it, and closed in the opposite order, also when the
// command fails. Modules are loaded at the same moment, so that a command pays only for what it uses.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Configuration } from './config-file.js';
import type { QuotaUsage } from './destination/quota/limiter.js';
import { UsageError } from './errors.js';
import { createLogger } from './logger.js';
import { noMeter } from './meter.js';
import { once } from './once.js';
import type { QueueStore } from './queue/queue-address.js';
import { loadSettings, readEnvironment, type ApiSettings, type Need } from './settings.js';
import { openState, type State } from './state/database.js';
import { bindDestination, confirmDestination } from './state/destination-binding.js';
import { requireMigrated } from './state/migrate.js';
import type { ReconcileDeps } from './sync/reconcile/reconcile.js';

export interface AppOptions {
  needs: readonly Need[];
  configPath?: string | undefined;
  envFile?: string | undefined;
  /** When LOG_LEVEL is not set. */
  logLevel?: string;
  /** Collects metrics when HTTP_PORT is set. */
  isObserved?: boolean;
}

/** The quota is one organization's at one service. */
type QuotaOwner = Pick<ApiSettings, 'baseUrl' | 'organizationId'>;

export type AppBase = ReturnType<typeof createBase>;
export type App = Awaited<ReturnType<typeof createApp>>;

/** How long one thing may take to close. */
const CLOSE_WITHIN_MS = 3000;

/** Throws UsageError when a needed setting is missing; nothing is opened yet. */
export async function createApp({ needs, envFile, logLevel = 'warn', ...options }: AppOptions) {
  const settings = loadSettings(needs, readEnvironment(envFile));
  const log = await createLogger(settings.logLevel ?? logLevel, process.stderr.isTTY);
  const base = createBase(settings, log, options);
  const queue = once(async () => (await import('./app-queue.js')).openQueue(base));
  return { ...base, queue };
}

function createBase(
  settings: ReturnType<typeof loadSettings>,
  log: Awaited<ReturnType<typeof createLogger>>,
  { configPath = settings.configPath, isObserved = false }: Pick<AppOptions, 'configPath' | 'isObserved'>,
) {
  const closers: (() => Promise<unknown>)[] = [];

  const own = <T>(thing: T, close: () => Promise<unknown>): T => {
    closers.push(close);
    return thing;
  };
  /** Opens once, and closes with the app. */
  const owned = <T extends { close(): Promise<unknown> }>(open: () => Promise<T>): (() => Promise<T>) =>
    once(async () => {
      const opened = await open();
      return own(opened, () => opened.close());
    });

  const stateUrl = () => required(settings.stateUrl, 'STATE_DATABASE_URL');
  const api = () => required(settings.api, 'API_BASE_URL');

  const configuration = once(async (): Promise<Configuration> =>
    (await import('./config-file.js')).loadConfiguration(configPath),
  );

  const connection = owned(async () => openState({ url: stateUrl() }));
  const state = once(async (): Promise<State> => {
    const opened = await connection();
    await requireMigrated(opened);
    return opened;
  });

  const mirror = owned(async () => {
    const { createMirror } = await import('./mirror/mirror.js');
    return createMirror({ url: required(settings.mirrorUrl, 'MIRROR_DATABASE_URL') });
  });

  const triggers = owned(async () => {
    const { openTriggers } = await import('./mirror/install-triggers.js');
    const { CHANGES_CHANNEL } = await import('./state/inbox/changes.js');
    return openTriggers({ url: stateUrl(), channel: CHANGES_CHANNEL });
  });

  async function openLimiter({ baseUrl, organizationId }: QuotaOwner, leaseMs?: number) {
    const { createLimiter } = await import('./destination/quota/limiter.js');
    const { openSlotStore } = await import('./destination/quota/open-slot-store.js');
    if (settings.redisUrl === undefined) await state(); // the store's functions are there only after a migration
    const { redisUrl, requestsPerSecond: rate } = settings;
    const key = `${baseUrl} ${organizationId}`;
    const slots = await openSlotStore({ redisUrl, stateUrl: stateUrl(), key, rate, log });
    own(slots, slots.close);
    const limiter = createLimiter({ store: slots.store, ...(leaseMs === undefined ? {} : { leaseMs }) });
    return own(limiter, limiter.close);
  }

  const limiter = once(async () => {
    const { service } = await configuration();
    return openLimiter(api(), service.requestTimeoutMs + 1000);
  });

  const stateReadings = owned(async () => {
    const { createStateReadings } = await import('./state/metrics-readings.js');
    const { READING } = await import('./http/serve-worker.js');
    return createStateReadings({ url: stateUrl(), timeoutMs: READING.withinMs });
  });

  const metrics = once(async () => {
    if (!isObserved || settings.httpPort === 0) return undefined;
    const { createWorkerMetrics } = await import('./http/serve-worker.js');
    const streams = async () => (await configuration()).streams.map(({ name }) => name);
    return createWorkerMetrics({ limiter, readings: stateReadings, streams });
  });
  const meter = async () => (await metrics())?.meter ?? noMeter;

  const destination = owned(async () => {
    const { createDestination } = await import('./destination/destination.js');
    const { service } = await configuration();
    return createDestination({ api: api(), limiter: await limiter(), log, meter: await meter(), ...service });
  });

  /** The state bound to the destination of the settings. */
  const bound = once(async (): Promise<{ state: State; stateId: string }> => {
    const opened = await state();
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });

  return {
    settings,
    log,
    own,
    stateUrl,
    configuration,
    state,
    bound,
    mirror,
    triggers,
    limiter,
    destination,
    stateReadings,
    metrics,
    meter,

    queueStore: (): QueueStore =>
      settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl },

    /** Refuses a state that belongs to another destination, without binding a new one. */
    async confirmedState(): Promise<State> {
      const opened = await state();
      await confirmDestination(opened, api());
      return opened;
    },

    /** How the quota of the state's destination is used now. Throws what the store throws. */
    async quotaUsage(owner: QuotaOwner): Promise<QuotaUsage> {
      return (await openLimiter(owner)).usage();
    },

    /** What a reconcile needs; a state that is new is bound to the destination. */
    async reconciling(): Promise<ReconcileDeps> {
      const { NO_RESERVATIONS } = await import('./streams/bookings.js');
      const { reservations = NO_RESERVATIONS } = await configuration();
      const { state: opened } = await bound();
      return { mirror: await mirror(), destination: await destination(), state: opened, reservations, log };
    },

    /** Closes what was opened, last in, first out; one that fails or hangs does not keep the others open. */
    async close(): Promise<void> {
      for (let close = closers.pop(); close; close = closers.pop()) {
        const closing = close().catch((error: unknown) =>
          log.debug({ reason: String(error) }, 'closing failed'),
        );
        const closed = new AbortController();
        const tooLate = sleep(CLOSE_WITHIN_MS, undefined, { signal: closed.signal }).catch(() => undefined);
        await Promise.race([closing, tooLate]);
        closed.abort();
      }
    },
  };
}

function required<T>(value: T | undefined, setting: string): T {
  if (value === undefined) throw new UsageError(`${setting} is not set`);
  return value;
}
