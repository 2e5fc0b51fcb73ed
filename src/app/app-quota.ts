// Opens the organization's quota for a command, at one place with all other processes.
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
  /** A limiter that is open already. */
  given: Limiter | undefined;
  own: <T>(part: T, close: () => Promise<unknown>) => T;
  service: () => Promise<{ requestTimeoutMs: number; lateWriteSeconds: number }>;
}

type QuotaOwner = Pick<ApiSettings, 'baseUrl' | 'organizationId'>;

export function createAppQuota({
  settings,
  log,
  given,
  own,
  service,
  state,
  stateUrl,
  api,
}: AppQuotaOptions) {
  /** Throws what is wrong with the Redis of the settings. */
  const requireRedis = remembered(async () => {
    const redis = await import('../connections/redis-connection.js');
    await redis.requireRedis(required(settings.redisUrl, 'REDIS_URL'));
  });

  /** The quota is one organization's at one service. */
  async function openQuota(owner: QuotaOwner, leaseMs?: number) {
    const { openLimiter } = await import('../destination/quota/open-limiter.js');
    const { redisUrl } = settings;
    // Its migrations create the store, which would be asked for half a minute before it is given up.
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
    if (given) return given;
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
  let looking: { name: string; limiter: Promise<Limiter> } | undefined;

  return {
    requireRedis,
    seePool,
    quotaPlace,
    limiter,

    /** Once others see this process: no process has given the state, or its quota, to another place in between. */
    async confirmBound(): Promise<void> {
      const opened = await state();
      await bindDestination(opened, api());
      if (!given) await claimQuotaPlace(opened, await quotaPlace());
    },

    /** How the quota of the state's destination is used now. Throws what the store throws. */
    async quotaUsage(owner: QuotaOwner): Promise<QuotaUsage> {
      const name = nameOf(owner);
      if (looking?.name !== name) {
        const failed = (error: unknown) => {
          looking = undefined; // the next one opens it anew
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
