// The slots in PostgreSQL, for installations without Redis: one row per limiter, and the functions of
// migrations/repeatable/quota.sql. The same algorithm as in Redis; what it must hold is written in limiter.ts.
import type { Sql } from 'postgres';
import { parseTaken, parseUsage } from './store-answers.js';
import type { SlotStore } from './limiter.js';
import { quotaRules, type StoreOptions } from './quota-rules.js';

/** Each step is one statement outside any transaction, so that the row's lock is never held across the network. */
export function createPostgresStore({
  sql,
  key,
  rate,
  rules: changes,
}: StoreOptions & { sql: Sql }): SlotStore {
  const rules = JSON.stringify(quotaRules(rate, changes));

  /** Calls a function of the quota. JSON is passed as text both ways: how a client parses json depends on what else uses it. */
  async function call(
    name: string,
    ...values: readonly (string | number | boolean | null)[]
  ): Promise<unknown> {
    const given = [key, ...values];
    const places = [...given.map((_, at) => `$${at + 1}`), `$${given.length + 1}::text::jsonb`];
    const statement = `SELECT slotsync.${name}(${places.join(', ')})::text AS answer`;
    const [row] = await sql.unsafe(statement, [...given, rules]);
    return row?.['answer'];
  }

  return {
    take: async ({ id, lane, moreWaiting }, leaseMs) =>
      parseTaken(await call('take_slot', id, lane, leaseMs, moreWaiting)),
    async withdraw(waiterId) {
      await call('withdraw_waiter', waiterId);
    },
    async release(token) {
      await call('release_slot', token);
    },
    async throttled(retryAfterMs) {
      await call('quota_throttled', retryAfterMs ?? null);
    },
    usage: async () => parseUsage(await call('quota_usage')),
  };
}
