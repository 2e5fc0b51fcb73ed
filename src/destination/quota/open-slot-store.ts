// The quota's store where the settings put it: on Redis if there is one, else in the state database.
import type { Logger } from '../../logger.js';
import type { SlotStore } from './limiter.js';

export interface SlotStorePlace {
  redisUrl: string | undefined;
  /** The migrated state database. */
  stateUrl: string;
  /** Whose quota: service address and organization. */
  key: string;
  /** Requests per second. */
  rate: number;
  log: Logger;
}

/** Opens the store and its connection; the caller closes it. */
export async function openSlotStore({ redisUrl, stateUrl, key, rate, log }: SlotStorePlace): Promise<{
  store: SlotStore;
  close(): Promise<void>;
}> {
  if (redisUrl !== undefined) {
    const [{ Redis }, { createRedisStore }] = await Promise.all([
      import('ioredis'),
      import('./redis-store.js'),
    ]);
    const redis = new Redis(redisUrl, { maxRetriesPerRequest: 1, enableReadyCheck: true });
    redis.on('error', (error: Error) => log.warn({ reason: error.message }, 'quota store failed'));
    return { store: createRedisStore({ redis, key, rate }), close: async () => redis.disconnect() };
  }
  const [{ default: postgres }, { createPostgresStore }] = await Promise.all([
    import('postgres'),
    import('./postgres-store.js'),
  ]);
  const sql = postgres(stateUrl, {
    max: 2,
    connect_timeout: 5,
    onnotice: () => undefined,
    connection: { application_name: 'slotsync quota' },
  });
  return { store: createPostgresStore({ sql, key, rate }), close: () => sql.end({ timeout: 1 }) };
}
