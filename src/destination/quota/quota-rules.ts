// Constants of the quota. Both stores receive them as JSON, so that SQL and Lua repeat no numbers and tests can change
// them.
import { UsageError } from '../../errors/errors.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY = 24 * 60 * MINUTE;

/** Lanes of requests, highest priority first. */
export const LANES = ['incremental', 'sync', 'backfill', 'verify'] as const;
export type Lane = (typeof LANES)[number];

export type QuotaRules = Readonly<ReturnType<typeof defaultRules>>;

/** Options of both kinds of store, besides the connection, which belongs to the caller. */
export interface StoreOptions {
  /** Owner of the quota: service address and organization. Processes with the same key share the quota. */
  key: string;
  /** Requests a second, or a function that returns the current rate. */
  rate: number | (() => number);
  rules?: Partial<QuotaRules>;
}

/** Milliseconds after its grant within which a request may still be sent. The lease includes a second for this. */
export const SEND_WITHIN_MS = 900;

/** Default lease: the request timeout and `lateWriteSeconds`, 30 s each, plus the second for sending. */
export const DEFAULT_LEASE_MS = 30 * SECOND + 30 * SECOND + SECOND;

/** Returns the rules for `given` requests a second. Throws UsageError unless it is a whole number of at least 1. */
export function quotaRules(given: StoreOptions['rate'], changes: Partial<QuotaRules> = {}): QuotaRules {
  const rate = typeof given === 'function' ? given() : given;
  if (!Number.isSafeInteger(rate) || rate < 1) {
    throw new UsageError(`the quota must be a whole number of requests per second, at least 1, not ${rate}`);
  }
  return { ...defaultRules(rate), ...changes };
}

/** Returns the default rules. `rate` is both the number of slots and the maximum of requests in any second. */
function defaultRules(rate: number) {
  return {
    rate,
    /** Lanes by priority. Waiters of a lane are served before those of later lanes. */
    lanes: LANES as readonly string[],
    /** Mean time between two grants, so that the long-term rate is at most N a second. */
    paceMs: SECOND / rate,
    /**
     * Time by which grants may run ahead of the pace, to fill the gaps that late answers leave. The shortest time
     * between two grants is `paceMs` minus `aheadMs`.
     */
    aheadMs: (0.7 * SECOND) / rate,
    /** Time from an answer until the slot is free: the second that the service counts, plus a margin for rounding. */
    holdMs: SECOND + 5,
    /** Maximum time by which a grant is booked in advance. A waiter that must wait longer asks again. */
    bookAheadMs: 60,
    /** Wait before the first grant of a store without state, so that requests sent before the loss are over. */
    bootGuardMs: 1.5 * SECOND,
    /** Maximum time until a waiter asks again. Less than `holdMs`, so that every release is noticed in time. */
    pollMs: 0.9 * SECOND,
    /** Minimum time until a waiter asks again after it left a free slot to another waiter. */
    yieldMs: 25,
    /** Delay of a question after which other waiters pass (`lateMs`), or the waiter loses its place (`forgetMs`). */
    lateMs: 100,
    forgetMs: 1.8 * SECOND,
    /** Every n-th grant goes to the waiter that has waited longest in any lane, so that no lane starves. */
    anyLaneEvery: 15,
    /** Pause after a 429: `pauseExtraMs` is added to Retry-After. `pauseDefaultMs` replaces a missing header. */
    pauseExtraMs: 100,
    pauseDefaultMs: SECOND,
    /** Maximum pause that a Retry-After header can cause. */
    pauseMaxMs: 10 * MINUTE,
    /**
     * N falls by 1 after a 429, at most once per `reduceEveryMs`, and rises by 1 per `recoverEveryMs` without a 429.
     */
    reduceEveryMs: 1.2 * SECOND,
    recoverEveryMs: 10 * SECOND,
    /** Time for which Redis keeps the state of an idle limiter. A limiter without state waits for `bootGuardMs`. */
    keepMs: 7 * DAY,
  };
}
