// Assembly of everything but the queue: what a command needs is opened when it first asks for it, and closed in the opposite
// order, also when the command fails. Modules are loaded at the same moment, so that a command pays only for what it uses.
import type { AlertDeps } from '../alerts/send-alerts.js';
import type { Configuration, LoadedConfiguration } from '../config/config-file.js';
import type { Limiter, QuotaUsage } from '../destination/quota/limiter.js';
import { codeOf, UsageError } from '../errors/errors.js';
import { createReleasers, once, remembered } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { noMeter, type Meter } from '../process/meter.js';
import type { QueueStore } from '../queue/jobs.js';
import { createRequestCounter } from '../process/request-counter.js';
import type { ApiSettings, Settings } from '../config/settings.js';
import { openState, type State } from '../state/database.js';
import { noteDatabase, readStateFacts } from '../state/databases.js';
import { requireReason, type Actor } from '../state/actions.js';
import { bindDestination, claimQuotaPlace, confirmDestination } from '../state/destination-binding.js';
import { requireMigrated } from '../state/migrate.js';
import { readPool, type Pool } from '../state/processes.js';
import type { StartedBy } from '../state/schema.js';
import { requireWriter } from '../state/state-role.js';
import type { Mirror } from '../mirror/mirror.js';
import type { ReconcileDeps } from '../sync/reconcile/reconcile.js';
import type { SyncDeps } from '../sync/run/sync-deps.js';
import type { VerifyDeps } from '../sync/verify/verify.js';

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
export function createAppBase(
  settings: Settings,
  log: Logger,
  {
    command,
    configPath = settings.configPath,
    isObserved = false,
    isUnconfigured = false,
    parts = {},
    onTimeZone = () => undefined,
  }: BaseOptions,
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

  /** Requests that were counted are noted before it closes, whatever was opened first. */
  const connection = once(async () => {
    const opened = openState({ url: stateUrl() });
    return own(opened, async () => {
      await requestNotes?.close();
      await opened.close();
    });
  });
  let requestNotes: { close(): Promise<void> } | undefined;
  const state = once(async (): Promise<State> => {
    if (parts.state) return (openedState = parts.state);
    const opened = await connection();
    await requireMigrated(opened).catch(explainRights);
    return (openedState = opened);
  });
  let openedState: State | undefined;

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

  /** The state, with the destination of the settings noted in it, or confirmed; and the state's id. */
  const bound = once(async () => {
    const opened = await state();
    return { state: opened, stateId: await bindDestination(opened, api()) };
  });
  /** The same, looked at whether it is the database that it was. */
  const recognized = once(async () => {
    const { db } = await state();
    const [opened] = await Promise.all([bound(), noteDatabase(db, 'state', readStateFacts)]);
    return opened;
  });
  /** Once others see this process: no process has given the state, or its quota, to another place in between. */
  const confirmBound = async () => {
    const opened = await state();
    await bindDestination(opened, api());
    if (!parts.limiter) await claimQuotaPlace(opened, await quotaPlace());
  };

  /** Throws the error: one of a missing right with what the role may do. */
  async function explainRights(error: unknown): Promise<never> {
    if (codeOf(error) === 'state_rights') await requireWriter(parts.state ?? (await connection()));
    throw error;
  }

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

  /** Throws what is wrong with the Redis of the settings. */
  const requireRedis = remembered(async () => {
    const redis = await import('../connections/redis-connection.js');
    await redis.requireRedis(required(settings.redisUrl, 'REDIS_URL'));
  });

  /** The quota is one organization's at one service. */
  async function openQuota(owner: Pick<ApiSettings, 'baseUrl' | 'organizationId'>, leaseMs?: number) {
    const { openLimiter } = await import('../destination/quota/open-limiter.js');
    const { redisUrl } = settings;
    // Its migrations create the store, which would be asked for half a minute before it is given up.
    if (redisUrl === undefined) {
      const { db } = await state();
      if (leaseMs !== undefined) await requireWriter({ db });
    } else await requireRedis(Infinity);
    const key = `${owner.baseUrl} ${owner.organizationId}`;
    const rate = () => Math.min(settings.requestsPerSecond, least?.requestsPerSecond ?? Infinity);
    const opened = await openLimiter({ redisUrl, stateUrl: stateUrl(), key, rate, leaseMs, log });
    own(opened, opened.disconnect);
    own(opened.limiter, opened.limiter.close);
    return opened;
  }

  /** Another process with a smaller rate, which counts for this one too. */
  let least: Pool['least'] = null;
  function seePool({ least: other }: Pool): void {
    const isLess = other !== null && other.requestsPerSecond < settings.requestsPerSecond;
    if (isLess && other.requestsPerSecond !== least?.requestsPerSecond)
      log.warn(
        { ...other, configured: settings.requestsPerSecond },
        'another process has a smaller API_REQUESTS_PER_SECOND, which counts',
      );
    least = isLess ? other : null;
  }

  const ownQuota = once(async () => {
    const { requestTimeoutMs, lateWriteSeconds } = await service();
    return openQuota(api(), requestTimeoutMs + lateWriteSeconds * 1000 + 1000);
  });
  const quotaPlace = async () => (await ownQuota()).findPlace();
  const limiter = once(async () => {
    if (parts.limiter) return parts.limiter;
    const opened = await ownQuota();
    // Without a migrated state no process can be at work.
    const known = await state().catch(() => undefined);
    if (known) {
      seePool(await readPool(known.db));
      await claimQuotaPlace(known, await opened.findPlace());
    }
    return opened.limiter;
  });

  /** The quota of the state's destination, for commands that only look. */
  let quota: { name: string; limiter: Promise<Limiter> } | undefined;

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
    requestNotes = noteRequestsPeriodically({ counter, state: () => openedState, log });
    own(requestNotes, requestNotes.close);
    const deps = { limiter: await limiter(), log, meter: await meter() };
    return createDestination({ api: api(), ...deps, ...(await service()) });
  });

  /** Every stream of the configuration by its name. */
  const streams = async (): Promise<SyncDeps['streams']> =>
    new Map((await configuration()).streams.map((stream) => [stream.name, stream]));

  /** The use cases' dependencies, over a state that is bound to the destination or confirmed to be. */
  const syncing = async (opened: State) => ({
    mirror: await mirror(),
    destination: await destination(),
    state: opened,
    streams: await streams(),
    meter: await meter(),
    log,
  });

  /** Throws UsageError when a channel cannot be used. */
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
    alertChannels,
    command,
    settings,
    log,
    own,
    stateUrl,
    configuration,
    streams,
    syncing,
    state,
    timeZone,
    bound,
    recognized,
    confirmBound,
    quotaPlace,
    seePool,
    mirror,
    openMirror,
    triggers,
    limiter,
    http,
    meter,
    destination,
    close: releaseAll,
    explainRights,

    /** Who runs the command, for what it notes. Throws UsageError when the reason is too long. */
    async actor(reason?: string): Promise<Actor> {
      const { nameSystemUser } = await import('../process/system-user.js');
      return { by: nameSystemUser(), via: 'command', reason: requireReason(reason) };
    },

    queueStore: (): QueueStore =>
      settings.redisUrl === undefined ? { postgresUrl: stateUrl() } : { redisUrl: settings.redisUrl },

    /**
     * Throws SlotsyncError when the queue's store cannot be reached, and UsageError when it cannot be used: BullMQ would wait for
     * it without limit.
     */
    async requireQueueStore(): Promise<void> {
      if (settings.redisUrl !== undefined) return requireRedis(Infinity);
      const { requireQueueTables } = await import('../queue/require-queue-tables.js');
      await requireQueueTables(await state());
    },

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
        const opened = openQuota(owner).then(({ limiter: looking }) => looking);
        quota = { name, limiter: opened.catch(failed) };
      }
      return (await quota.limiter).usage();
    },

    /** The dependencies of alerts. Throws UsageError when a channel cannot be used. */
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

    /** The dependencies of a verify; a new state is bound by it. */
    async verifying(startedBy: StartedBy): Promise<VerifyDeps> {
      const { createPace } = await import('../sync/run/request-pace.js');
      const { DEFAULT_VERIFY_SHARE } = await import('../streams/config-schema.js');
      const { share = DEFAULT_VERIFY_SHARE } = (await configuration()).verify ?? {};
      const pace = createPace({ requestsPerSecond: settings.requestsPerSecond, share });
      const { patient } = await destination();
      return { ...(await syncing((await recognized()).state)), destination: patient, startedBy, pace };
    },

    /** The dependencies of a reconcile; a new state is bound by it. */
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

/** A reconcile reads the tables of its own lookups. */
function usesLookupTables({ streams }: Configuration): boolean {
  return streams.some(({ lookups }) => lookups.tables.size > 0);
}

function required<T>(value: T | undefined, setting: string): T {
  if (value === undefined) throw new UsageError(`${setting} is not set`);
  return value;
}
