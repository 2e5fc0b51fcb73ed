// The figures of the quota. Both stores receive them as one JSON argument, so that no number is repeated in SQL or Lua
// and tests can shorten the waiting.
import { UsageError } from '../../errors/errors.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** Best first. */
export const LANES = ['incremental', 'sync', 'backfill', 'verify'] as const;
export type Lane = (typeof LANES)[number];

/** All times in milliseconds. */
export type QuotaRules = Readonly<ReturnType<typeof defaultRules>>;

/** Options of the stores of both kinds, beside their connection, which belongs to the caller. */
export interface StoreOptions {
  /** Owner of the quota: service address and organization. The same key in other processes is the same quota. */
  key: string;
  /** Requests a second. A function: a rate that may change. */
  rate: number | (() => number);
  rules?: Partial<QuotaRules>;
}

/** How long after its grant a request may still be sent; the lease has a second for it. */
export const SEND_WITHIN_MS = 900;

/** Request timeout and `lateWriteSeconds` of 30 s each, and the second in which the request must have been sent. */
export const DEFAULT_LEASE_MS = 30 * SECOND + 30 * SECOND + SECOND;

/** The rules for `given` requests a second. Throws UsageError unless that is a whole number from 1 on. */
export function quotaRules(given: StoreOptions['rate'], changes: Partial<QuotaRules> = {}): QuotaRules {
  const rate = typeof given === 'function' ? given() : given;
  if (!Number.isSafeInteger(rate) || rate < 1) {
    throw new UsageError(`the quota must be a whole number of requests per second, at least 1, not ${rate}`);
  }
  return { ...defaultRules(rate), ...changes };
}

/** `rate` is N: slots of the organization, and requests in any second. */
function defaultRules(rate: number) {
  return {
    rate,
    /** Best first: waiters of a lane are served before those of the next lanes. */
    lanes: LANES as readonly string[],
    /** Mean time between two grants: no more than N a second in the long run. */
    paceMs: SECOND / rate,
    /**
     * How far grants may run ahead of the pace: answers that are late, because the network is uneven, leave gaps that a
     * strict pace never fills. The shortest time between two grants is the pace less this.
     */
    aheadMs: (0.7 * SECOND) / rate,
    /** From the answer until the slot is free: the second that the service counts, and a margin for rounding. */
    holdMs: SECOND + 5,
    /** How far ahead a grant may be booked; a waiter that would wait longer asks again. */
    bookAheadMs: 60,
    /** Wait before the first grant of a store without state: requests sent before the loss must be over. */
    bootGuardMs: 1.5 * SECOND,
    /** Longest time until a waiter asks again. Below `holdMs`, so that every release is noticed in time. */
    pollMs: 0.9 * SECOND,
    /** Shortest time until a waiter asks again that yielded a free slot to others. */
    yieldMs: 25,
    /** How late a waiter may ask before others pass it, and before it loses its place. */
    lateMs: 100,
    forgetMs: 1.8 * SECOND,
    /** Every n-th grant goes to the waiter that has waited longest in any lane, so that none starves. */
    anyLaneEvery: 15,
    /** After a 429: added to Retry-After, and used where it is absent. */
    pauseExtraMs: 100,
    pauseDefaultMs: SECOND,
    /** Longest pause that a Retry-After can cause. */
    pauseMaxMs: 10 * MINUTE,
    /** N is reduced by 1 at most once in this time, and raised by 1 for each such time without a 429. */
    reduceEveryMs: 1.2 * SECOND,
    recoverEveryMs: 10 * SECOND,
    /** How long Redis keeps the state of an idle limiter. Losing it costs a boot guard. */
    keepMs: 7 * DAY,
  };
}
