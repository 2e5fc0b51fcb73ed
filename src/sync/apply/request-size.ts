// Learns how many objects the service takes in one request, separately for each type. The quota counts requests, so
// large requests are faster. The limit of a service is not known in advance, so each answer is used to adjust the size.
import type { Logger } from '../../process/logger.js';
import { FIRST_OBJECTS, MOST_OBJECTS } from '../../streams/config-schema.js';

/** Learned size of the requests that write objects of a type. */
export interface RequestSize {
  /** Number of objects to send in the next request. */
  objects: number;
  /** Largest number of objects that were answered well in one request. */
  good: number;
  /** Number of objects that was too large: refused, failed or slow. Infinity if no number was too large yet. */
  tooMany: number;
  /** Throughput at size `good` under a quota of requests: `good` / (1 + seconds until the answer). */
  perSecond: number;
  /** Number of larger requests in a row with less throughput than size `good`. */
  slower: number;
  /** Clock time in milliseconds when the size was last reduced. */
  narrowedAt: number;
}

/** Result of a request. `failed_alone`: a single object made all its requests fail, so the size is not the cause. */
export interface SentRequest {
  outcome: 'accepted' | 'too_large' | 'too_slow' | 'failed' | 'failed_alone';
  objects: number;
  /** Seconds from sending to the answer. */
  seconds: number;
}

/** From this share of the current size on, a request counts as full. Only full requests change the size. */
const FULL = 0.9;
/** The size grows if the answer takes less than 0.25 of the timeout, and shrinks if it takes more than 0.5. */
const COMFORTABLE = 0.25;
const SLOW = 0.5;
/** No size between `good` and `tooMany` is tried if they differ by less than this share. */
const CLOSE = 0.1;
/** Number of slower requests after which the size shrinks. A single slow request may be chance. */
const SLOWER_AT_MOST = 3;
/** Milliseconds after which a size that was too large is tried again, because the service may have changed. */
const TRIED_AGAIN_AFTER_MS = 60 * 60 * 1000;

export const FIRST_SIZE: RequestSize = {
  objects: FIRST_OBJECTS,
  good: 0,
  tooMany: Infinity,
  perSecond: 0,
  slower: 0,
  narrowedAt: Infinity,
};

export type RequestSizes = ReturnType<typeof createRequestSizes>;

/** Stores the learned sizes by type. `clock`: milliseconds of a monotonic clock. */
export function createRequestSizes(log: Logger, requestTimeoutMs: number, clock: () => number) {
  const sizes = new Map<string, RequestSize>();
  const of = (type: string) => sizes.get(type) ?? FIRST_SIZE;
  return {
    of,
    learn(type: string, request: SentRequest): void {
      const before = of(type).objects;
      const size = learn(of(type), request, { timeoutSeconds: requestTimeoutMs / 1000, now: clock() });
      sizes.set(type, size);
      const { objects } = size;
      if (objects !== before)
        log.info({ type, objects, before, request }, 'number of objects in one request changed');
    },
  };
}

/**
 * Returns the size after one more request. The aim is the highest throughput, objects / (1 + latency), which is not
 * always the largest size.
 */
export function learn(
  size: RequestSize,
  request: SentRequest,
  { timeoutSeconds, now }: { timeoutSeconds: number; now: number },
): RequestSize {
  const { outcome, objects, seconds } = request;
  if (outcome === 'too_large') return narrowed(size, objects, now);
  // Some services fail with a 5xx if a request is too large. A request larger than any before is judged so.
  if (outcome === 'failed')
    return objects > Math.max(size.good, FIRST_OBJECTS) ? narrowed(size, objects, now) : size;
  if (outcome === 'failed_alone') return triedAgain(size);
  const isOld = outcome === 'accepted' && now - size.narrowedAt > TRIED_AGAIN_AFTER_MS;
  const seen = isOld ? { ...triedAgain(size), narrowedAt: now } : size;
  // Ignores requests that were not full, and larger requests that were sent before the size shrank.
  if (objects < seen.objects * FULL || objects > seen.objects) return seen;
  if (outcome === 'too_slow' || seconds > timeoutSeconds * SLOW) return afterSlow(seen, objects, now);
  const perSecond = objects / (1 + seconds);
  if (seen.good > 0 && objects > seen.good && perSecond < seen.perSecond) {
    const slower = seen.slower + 1;
    return slower < SLOWER_AT_MOST ? { ...seen, slower } : narrowed(seen, objects, now);
  }
  const good = Math.max(seen.good, objects);
  const tooMany = good < seen.tooMany ? seen.tooMany : Infinity;
  const next = seconds > timeoutSeconds * COMFORTABLE ? good : larger(good, tooMany);
  return { ...seen, objects: Math.max(seen.objects, next), good, tooMany, perSecond, slower: 0 };
}

/** Returns the next larger size: twice the good size, or halfway to a size that was too large. */
function larger(good: number, tooMany: number): number {
  if (tooMany === Infinity) return Math.min(MOST_OBJECTS, 2 * good);
  return tooMany - good <= Math.max(1, good * CLOSE) ? good : Math.floor((good + tooMany) / 2);
}

/** Reduces the size to the largest one that was good, or to half of the size that was too large. */
function narrowed(size: RequestSize, objects: number, now: number): RequestSize {
  const tooMany = Math.min(size.tooMany, objects);
  const good = size.good < tooMany ? size.good : 0;
  const less = Math.min(size.objects, good || Math.floor(tooMany / 2));
  return { ...size, objects: less, good, tooMany, slower: 0, narrowedAt: now };
}

/** Shrinks the size after a slow answer. If the size was good before, the service is slow for another reason. */
function afterSlow(size: RequestSize, objects: number, now: number): RequestSize {
  if (size.good > 0 && objects > size.good) return narrowed(size, objects, now);
  const half = Math.max(1, Math.floor(objects / 2));
  return { ...size, objects: half, good: Math.min(size.good, half), slower: 0 };
}

/** Tries a size again that was too large some time ago. */
function triedAgain(size: RequestSize): RequestSize {
  return { ...size, objects: size.tooMany === Infinity ? size.objects : size.tooMany };
}
