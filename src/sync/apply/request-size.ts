// Each answer teaches how much the service takes in one request. The quota counts requests, so a full request is
// worth many thin ones; how full it may be is known of no service beforehand. Each process learns it for itself.
// How many objects a request then takes, fill-requests.ts decides.
import type { Logger } from '../../process/logger.js';
import { FIRST_OBJECTS, MOST_OBJECTS } from '../../streams/config-schema.js';

/** How much of a type goes into one request, and what is known of it. `Infinity`: nothing was too much. */
export interface RequestSize {
  /** Objects in the next full request. */
  objects: number;
  /** The most objects that were answered well in one request. */
  good: number;
  /** So many are too many: refused, failed, too slow, or slower in all. */
  tooMany: number;
  /** `good` / (1 + seconds until its answer). */
  perSecond: number;
  /** Full requests of more than `good` that were slower in all. */
  slower: number;
  /** Milliseconds of the clock when something was too much last. */
  narrowedAt: number;
}

/**
 * A request that was answered, refused as too large, given up, or failed for any other reason. `failed_alone`: one object
 * spoiled the requests that it was in.
 */
export interface SentRequest {
  outcome: 'accepted' | 'too_large' | 'too_slow' | 'failed' | 'failed_alone';
  objects: number;
  /** From sending to answer. */
  seconds: number;
}

/** From this part of the size on, a request is full, and says something of the size. */
const FULL = 0.9;
/** It grows while answers come within this part of the timeout, and shrinks when they take longer than the other. */
const COMFORTABLE = 0.25;
const SLOW = 0.5;
/** Between the most that was good and the least that was too much, nothing is tried when they differ by less. */
const CLOSE = 0.1;
/** Full requests that are slower in all before the size goes back: one may be chance. */
const SLOWER_AT_MOST = 3;
/** A size that was too much is tried once more after this time: a service may be set anew, or have had a bad hour. */
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

/** The sizes that a process goes by, by type. `clock`: milliseconds since any moment, never going back. */
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
 * The size after one more request. The aim is the most of objects / (1 + latency), which is what a quota of
 * requests allows, and not the most objects.
 */
export function learn(
  size: RequestSize,
  request: SentRequest,
  { timeoutSeconds, now }: { timeoutSeconds: number; now: number },
): RequestSize {
  const { outcome, objects, seconds } = request;
  if (outcome === 'too_large') return narrowed(size, objects, now);
  // Some services fail where others refuse: what was never as large before is taken to fail for its size.
  if (outcome === 'failed')
    return objects > Math.max(size.good, FIRST_OBJECTS) ? narrowed(size, objects, now) : size;
  if (outcome === 'failed_alone') return triedAgain(size);
  const isOld = outcome === 'accepted' && now - size.narrowedAt > TRIED_AGAIN_AFTER_MS;
  const seen = isOld ? { ...triedAgain(size), narrowedAt: now } : size;
  // A larger one was sent before the size went back: that was decided with all that such a request says.
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

/** Twice as many; where so many are known to be too many, half the way there; as many when that is close. */
function larger(good: number, tooMany: number): number {
  if (tooMany === Infinity) return Math.min(MOST_OBJECTS, 2 * good);
  return tooMany - good <= Math.max(1, good * CLOSE) ? good : Math.floor((good + tooMany) / 2);
}

/** Back to what was good, or to half of what was too much. */
function narrowed(size: RequestSize, objects: number, now: number): RequestSize {
  const tooMany = Math.min(size.tooMany, objects);
  const good = size.good < tooMany ? size.good : 0;
  const less = Math.min(size.objects, good || Math.floor(tooMany / 2));
  return { ...size, objects: less, good, tooMany, slower: 0, narrowedAt: now };
}

/** As many were answered well before, or none ever were: it is the service that is slow for a while, not the number. */
function afterSlow(size: RequestSize, objects: number, now: number): RequestSize {
  if (size.good > 0 && objects > size.good) return narrowed(size, objects, now);
  const half = Math.max(1, Math.floor(objects / 2));
  return { ...size, objects: half, good: Math.min(size.good, half), slower: 0 };
}

/** The next request is of the number that was too many. */
function triedAgain(size: RequestSize): RequestSize {
  return { ...size, objects: size.tooMany === Infinity ? size.objects : size.tooMany };
}
