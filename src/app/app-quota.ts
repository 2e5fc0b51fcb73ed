// Opens the organization's quota for a command, in the one place that all processes share.
import type { ApiSettings, Settings } from '../config/settings.js';
import type { Limiter, QuotaUsage } from '../destination/quota/limiter.js';
import { once, remembered } from '../process/lifecycle.js';
import type { Logger } from '../process/logger.js';
import { bindDestination, claimQuotaPlace } from '../state/destination-binding.js';
import { readPool, type Pool } from '../state/processes.js';
import { requireWriter } from '../state/state-role.js';
import { required, type AppState } from './app-state.js';

interface AppQuotaOptions extends Pick<AppState, 'state' | 'stateUrl' | 'api'> {
  settings: Settings;
  log: Logger;
  /** A limiter that is already open. It replaces the limiter that the settings name. */
  given: Limiter | undefined;
  own: <T>(part: T, close: () => Promise<unknown>) => T;
  service: () => Promise<{ requestTimeoutMs: number; lateWriteSeconds: number }>;
}

type QuotaOwner = Pick<ApiSettings, 'baseUrl' | 'organizationId'>;

export function createAppQuota({ settings, log, given, own, service, ...opening }: AppQuotaOptions) {
  const { state, stateUrl, api } = opening;

  /** Throws if the Redis of the settings cannot be used. */
  const requireRedis = remembered(async () => {
    const redis = await import('../connections/redis-connection.js');
    await redis.requireRedis(required(settings.redisUrl, 'REDIS_URL'));
  });

  /** Opens the quota, which belongs to one organization at one service. */
  async function openQuota(owner: QuotaOwner, leaseMs?: number) {
    const { openLimiter } = await import('../destination/quota/open-limiter.js');
    const { redisUrl } = settings;
    // Requires a migrated state, whose migrations create the store. Otherwise the limiter would retry for half a
    // minute.
    if (redisUrl === undefined) {
      const { db } = await state();
      if (leaseMs !== undefined) await requireWriter({ db });
    } else await requireRedis(Infinity);
    const rate = () => Math.min(settings.requestsPerSecond, least?.requestsPerSecond ?? Infinity);
    const key = nameOf(owner);
    const opened = await openLimiter({ redisUrl, stateUrl: stateUrl(), key, rate, leaseMs, log });
    own(opened, opened.disconnect);
    own(opened.limiter, opened.limiter.close);
    return opened;
  }

  /** Another process with a smaller rate, which then also limits this process. */
  let least: Pool['least'] = null;
  function seePool({ least: other }: Pool): void {
    const isLess = other !== null && other.requestsPerSecond < settings.requestsPerSecond;
    if (isLess && other.requestsPerSecond !== least?.requestsPerSecond)
      log.warn(
        { ...other, configured: settings.requestsPerSecond },
        'another process has a smaller API_REQUESTS_PER_SECOND, which also limits this process',
      );
    least = isLess ? other : null;
  }

  const ownQuota = once(async () => {
    const { requestTimeoutMs, lateWriteSeconds } = await service();
    return openQuota(api(), requestTimeoutMs + lateWriteSeconds * 1000 + 1000);
  });
  const quotaPlace = async () => (await ownQuota()).findPlace();
  const limiter = once(async () => {
    if (given) return given;
    const opened = await ownQuota();
    // Without a migrated state, no other process can be working.
    const known = await state().catch(() => undefined);
    if (known) {
      seePool(await readPool(known.db));
      await claimQuotaPlace(known, await opened.findPlace());
    }
    return opened.limiter;
  });

  /** Quota of the state's destination, for commands that only read its usage. */
  let looking: { name: string; limiter: Promise<Limiter> } | undefined;

  return {
    requireRedis,
    seePool,
    quotaPlace,
    limiter,

    /** Confirms that no process has bound the state or its quota elsewhere. Call it once others see this process. */
    async confirmBound(): Promise<void> {
      const opened = await state();
      await bindDestination(opened, api());
      if (!given) await claimQuotaPlace(opened, await quotaPlace());
    },

    /** Returns the present usage of the quota of the state's destination. Throws the errors of its store. */
    async quotaUsage(owner: QuotaOwner): Promise<QuotaUsage> {
      const name = nameOf(owner);
      if (looking?.name !== name) {
        const failed = (error: unknown) => {
          looking = undefined; // the next call opens the quota again
          throw error;
        };
        const opened = openQuota(owner).then((quota) => quota.limiter);
        looking = { name, limiter: opened.catch(failed) };
      }
      return (await looking.limiter).usage();
    },
  };
}

const nameOf = ({ baseUrl, organizationId }: QuotaOwner) => `${baseUrl} ${organizationId}`;
