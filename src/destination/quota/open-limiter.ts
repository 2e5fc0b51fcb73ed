// Opens the limiter with its store: in Redis if the settings name a Redis, otherwise in the state database.
import type { Logger } from '../../process/logger.js';
import { currentText, type SettingText } from '../../config/setting-text.js';
import { createLimiter } from './limiter.js';
import type { StoreOptions } from './quota-rules.js';

interface LimiterPlace extends StoreOptions {
  /** Address of a Redis server that was already checked, if there is one. */
  redisUrl: SettingText | undefined;
  /** Address of the state database, already migrated. */
  stateUrl: SettingText;
  log: Logger;
}

/** Opens the limiter and the connection of its store. Callers close the limiter first, then call `disconnect`. */
export async function openLimiter({ leaseMs, ...place }: LimiterPlace & { leaseMs?: number | undefined }) {
  const { store, ...opened } = await openStore(place);
  return { limiter: createLimiter({ store, leaseMs }), ...opened };
}

async function openStore({ redisUrl, stateUrl, key, rate, log }: LimiterPlace) {
  if (redisUrl !== undefined) {
    const [{ openRedis }, { parseRedisAddress }, { createRedisStore }] = await Promise.all([
      import('../../connections/redis-connection.js'),
      import('../../connections/addresses.js'),
      import('./redis-store.js'),
    ]);
    const onError = (error: Error) => log.warn({ reason: error.message }, 'quota store failed');
    const redis = openRedis(redisUrl, 'quota', {
      maxRetriesPerRequest: 1, // the limiter itself retries, for a limited time
      leavesOldPrimary: true,
      onPostponed: onError,
    });
    redis.on('error', onError);
    const store = createRedisStore({ redis, key, rate });
    const { database, nodes } = parseRedisAddress(currentText(redisUrl));
    const address = `Redis at ${nodes.map(({ host, port }) => `${host}:${port}`).join(',')}/${database}`;
    const findPlace = async () => ({ id: `${await store.server()}/${database}`, address });
    return { store, findPlace, disconnect: async () => redis.disconnect() };
  }
  const [{ connectPostgres }, { createPostgresStore }] = await Promise.all([
    import('../../connections/postgres-connection.js'),
    import('./postgres-store.js'),
  ]);
  const sql = connectPostgres(stateUrl, 'quota', { connect_timeout: 5 });
  const store = createPostgresStore({ sql, key, rate });
  const findPlace = async () => ({ id: 'state', address: 'the state database' });
  return { store, findPlace, disconnect: () => sql.end({ timeout: 1 }) };
}
