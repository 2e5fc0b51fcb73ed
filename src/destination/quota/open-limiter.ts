// The limiter with its store where the settings put it: on Redis if there is one, else in the state database.
import type { Logger } from '../../process/logger.js';
import type { SettingText } from '../../config/setting-text.js';
import { createLimiter } from './limiter.js';
import type { StoreOptions } from './quota-rules.js';

interface QuotaPlace extends StoreOptions {
  /** Its server was seen to be usable. */
  redisUrl: SettingText | undefined;
  /** The migrated state database. */
  stateUrl: SettingText;
  log: Logger;
}

/** Opens the limiter and the connection of its store. To be closed in this order: `limiter.close`, `disconnect`. */
export async function openLimiter({ leaseMs, ...place }: QuotaPlace & { leaseMs?: number | undefined }) {
  const { store, disconnect } = await openStore(place);
  return { limiter: createLimiter({ store, leaseMs }), disconnect };
}

async function openStore({ redisUrl, stateUrl, key, rate, log }: QuotaPlace) {
  if (redisUrl !== undefined) {
    const [{ openRedis }, { createRedisStore }] = await Promise.all([
      import('../../connections/redis-connection.js'),
      import('./redis-store.js'),
    ]);
    const onError = (error: Error) => log.warn({ reason: error.message }, 'quota store failed');
    const redis = openRedis(redisUrl, 'quota', {
      maxRetriesPerRequest: 1, // the limiter asks again itself, for a limited time
      leavesOldPrimary: true,
      onPostponed: onError,
    });
    redis.on('error', onError);
    return { store: createRedisStore({ redis, key, rate }), disconnect: async () => redis.disconnect() };
  }
  const [{ connectPostgres }, { createPostgresStore }] = await Promise.all([
    import('../../connections/postgres-connection.js'),
    import('./postgres-store.js'),
  ]);
  const sql = connectPostgres(stateUrl, 'quota', { connect_timeout: 5 });
  return { store: createPostgresStore({ sql, key, rate }), disconnect: () => sql.end({ timeout: 1 }) };
}
