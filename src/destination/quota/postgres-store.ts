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
  // JSON is passed as text both ways: how a client parses json depends on what else uses it.
  const rulesJson = () => sql`${rules}::text::jsonb`;

  return {
    async take({ id, lane, moreWaiting }, leaseMs) {
      const [row] = await sql`
        SELECT slotsync.take_slot(${key}::text, ${id}::text, ${lane}::text, ${leaseMs}::double precision,
          ${moreWaiting}::boolean, ${rulesJson()})::text AS answer`;
      return parseTaken(row?.['answer']);
    },
    async withdraw(waiterId) {
      await sql`SELECT slotsync.withdraw_waiter(${key}::text, ${waiterId}::text, ${rulesJson()})`;
    },
    async release(token) {
      await sql`SELECT slotsync.release_slot(${key}::text, ${token}::text, ${rulesJson()})`;
    },
    async throttled(retryAfterMs) {
      await sql`
        SELECT slotsync.quota_throttled(${key}::text, ${retryAfterMs ?? null}::double precision, ${rulesJson()})`;
    },
    async usage() {
      const [row] = await sql`SELECT slotsync.quota_usage(${key}::text, ${rulesJson()})::text AS answer`;
      return parseUsage(row?.['answer']);
    },
  };
}
