// The figures of the quota. Both stores receive them as one JSON argument, so that no number is repeated in SQL or Lua
// and tests can shorten the waiting.
import { UsageError } from '../../errors.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** Best first. */
export const LANES = ['incremental', 'sync', 'backfill', 'verify'] as const;
export type Lane = (typeof LANES)[number];

/** All times in milliseconds. */
export interface QuotaRules {
  /** Best first: waiters of a lane are served before those of the next lanes. */
  readonly lanes: readonly string[];
  /** N: slots of the organization, and requests in any second. */
  readonly rate: number;
  /** Mean time between two grants: no more than N a second in the long run. */
  readonly paceMs: number;
  /**
   * How far grants may run ahead of the pace: answers that are late, because the network is uneven, leave gaps that a
   * strict pace never fills. The shortest time between two grants is the pace less this.
   */
  readonly aheadMs: number;
  /** From the answer until the slot is free: the second that the service counts, and a margin for rounding. */
  readonly holdMs: number;
  /** How far ahead a grant may be booked; a waiter that would wait longer asks again. */
  readonly bookAheadMs: number;
  /** Wait before the first grant of a store without state: requests sent before the loss must be over. */
  readonly bootGuardMs: number;
  /** Longest time until a waiter asks again. Below `holdMs`, so that every release is noticed in time. */
  readonly pollMs: number;
  /** Shortest time until a waiter asks again that yielded a free slot to others. */
  readonly yieldMs: number;
  /** How late a waiter may ask before others pass it, and before it loses its place. */
  readonly lateMs: number;
  readonly forgetMs: number;
  /** Every n-th grant goes to the waiter that has waited longest in any lane, so that none starves. */
  readonly anyLaneEvery: number;
  /** After a 429: added to Retry-After, and used where it is absent. */
  readonly pauseExtraMs: number;
  readonly pauseDefaultMs: number;
  /** Longest pause that a Retry-After can cause. */
  readonly pauseMaxMs: number;
  /** N is reduced by 1 at most once in this time, and raised by 1 for each such time without a 429. */
  readonly reduceEveryMs: number;
  readonly recoverEveryMs: number;
  /** How long Redis keeps the state of an idle limiter. Losing it costs a boot guard. */
  readonly keepMs: number;
}

/** What the stores of both kinds need beside their connection, which belongs to the caller. */
export interface StoreOptions {
  /** Whose quota: service address and organization. The same key in other processes is the same quota. */
  key: string;
  /** Requests a second. */
  rate: number;
  rules?: Partial<QuotaRules>;
}

/** How long after its grant a request may still be sent; the lease has a second for it. */
export const SEND_WITHIN_MS = 900;

/** Request timeout of 30 s and the second in which the request must have been sent. */
export const DEFAULT_LEASE_MS = 30 * SECOND + SECOND;

/** The rules for `rate` requests a second. Throws UsageError unless rate is a whole number from 1 on. */
export function quotaRules(rate: number, changes: Partial<QuotaRules> = {}): QuotaRules {
  if (!Number.isSafeInteger(rate) || rate < 1) {
    throw new UsageError(`the quota must be a whole number of requests per second, at least 1, not ${rate}`);
  }
  return {
    lanes: LANES,
    rate,
    paceMs: SECOND / rate,
    aheadMs: (0.7 * SECOND) / rate,
    holdMs: SECOND + 5,
    bookAheadMs: 60,
    bootGuardMs: 1.5 * SECOND,
    pollMs: 0.9 * SECOND,
    yieldMs: 25,
    lateMs: 100,
    forgetMs: 1.8 * SECOND,
    anyLaneEvery: 15,
    pauseExtraMs: 100,
    pauseDefaultMs: SECOND,
    pauseMaxMs: 10 * MINUTE,
    reduceEveryMs: 1.2 * SECOND,
    recoverEveryMs: 10 * SECOND,
    keepMs: 7 * DAY,
    ...changes,
  };
}
