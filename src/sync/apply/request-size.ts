// Learns from each answer how many objects of a type the service accepts in one request. The quota counts requests, so
// full requests are faster. No service tells its limit, so each process learns it. fill-requests.ts uses the size.
import type { Logger } from '../../process/logger.js';
import { FIRST_OBJECTS, MOST_OBJECTS } from '../../streams/config-schema.js';

/** Learned request size of an object type. */
export interface RequestSize {
  /** Number of objects in the next full request. */
  objects: number;
  /** Largest number of objects in a request with a good answer. */
  good: number;
  /** Smallest number known to be too many: refused, failed, or too slow. Infinity if no number was. */
  tooMany: number;
  /** Objects per second of quota at `good`: `good` / (1 + seconds until the answer). */
  perSecond: number;
  /** Number of full requests above `good` that had a lower `perSecond`. */
  slower: number;
  /** Clock time in milliseconds when a size was last too large. */
  narrowedAt: number;
}

/** A request and how it ended. `failed_alone`: one object made all its requests fail. */
export interface SentRequest {
  outcome: 'accepted' | 'too_large' | 'too_slow' | 'failed' | 'failed_alone';
  objects: number;
  /** Seconds from sending to the answer. */
  seconds: number;
}

/** Share of the current size from which a request counts as full, and is learned from. */
const FULL = 0.9;
/** Shares of the timeout. The size grows if answers come within `COMFORTABLE`, and shrinks beyond `SLOW`. */
const COMFORTABLE = 0.25;
const SLOW = 0.5;
/** If `good` and `tooMany` differ by less than this share, no size between them is tried. */
const CLOSE = 0.1;
/** Full requests with a lower rate before the size shrinks. A single one may be chance. */
const SLOWER_AT_MOST = 3;
/** Milliseconds until a size that was too large is tried again, since the service may have changed. */
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

/** Keeps the learned sizes of this process, by type. `clock`: milliseconds of a monotonic clock. */
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
        log.info({ type, objects, before, request }, 'objects in one request: another number from now on');
    },
  };
}

/**
 * Returns the size after one more request. Maximizes objects / (1 + latency), the throughput under a quota of requests,
 * not the number of objects.
 */
export function learn(
  size: RequestSize,
  request: SentRequest,
  { timeoutSeconds, now }: { timeoutSeconds: number; now: number },
): RequestSize {
  const { outcome, objects, seconds } = request;
  if (outcome === 'too_large') return narrowed(size, objects, now);
  // Some services fail instead of refusing. If the request was larger than any before, its size is the cause.
  if (outcome === 'failed')
    return objects > Math.max(size.good, FIRST_OBJECTS) ? narrowed(size, objects, now) : size;
  if (outcome === 'failed_alone') return triedAgain(size);
  const isOld = outcome === 'accepted' && now - size.narrowedAt > TRIED_AGAIN_AFTER_MS;
  const seen = isOld ? { ...triedAgain(size), narrowedAt: now } : size;
  // Ignores requests that are not full, or that were sent before the size shrank.
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

/** Returns the next larger size: double, or halfway to `tooMany`. Returns `good` if both are close. */
function larger(good: number, tooMany: number): number {
  if (tooMany === Infinity) return Math.min(MOST_OBJECTS, 2 * good);
  return tooMany - good <= Math.max(1, good * CLOSE) ? good : Math.floor((good + tooMany) / 2);
}

/** Shrinks to the largest good size, or else to half of the size that was too large. */
function narrowed(size: RequestSize, objects: number, now: number): RequestSize {
  const tooMany = Math.min(size.tooMany, objects);
  const good = size.good < tooMany ? size.good : 0;
  const less = Math.min(size.objects, good || Math.floor(tooMany / 2));
  return { ...size, objects: less, good, tooMany, slower: 0, narrowedAt: now };
}

/** Shrinks after a slow answer. If this size was fast before, the service is slow, and `tooMany` stays. */
function afterSlow(size: RequestSize, objects: number, now: number): RequestSize {
  if (size.good > 0 && objects > size.good) return narrowed(size, objects, now);
  const half = Math.max(1, Math.floor(objects / 2));
  return { ...size, objects: half, good: Math.min(size.good, half), slower: 0 };
}

/** Tries the size again that was too large before. */
function triedAgain(size: RequestSize): RequestSize {
  return { ...size, objects: size.tooMany === Infinity ? size.objects : size.tooMany };
}
