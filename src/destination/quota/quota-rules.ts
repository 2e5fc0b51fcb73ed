// Constants of the quota. Both stores receive them as JSON, so that SQL and Lua repeat no numbers.
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

/** Returns the default rules, in milliseconds. `rate` is the number of slots and of requests per second. */
function defaultRules(rate: number) {
  return {
    rate,
    /** Lanes by priority. Waiters of a lane are served before those of later lanes. */
    lanes: LANES as readonly string[],
    /** Mean time between two grants of a slot, so that the long-term rate stays within the quota. */
    paceMs: SECOND / rate,
    /**
     * Time by which a grant may be earlier than a steady pace of `paceMs`, to fill gaps that late answers leave. The
     * shortest time between two grants is `paceMs` minus `aheadMs`.
     */
    aheadMs: (0.7 * SECOND) / rate,
    /** Time from an answer until its slot is free: the second that the service counts, plus a margin for rounding. */
    holdMs: SECOND + 5,
    /** Maximum time by which a slot is granted in advance. A waiter that must wait longer asks again. */
    bookAheadMs: 60,
    /** Wait of a store that has lost its state before it grants a slot, until all earlier requests are over. */
    bootGuardMs: 1.5 * SECOND,
    /** Maximum time until a waiter asks for a slot again. Less than `holdMs`, so that it notices every release. */
    pollMs: 0.9 * SECOND,
    /** Minimum time until a waiter asks again after it left a free slot to a waiter with priority. */
    yieldMs: 25,
    /**
     * Delay after which other waiters pass a waiter that does not ask (`lateMs`), or it loses its place (`forgetMs`).
     */
    lateMs: 100,
    forgetMs: 1.8 * SECOND,
    /** Every n-th slot goes to the waiter that has waited longest in any lane, so that no lane starves. */
    anyLaneEvery: 15,
    /** Pause after a 429: `pauseExtraMs` is added to its Retry-After; without one, `pauseDefaultMs` replaces it. */
    pauseExtraMs: 100,
    pauseDefaultMs: SECOND,
    /** Maximum pause that a Retry-After header can cause. */
    pauseMaxMs: 10 * MINUTE,
    /**
     * After a 429, the allowed rate falls by 1, once per `reduceEveryMs`. It rises by 1 per `recoverEveryMs` of calm.
     */
    reduceEveryMs: 1.2 * SECOND,
    recoverEveryMs: 10 * SECOND,
    /** Time for which Redis keeps the state of an idle limiter. */
    keepMs: 7 * DAY,
  };
}
