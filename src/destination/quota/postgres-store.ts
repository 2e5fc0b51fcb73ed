// Slot store in PostgreSQL, for installations without Redis. The functions of quota.sql have the algorithm of
// limiter.ts.
import type { Sql } from 'postgres';
import { parseTaken, parseUsage } from './store-answers.js';
import type { SlotStore } from './limiter.js';
import { quotaRules, type StoreOptions } from './quota-rules.js';
import { quoteLiteral } from '../../text/sql-text.js';

/** Creates the store. Each step is one statement without a transaction, so that the network delays no row lock. */
export function createPostgresStore({
  sql,
  key,
  rate,
  rules: changes,
}: StoreOptions & { sql: Sql }): SlotStore {
  const rules = () => JSON.stringify(quotaRules(rate, changes));

  /** Calls an SQL function with literals. For parameters, the driver would query the types in an extra round trip. */
  async function call(name: string, ...given: readonly (string | number | undefined)[]) {
    const values = [key, ...given, rules()].map((value) =>
      value === undefined ? 'NULL' : quoteLiteral(String(value)),
    );
    const [row] = await sql.unsafe<{ answer: unknown }[]>(
      `SELECT slotsync.${name}(${values.join(', ')})::text AS answer`,
    );
    return row?.answer;
  }

  return {
    take: async ({ id, lane, wanted }, leaseMs) =>
      parseTaken(await call('take_slots', id, lane, leaseMs, wanted)),
    withdraw: async (waiterId) => void (await call('withdraw_waiter', waiterId)),
    release: async (token) => void (await call('release_slot', token)),
    throttled: async (retryAfterMs) => void (await call('quota_throttled', retryAfterMs)),
    usage: async () => parseUsage(await call('quota_usage')),
  };
}
