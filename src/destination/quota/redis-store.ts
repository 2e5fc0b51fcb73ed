// Slot store in Redis. One key and one script make every step atomic, and work with Redis Cluster. The algorithm is
// that of PostgreSQL; limiter.ts explains it.
import { createHash } from 'node:crypto';
import type { RedisClient } from '../../connections/redis-connection.js';
import { parseServer, parseTaken, parseUsage } from './store-answers.js';
import type { SlotStore } from './limiter.js';
import { SCRIPT } from './redis-script.js';
import { quotaRules, type StoreOptions } from './quota-rules.js';

const SCRIPT_SHA = createHash('sha1').update(SCRIPT).digest('hex');

/** Creates the store. `redis` should fail rather than queue commands while it is offline. */
export function createRedisStore({
  redis,
  key,
  rate,
  rules: changes,
}: StoreOptions & { redis: RedisClient }) {
  const rules = () => JSON.stringify(quotaRules(rate, changes));
  const name = `slotsync:quota:${key}`;

  async function run(step: string, ...args: (string | number)[]): Promise<unknown> {
    try {
      return await redis.evalsha(SCRIPT_SHA, 1, name, step, rules(), ...args);
    } catch (error) {
      if (!(error instanceof Error && error.message.startsWith('NOSCRIPT'))) throw error;
      return redis.eval(SCRIPT, 1, name, step, rules(), ...args);
    }
  }

  return {
    take: async ({ id, lane, wanted }, leaseMs) => parseTaken(await run('take', id, lane, leaseMs, wanted)),
    withdraw: async (waiterId) => void (await run('withdraw', waiterId)),
    release: async (token) => void (await run('release', token)),
    throttled: async (retryAfterMs) => void (await run('throttled', retryAfterMs ?? '')),
    usage: async () => parseUsage(await run('usage')),
    /** Returns the run id of the Redis server, which is unique and changes with a restart. */
    server: async () => parseServer(await run('usage')),
  } satisfies SlotStore & { server: () => Promise<string> };
}
