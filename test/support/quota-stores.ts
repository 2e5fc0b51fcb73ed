// The stores of the quota, each with connections of its own. Both must behave the same.
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { afterAll } from 'vitest';
import type { SlotStore } from '../../src/destination/quota/limiter.js';
import { createPostgresStore } from '../../src/destination/quota/postgres-store.js';
import type { QuotaRules, StoreOptions } from '../../src/destination/quota/quota-rules.js';
import { createRedisStore } from '../../src/destination/quota/redis-store.js';
import { createDatabase, redisUrl, type TestDatabase } from './services.js';

export interface QuotaClient {
  store(key: string, rate: StoreOptions['rate'], rules?: Partial<QuotaRules>): SlotStore;
  /** The store loses what it knows of the key. */
  forget(key: string): Promise<void>;
  /** The store's clock jumps back, seen from the key. */
  turnBack(key: string, byMs: number): Promise<void>;
}

/** To be called where tests are declared. `connect` opens a client; `closers` are called after the tests, the last one first. */
export function keepQuotaStores() {
  const closers: (() => Promise<unknown>)[] = [];
  let database: Promise<TestDatabase> | undefined;
  afterAll(async () => {
    for (const close of closers.reverse()) await close();
    await (await database)?.drop();
  });

  async function connectPostgres(): Promise<QuotaClient> {
    const { url } = await (database ??= createDatabase());
    const sql = postgres(url, { max: 2 });
    closers.push(() => sql.end());
    return {
      store: (key, rate, rules = {}) => createPostgresStore({ sql, key, rate, rules }),
      forget: async (key) => void (await sql`DELETE FROM slotsync.quota_limiters WHERE key = ${key}`),
      async turnBack(key, byMs) {
        await sql`
          UPDATE slotsync.quota_limiters SET seen_at = seen_at + ${byMs}, next_at = next_at + ${byMs},
            slot_free_at = ARRAY(SELECT f + ${byMs} FROM unnest(slot_free_at) f) WHERE key = ${key}`;
      },
    };
  }

  async function connectRedis(): Promise<QuotaClient> {
    const redis = new Redis(redisUrl() ?? '');
    closers.push(() => redis.quit());
    return {
      store: (key, rate, rules = {}) => createRedisStore({ redis, key, rate, rules }),
      forget: async (key) => void (await redis.del(`slotsync:quota:${key}`)),
      async turnBack(key, byMs) {
        const state = JSON.parse((await redis.get(`slotsync:quota:${key}`)) ?? '');
        state.seenAt += byMs;
        state.nextAt += byMs;
        for (const slot of state.slots) slot.freeAt += byMs;
        await redis.set(`slotsync:quota:${key}`, JSON.stringify(state));
      },
    };
  }

  const stores = [
    { name: 'PostgreSQL', there: true, connect: connectPostgres },
    { name: 'Redis', there: redisUrl() !== undefined, connect: connectRedis },
  ];
  return { closers, stores };
}
