// Each answer teaches how much the service takes in one request. The quota counts requests, so a full request is
// worth many thin ones; how full it may be is known of no service beforehand. Pure: what was known, and one request.
import { FIRST_OBJECTS, MOST_OBJECTS } from '../../streams/config-schema.js';

/** How much of a type goes into one request, and what is known of it. */
export interface RequestSize {
  /** Objects in the next full request. */
  objects: number;
  /** The most that were accepted in one request. As many as are too many: they were answered well before. */
  accepted: number;
  /** So many are too many: refused, too slow, or slower in all. */
  tooMany: number | null;
  /** Bytes of the largest body accepted, and of the smallest refused for its size. */
  acceptedBytes: number;
  refusedBytes: number | null;
  /** From sending to answer, of the request by which it changed. */
  seconds: number | null;
  /** Why it changed, for people. */
  reason: string;
  changedAt: Date;
  /** The size that it grew from, while the larger one proves itself: not kept in the state. */
  before?: { objects: number; perSecond: number; slower: number } | undefined;
}

/**
 * A request that was answered, refused as too large, given up, or failed for any other reason. `failed_alone`: one object
 * spoiled the requests that it was in.
 */
export interface SentRequest {
  outcome: 'accepted' | 'too_large' | 'too_slow' | 'failed' | 'failed_alone';
  objects: number;
  bytes: number;
  /** From sending to answer. */
  seconds: number;
}

interface Circumstances {
  /** Seconds that an answer may take. */
  timeoutSeconds: number;
  now: Date;
}

/** The bodies that servers take by default: nginx refuses more than 1 MB. */
const FIRST_BYTES = 1_000_000;
/** No server refuses a body of less for its bytes; then there were too many objects in it. */
const LEAST_BYTES = 64_000;
/** From this part of the size on, a request is full, and says something of the size. */
const FULL = 0.9;
/** It grows while answers come within this part of the timeout, and shrinks when they take longer than the other. */
const COMFORTABLE = 0.25;
const SLOW = 0.5;
/** Between the most accepted and the least refused nothing more is tried when they differ by less. */
const CLOSE = 0.1;
/** Full requests that are slower in all before the size goes back: one may be chance. */
const SLOWER_AT_MOST = 3;
/** A size that was too many is tried once more after this time: a service may be set anew, or have had a bad hour. */
const TRIED_AGAIN_AFTER_MS = 60 * 60 * 1000;

export const FIRST_SIZE: RequestSize = {
  objects: FIRST_OBJECTS,
  accepted: 0,
  tooMany: null,
  acceptedBytes: 0,
  refusedBytes: null,
  seconds: null,
  reason: 'nothing was sent yet',
  changedAt: new Date(0),
};

/** Bytes of the objects in the next request. One object alone may be larger. */
export function mostBytes({ acceptedBytes, refusedBytes }: RequestSize): number {
  if (refusedBytes === null) return Math.max(FIRST_BYTES, 2 * acceptedBytes);
  return between(acceptedBytes, refusedBytes) ?? acceptedBytes;
}

/**
 * The size after one more request. The aim is the most of objects / (1 + latency), which is what a quota of
 * requests allows, and not the most objects. The size changed if `changedAt` did.
 */
export function learn(
  known: RequestSize,
  request: SentRequest,
  { timeoutSeconds, now }: Circumstances,
): RequestSize {
  const { objects, seconds } = request;
  if (request.outcome === 'too_large') return afterRefusal(known, request, now);
  if (request.outcome === 'failed') return afterFailure(known, request, now);
  if (request.outcome === 'failed_alone') return afterFailureAlone(known, now);
  const isFull = objects >= known.objects * FULL;
  const took = `${seconds.toFixed(seconds < 1 ? 3 : 1)} s`;
  const isSlow = request.outcome === 'too_slow' || seconds > timeoutSeconds * SLOW;
  if (isSlow && isFull && objects > 1) {
    const half = Math.floor(objects / 2);
    return {
      ...withoutTrial(known),
      objects: Math.min(known.objects, half),
      tooMany: Math.min(known.tooMany ?? Infinity, objects),
      seconds,
      reason: `${objects} took ${took} of the ${timeoutSeconds} s that an answer may take`,
      changedAt: now,
    };
  }
  if (request.outcome === 'too_slow') return known;
  // A size learned in an hour that has not come yet was learned by another clock, or before this one was set.
  const isOld = Math.abs(now.getTime() - known.changedAt.getTime()) > TRIED_AGAIN_AFTER_MS;
  const seen = afterAcceptance(known, request, isOld ? now : undefined);
  if (!isFull) return seen;
  // Sent before the size went back: that was decided with all that such a request says.
  if (objects > known.objects) return { ...seen, accepted: known.accepted, tooMany: known.tooMany };
  const perSecond = objects / (1 + seconds);
  const { before } = known;
  if (before && objects > before.objects && perSecond < before.perSecond) {
    const slower = before.slower + 1;
    if (slower < SLOWER_AT_MOST) return { ...seen, before: { ...before, slower } };
    return {
      ...withoutTrial(seen),
      objects: before.objects,
      accepted: before.objects,
      tooMany: objects,
      seconds,
      reason: `${objects} took ${took}: in all slower than ${before.objects} at a time`,
      changedAt: now,
    };
  }
  if (seconds > timeoutSeconds * COMFORTABLE) return seen;
  // More were answered well before: it was the service that was slow for a while, and not the number. Believed once.
  const wereMore = known.tooMany !== null && known.accepted >= known.tooMany;
  const learned = wereMore ? { ...seen, accepted: objects, tooMany: null } : seen;
  const next = nextSize(objects, learned.tooMany, isOld);
  if (next <= known.objects) return learned;
  return {
    ...learned,
    objects: next,
    seconds,
    reason: `${objects} took ${took}`,
    changedAt: now,
    before: { objects, perSecond, slower: 0 },
  };
}

/** Twice as many; where so many are known to be too many, half the way there; as many when that is close. */
function nextSize(objects: number, tooMany: number | null, isOld: boolean): number {
  if (tooMany === null) return Math.min(MOST_OBJECTS, 2 * objects);
  return between(objects, tooMany) ?? (isOld ? tooMany : objects);
}

/** Halfway; undefined when the two are close to each other. */
function between(good: number, bad: number): number | undefined {
  return bad - good <= Math.max(1, good * CLOSE) ? undefined : Math.floor((good + bad) / 2);
}

/** A request is refused for the number of its objects or for its bytes, and the service does not say for which. */
function afterRefusal(known: RequestSize, { objects, bytes, seconds }: SentRequest, now: Date): RequestSize {
  // An object that a server would refuse for its bytes is large; a smaller one is refused for itself.
  if (objects === 1 && bytes < Math.max(LEAST_BYTES, known.acceptedBytes)) return known;
  if (objects === 1 || (bytes >= LEAST_BYTES && !isMoreThanEver(known, objects))) {
    const refusedBytes = Math.min(known.refusedBytes ?? Infinity, bytes);
    return {
      ...known,
      refusedBytes,
      acceptedBytes: Math.min(known.acceptedBytes, refusedBytes - 1),
      changedAt: now,
    };
  }
  const tooMany = Math.min(known.tooMany ?? Infinity, objects);
  const accepted = known.accepted < tooMany ? known.accepted : 0;
  if (known.objects < tooMany) return { ...known, accepted, tooMany };
  return {
    ...withoutTrial(known),
    objects: between(accepted, tooMany) ?? accepted,
    accepted,
    tooMany,
    seconds,
    reason: `the service refused ${objects} as too many or too large`,
    changedAt: now,
  };
}

/** Some services fail where others refuse: what was never as large before is taken to fail for its size. */
function afterFailure(known: RequestSize, { objects, seconds }: SentRequest, now: Date): RequestSize {
  const { accepted } = known;
  if (!isMoreThanEver(known, objects)) return known;
  return {
    ...withoutTrial(known),
    objects: Math.min(known.objects, accepted),
    tooMany: Math.min(known.tooMany ?? Infinity, objects),
    seconds,
    reason: `${objects} failed, and never were more than ${accepted} accepted`,
    changedAt: now,
  };
}

/** The size that was taken for too many may have failed, or hung, for that object: it is tried once more. */
function afterFailureAlone(known: RequestSize, now: Date): RequestSize {
  if (known.tooMany === null) return known;
  return {
    ...withoutTrial(known),
    objects: Math.max(known.objects, known.tooMany),
    tooMany: null,
    reason: 'larger requests failed for one object, and not for their size',
    changedAt: now,
  };
}

function isMoreThanEver({ accepted }: RequestSize, objects: number): boolean {
  return objects > Math.max(accepted, FIRST_OBJECTS);
}

/** `triedAgainAt`: what was too large counts no more. */
function afterAcceptance(
  known: RequestSize,
  { objects, bytes }: SentRequest,
  triedAgainAt?: Date,
): RequestSize {
  const { tooMany, refusedBytes } = known;
  const isForgotten = refusedBytes !== null && triedAgainAt !== undefined;
  return {
    ...known,
    accepted: Math.max(known.accepted, objects),
    tooMany: tooMany !== null && tooMany <= objects ? null : tooMany,
    acceptedBytes: Math.max(known.acceptedBytes, bytes),
    refusedBytes: isForgotten || (refusedBytes !== null && refusedBytes <= bytes) ? null : refusedBytes,
    changedAt: isForgotten ? triedAgainAt : known.changedAt,
  };
}

function withoutTrial(size: RequestSize): RequestSize {
  return { ...size, before: undefined };
}
