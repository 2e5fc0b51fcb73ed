// The three ways in which a service may count requests a second. The real service's way is not published, so a
// client has to stay within the quota under each of them. The windows are pure: time is an argument, in milliseconds.
import { z } from 'zod';
import { errorAnswer, Refusal, type SandboxAnswer, type ReceivedRequest } from './http.js';

const windowKind = z.enum(['sliding', 'fixed', 'bucket']);
export type WindowKind = z.infer<typeof windowKind>;

export const quotaSchema = z.strictObject({
  /** Requests a second for the organization; 0: no quota. */
  rate: z.number().min(0).optional(),
  window: windowKind.optional(),
  /** Whether a 429 carries Retry-After. */
  retryAfter: z.boolean().optional(),
});
export type QuotaOptions = z.infer<typeof quotaSchema>;

/** Takes a request at this time. Returns the milliseconds to wait before it would be accepted; 0: it was. */
type QuotaWindow = (nowMs: number) => number;

const SECOND = 1000;

/** The organization's quota, which can be changed while the sandbox runs. */
export function createQuota(options: QuotaOptions) {
  let { rate = 20, window: kind = 'sliding', retryAfter = true } = options;
  const open = () => createWindow(kind, rate, performance.timeOrigin);
  let take = open();

  return {
    /** Counts a request that has arrived at `atMs`; the answer when it is over the quota. */
    refuse(atMs: number): SandboxAnswer | undefined {
      const waitMs = take(atMs);
      if (waitMs === 0) return undefined;
      const headers = retryAfter ? { 'retry-after': String(Math.ceil(waitMs / SECOND)) } : undefined;
      return errorAnswer(new Refusal(429, 'the organization is over its quota', headers));
    },
    controls: {
      /** Starts an empty window; what is not named stays as it is. */
      setQuota(next: QuotaOptions): void {
        ({ rate = rate, window: kind = kind, retryAfter = retryAfter } = next);
        take = open();
      },
    },
  };
}

/**
 * Accepts `rate` requests a second; a rate of 0 accepts everything. What is refused does not count. `wallOffsetMs` is
 * added to the time where wall seconds matter (`fixed`).
 */
export function createWindow(kind: WindowKind, rate: number, wallOffsetMs = 0): QuotaWindow {
  if (rate <= 0) return () => 0;
  const capacity = Math.max(1, Math.floor(rate));
  switch (kind) {
    case 'sliding':
      return slidingWindow(capacity);
    case 'fixed':
      return fixedWindow(capacity, wallOffsetMs);
    case 'bucket':
      return bucket(capacity, rate);
  }
}

/** At most `capacity` accepted in any half-open second, wherever it begins. */
function slidingWindow(capacity: number): QuotaWindow {
  const accepted: number[] = []; // a ring: `next` is the index of the oldest when it is full
  let next = 0;
  return (nowMs) => {
    const oldest = accepted[next];
    if (oldest !== undefined && nowMs - oldest < SECOND) return SECOND - (nowMs - oldest);
    accepted[next] = nowMs;
    next = (next + 1) % capacity;
    return 0;
  };
}

/** At most `capacity` accepted between two ticks of the wall clock's seconds. */
function fixedWindow(capacity: number, wallOffsetMs: number): QuotaWindow {
  let second = -Infinity;
  let taken = 0;
  return (nowMs) => {
    const wallMs = nowMs + wallOffsetMs;
    const current = Math.floor(wallMs / SECOND);
    if (current !== second) [second, taken] = [current, 0];
    if (taken >= capacity) return (current + 1) * SECOND - wallMs;
    taken += 1;
    return 0;
  };
}

/** Holds `capacity` tokens, refilled evenly; full at the start, so after a pause a client may send twice the rate in one second. */
function bucket(capacity: number, ratePerSecond: number): QuotaWindow {
  let tokens = capacity;
  let filledAtMs: number | undefined;
  return (nowMs) => {
    const sinceMs = filledAtMs === undefined ? 0 : Math.max(0, nowMs - filledAtMs);
    tokens = Math.min(capacity, tokens + (sinceMs * ratePerSecond) / SECOND);
    filledAtMs = Math.max(nowMs, filledAtMs ?? nowMs);
    if (tokens < 1) return ((1 - tokens) * SECOND) / ratePerSecond;
    tokens -= 1;
    return 0;
  };
}

/**
 * A request that reached the sandbox, and when: the evidence for every guarantee about the quota. The time is that at which the quota
 * was checked, not that at which the client sent.
 */
export interface Arrival {
  /** Milliseconds on a monotonic clock, with fractions. */
  at: number;
  method: string;
  path: string;
  /** The status of the answer; 0 without one. */
  status: number;
  /** Objects in the body of a write. */
  objects?: number;
  /** The lane the client named in `X-Slotsync-Lane`, if it did. The service knows no such header. */
  lane?: string;
}

/** A log of at most `most` arrivals: the oldest are forgotten. */
export function createArrivals(most = 100_000) {
  let log: Arrival[] = [];
  let total = 0;
  let refused = 0;
  let answers: Record<string, Record<number, number>> = {};

  return {
    /** Notes a request that has arrived now. */
    note({ method, path, headers }: ReceivedRequest): Arrival {
      const lane = headers['x-slotsync-lane'];
      const arrival = { at: performance.now(), method, path, status: 0 };
      log.push(typeof lane === 'string' ? Object.assign(arrival, { lane }) : arrival);
      total += 1;
      if (log.length > most * 1.1) log = log.slice(-most);
      return arrival;
    },
    settle(arrival: Arrival, status: number): void {
      arrival.status = status;
      const byStatus = (answers[`${arrival.method} ${arrival.path}`] ??= {});
      byStatus[status] = (byStatus[status] ?? 0) + 1;
      if (status === 429) refused += 1;
    },
    controls: {
      /** Every request that reached the service, in order; the last 100 000. */
      arrivals: (): Arrival[] => log.slice(-most).map((arrival) => ({ ...arrival })),
      /** Forgets the arrivals and what was counted of them. */
      clearArrivals(): void {
        log = [];
        total = 0;
        refused = 0;
        answers = {};
      },
      /** How many requests reached the service. */
      requests: () => total,
      /** How many of them were answered 429. */
      refused: () => refused,
      /** How many were answered, by endpoint and status, as `{ 'PUT /v1/objects': { 200: 7 } }`. */
      answers: () => structuredClone(answers),
      /** The most arrivals, accepted and refused, in one half-open second, wherever it begins. */
      mostInAnySecond: () => mostInAnySecond(log.map(({ at }) => at)),
    },
  };
}

/** The most of the given times (milliseconds) in one half-open second, wherever it begins. */
export function mostInAnySecond(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  let most = 0;
  let first = 0;
  sorted.forEach((time, last) => {
    while (time - (sorted[first] ?? time) >= SECOND) first += 1;
    most = Math.max(most, last - first + 1);
  });
  return most;
}
