// Three ways in which a service may count requests per second. The real way is not published, so a client must stay
// within the quota under each of them. The windows are pure: time is an argument, in milliseconds.
import { z } from 'zod';
import { errorAnswer, Refusal, type SandboxAnswer, type ReceivedRequest } from './http.js';

const windowKind = z.enum(['sliding', 'fixed', 'bucket']);
export type WindowKind = z.infer<typeof windowKind>;

export const quotaSchema = z.strictObject({
  /** Requests per second of the organization; 0 for no quota. */
  rate: z.number().min(0).optional(),
  window: windowKind.optional(),
  /** If true, a 429 answer has a Retry-After header. */
  retryAfter: z.boolean().optional(),
});
export type QuotaOptions = z.infer<typeof quotaSchema>;

/** Counts a request at this time. Returns 0 if it is accepted, otherwise the milliseconds to wait. */
type QuotaWindow = (nowMs: number) => number;

const SECOND = 1000;

export function createQuota(options: QuotaOptions) {
  let { rate = 20, window: kind = 'sliding', retryAfter = true } = options;
  const open = () => createWindow(kind, rate, performance.timeOrigin);
  let take = open();

  return {
    /** Counts a request that arrived at `atMs`. Returns a 429 answer if the request exceeds the quota. */
    refuse(atMs: number): SandboxAnswer | undefined {
      const waitMs = take(atMs);
      if (waitMs === 0) return undefined;
      const headers = retryAfter ? { 'retry-after': String(Math.ceil(waitMs / SECOND)) } : undefined;
      return errorAnswer(new Refusal(429, 'the organization is over its quota', headers));
    },
    controls: {
      /** Changes the named options, and starts an empty window. */
      setQuota(next: QuotaOptions): void {
        ({ rate = rate, window: kind = kind, retryAfter = retryAfter } = next);
        take = open();
      },
    },
  };
}

/**
 * Returns a window that accepts `rate` requests per second, or all requests for a rate of 0. Refused requests do not
 * count. `wallOffsetMs` converts the time to wall-clock time (only for `fixed`).
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

/** Accepts at most `capacity` requests in any half-open second, wherever it begins. */
function slidingWindow(capacity: number): QuotaWindow {
  const accepted: number[] = []; // a ring buffer: when it is full, `next` is the index of the oldest
  let next = 0;
  return (nowMs) => {
    const oldest = accepted[next];
    if (oldest !== undefined && nowMs - oldest < SECOND) return SECOND - (nowMs - oldest);
    accepted[next] = nowMs;
    next = (next + 1) % capacity;
    return 0;
  };
}

/** Accepts at most `capacity` requests in each second of the wall clock. */
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

/** Accepts one request per token. `capacity` tokens refill evenly, so a pause allows twice the rate in a second. */
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

/** A request that reached the sandbox, at the time of its quota check. Proves the guarantees about the quota. */
export interface Arrival {
  /** Time of arrival in milliseconds on a monotonic clock, with fractions. */
  at: number;
  method: string;
  path: string;
  /** Status of the answer, or 0 without an answer. */
  status: number;
  /** Number of objects in the body of a write. */
  objects?: number;
  /** Lane from the header `X-Slotsync-Lane`, if the client sent one. The real service ignores this header. */
  lane?: string;
}

/** Creates a log of the latest arrivals, up to `most`. */
export function createArrivals(most = 100_000) {
  let log: Arrival[] = [];
  let total = 0;
  let refused = 0;
  let answers: Record<string, Record<number, number>> = {};

  return {
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
      /** Returns the latest requests that reached the service, up to 100 000, in order of arrival. */
      arrivals: (): Arrival[] => log.slice(-most).map((arrival) => ({ ...arrival })),
      clearArrivals(): void {
        log = [];
        total = 0;
        refused = 0;
        answers = {};
      },
      requests: () => total,
      /** Number of requests that were answered with 429. */
      refused: () => refused,
      /** Numbers of answers by endpoint and status, as `{ 'PUT /v1/objects': { 200: 7 } }`. */
      answers: () => structuredClone(answers),
      /** Maximum number of arrivals, accepted or refused, in any half-open second. */
      mostInAnySecond: () => mostInAnySecond(log.map(({ at }) => at)),
    },
  };
}

/** Returns the maximum number of the given times (milliseconds) in any half-open second. */
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
