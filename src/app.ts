// Assembly: what a command needs is opened when it first asks for it, and closed in the opposite order, also
// when it fails halfway.
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { loadConfiguration, type Configuration } from './config-file.js';
import { createDestination, type Destination } from './destination/destination.js';
import {
  createLimiter,
  LANES,
  type Limiter,
  type QuotaUsage,
  type SlotStore,
} from './destination/quota/limiter.js';
import { createPostgresStore } from './destination/quota/postgres-store.js';
import { createRedisStore } from './destination/quota/redis-store.js';
import { UsageError } from './errors.js';
import { createHealth } from './http/health.js';
import { startHttpServer } from './http/http-server.js';
import { createReleasers, type Stoppable } from './lifecycle.js';
import { createLogger } from './logger.js';
import { noMeter } from './meter.js';
import { createMetrics } from './http/metrics.js';
import { cacheReading } from './http/cached-reading.js';
import { openState, type State } from './state/database.js';
import { bindDestination, confirmDestination } from './state/destination-binding.js';
import { CHANGES_CHANNEL } from './state/inbox/add-changes.js';
import { createStateReadings } from './state/metrics-readings.js';
import { requireMigrated } from './state/migrate.js';
import { createMirror, type Mirror } from './mirror/mirror.js';
import { openTriggers, type Triggers } from './mirror/install-triggers.js';
import { openBullmq, requireQueueStore, type QueueStore } from './queue/bullmq.js';
import { createInboxWorker } from './queue/inbox-worker.js';
import { createProducer, type Producer } from './queue/producer.js';
import { createNightlyScheduler } from './queue/nightly-scheduler.js';
import { createWorkers, type Workers } from './queue/workers.js';
import { loadSettings, type ApiSettings, type Need } from './settings.js';
import { NO_RESERVATIONS } from './streams/bookings.js';
import type { Stream } from './streams/stream.js';
import { reconcilePeriodically } from './sync/reconcile/reconcile-periodically.js';
import type { ReconcileDeps } from './sync/reconcile/reconcile.js';

export interface AppOptions {
  needs: readonly Need[];
  configPath?: string | undefined;
  /** When LOG_LEVEL is not set. */
  logLevel?: string;
  /** Counts what `serveHttp` shows, when HTTP_PORT asks for it. */
  isObserved?: boolean;
  env?: NodeJS.ProcessEnv;
}

/** The quota is one organization's at one service. */
type QuotaOwner = Pick<ApiSettings, 'baseUrl' | 'organizationId'>;

export type App = ReturnType<typeof createApp>;

/** What health and metrics read: at most once in a second, and for no longer than this. */
const READING = { keepMs: 1000, withinMs: 1500 };
/** How long one thing may take to close. */
const RELEASE_WITHIN_MS = 3000;

/** Throws UsageError when a needed setting is missing; nothing is opened yet. */
export function createApp({ needs, configPath, logLevel = 'warn', isObserved = false, env }: AppOptions) {
  const settings = loadSettings(needs, env);
  const log = createLogger(settings.logLevel ?? logLevel, process.stderr.isTTY);
  const releasers = createReleasers({ log, withinMs: RELEASE_WITHIN_MS });
  const own = releasers.add;
  /** Also after a failed start: a command that got further has stopped it already. */
  const ownStoppable = <T extends Stoppable>(part: T): T =>
    own(part, () => {
      part.abort();
      return part.stop();
    });

  const stateUrl = () => required(settings.stateUrl, 'STATE_DATABASE_URL');
  const api = (): ApiSettings => required(settings.api, 'API_BASE_URL');

  const configuration = once(() => loadConfiguration(configPath ?? settings.configPath));

  const state = once(async (): Promise<State> => {
    const opened = openState({ url: stateUrl() });
    own(opened, opened.close);
    await requireMigrated(opened);
    return opened;
  });

  const mirror = once(async (): Promise<Mirror> => {
    const opened = createMirror({ url: required(settings.mirrorUrl, 'MIRROR_DATABASE_URL') });
    return own(opened, opened.close);
  });

  const triggers = once(async (): Promise<Triggers> => {
    const opened = openTriggers({ url: stateUrl(), channel: CHANGES_CHANNEL });
    return own(opened, opened.close);
  });

  /** Where the slots of a destination's quota are kept: on Redis when there is one, else in the state database. */
  async function slotStore({ baseUrl, organizationId }: QuotaOwner): Promise<SlotStore> {
    const shared = { key: `${baseUrl} ${organizationId}`, rate: settings.requestsPerSecond };
    if (settings.redisUrl !== undefined) {
      const redis = new Redis(settings.redisUrl, { maxRetriesPerRequest: 1, enableReadyCheck: true });
      redis.on('error', (error: Error) => log.warn({ reason: error.message }, 'quota store failed'));
      own(redis, async () => redis.disconnect());
      return createRedisStore({ redis, ...shared });
    }
    await state();
    const sql = postgres(stateUrl(), {
      max: 2,
      connect_timeout: 5,
      onnotice: () => undefined,
      connection: { application_name: 'slotsync quota' },
    });
    own(sql, () => sql.end({ timeout: 1 }));
    return createPostgresStore({ sql, ...shared });
  }

  const limiter = once(async (): Promise<Limiter> => {
    const { service } = await configuration();
    const leaseMs = service.requestTimeoutMs + 1000;
    const opened = createLimiter({ store: await slotStore(api()), leaseMs });
    return own(opened, opened.close);
  });

  const destination = once(async (): Promise<Destination> => {
    const { service } = await configuration();
    const opened = createDestination({ api: api(), limiter: await limiter(), log, meter, ...service });
    return own(opened, opened.close);
  });

  /** The state bound to the destination of the settings. */
  const bound = once(async (): Promise<{ state: State; stateId: string }> => {
    const opened = await state();
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });

  const queueStore = (): QueueStore =>
    settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl };

  const queue = once(async () => {
    const { state: boundState, stateId } = await bound();
    await requireQueueStore(queueStore());
    const bullmq = openBullmq(queueStore(), stateId, log);
    const producer: Producer = createProducer({ bullmq, state: boundState });
    own(producer, producer.close);
    return { bullmq, producer };
  });

  const scheduler = once(async () => {
    const { bullmq, producer } = await queue();
    const streams = streamsByName(await configuration());
    const opened = createNightlyScheduler({ bullmq, producer, log, state: await state(), streams });
    return own(opened, opened.close);
  });

  const stateReadings = once(async () => {
    const opened = createStateReadings({ url: stateUrl(), timeoutMs: READING.withinMs });
    return own(opened, opened.close);
  });

  const metrics =
    isObserved && settings.httpPort > 0
      ? createMetrics({
          lanes: LANES,
          quota: cacheReading(async () => (await limiter()).usage(), READING),
          state: cacheReading(async () => {
            const { streams } = await configuration();
            return (await stateReadings()).read(streams.map(({ name }) => name));
          }, READING),
        })
      : undefined;
  const meter = metrics?.meter ?? noMeter;

  /** What a reconcile needs; a state that is new is bound to the destination. */
  async function reconciling(): Promise<ReconcileDeps> {
    const { reservations = NO_RESERVATIONS } = await configuration();
    const { state: opened } = await bound();
    const sides = { mirror: await mirror(), destination: await destination(), state: opened };
    return { ...sides, reservations, startedBy: 'command', log };
  }

  return {
    settings,
    log,
    stateUrl,
    configuration,
    state,
    mirror,
    triggers,
    limiter,
    destination,
    queueStore,
    scheduler,

    /** Refuses a state that belongs to another destination, without binding a new one. */
    async confirmedState(): Promise<State> {
      const opened = await state();
      await confirmDestination(opened, api());
      return opened;
    },

    /** How the quota of the state's destination is used now. Throws what the store throws. */
    async quotaUsage(owner: QuotaOwner): Promise<QuotaUsage> {
      const opened = createLimiter({ store: await slotStore(owner) });
      own(opened, opened.close);
      return opened.usage();
    },

    reconciling,

    /** Reconciles from time to time until the caller stops it; undefined if no reservations are configured. */
    async reconcilePeriodically(): Promise<Stoppable | undefined> {
      if ((await configuration()).reservations === undefined) return undefined;
      const deps = await reconciling();
      return ownStoppable(
        reconcilePeriodically({ ...deps, startedBy: 'schedule' }, deps.reservations.everyMinutes),
      );
    },

    async producer(): Promise<Producer> {
      return (await queue()).producer;
    },

    /** Workers over every stream of the configuration; the caller starts and stops them. */
    async workers(options: { concurrency?: number; waitForCredentials?: boolean } = {}): Promise<Workers> {
      const { bullmq, producer } = await queue();
      const { startDueRuns } = await scheduler();
      const [opened, source, service] = [await state(), await mirror(), await destination()];
      const workers = createWorkers({
        ...options,
        bullmq,
        producer,
        log,
        meter,
        startDueRuns,
        state: opened,
        mirror: source,
        destination: service,
        probe: async (signal) => {
          await requireMigrated(opened);
          await source.ping();
          await service.probe('objects', { from: 0, to: 0 }, { lane: 'verify', signal });
        },
        streams: streamsByName(await configuration()),
      });
      return ownStoppable(workers);
    },

    /** Incremental sync of every stream of the configuration; the caller starts and stops it. */
    async inboxWorker() {
      const { bullmq, producer } = await queue();
      const opened = await configuration();
      const inbox = createInboxWorker({
        bullmq,
        producer,
        log,
        state: await state(),
        mirror: await mirror(),
        streams: streamsByName(opened),
        polling: opened.polling,
      });
      return ownStoppable(inbox);
    },

    /**
     * Health of these workers and metrics of this process over HTTP, when HTTP_PORT asks for them. Throws UsageError
     * when the port cannot be had.
     */
    async serveHttp(workers: Workers): Promise<void> {
      if (!metrics) return;
      const readings = await stateReadings();
      const { producer } = await queue();
      const health = createHealth({
        phase: workers.phase,
        checks: {
          state: cacheReading(readings.ping, READING),
          queue: cacheReading(producer.depth, READING),
        },
      });
      const server = await startHttpServer({
        port: settings.httpPort,
        log,
        routes: {
          '/healthz': health.liveness,
          '/readyz': health.readiness,
          '/metrics': async () => ({
            status: 200,
            contentType: metrics.contentType,
            body: await metrics.text(),
          }),
        },
      });
      own(server, server.close);
      log.info({ port: server.port }, 'http started');
    },

    close: releasers.releaseAll,
  };
}

export function streamsByName({ streams }: Configuration): ReadonlyMap<string, Stream> {
  return new Map(streams.map((stream) => [stream.name, stream]));
}

/** The streams named on the command line, or all. Throws UsageError for one that is not there. */
export function selectStreams({ streams }: Configuration, names: readonly string[]): readonly Stream[] {
  const known = new Set(streams.map(({ name }) => name));
  const unknown = names.filter((name) => !known.has(name));
  if (unknown.length > 0) {
    throw new UsageError(`no stream ${unknown.map((name) => `'${name}'`).join(', ')} in the configuration`, {
      remedy: `There are: ${[...known].join(', ')}.`,
    });
  }
  return names.length === 0 ? streams : streams.filter(({ name }) => names.includes(name));
}

function required<T>(value: T | undefined, setting: string): T {
  if (value === undefined) throw new UsageError(`${setting} is not set`);
  return value;
}

function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | undefined;
  return () => (opened ??= open());
}
