// Finds the object on which the service fails (5xx, no answer, a gateway's error page). Such an object fails every
// request that contains it, and no answer names it. So attempts after a failure send smaller and smaller parts. A
// service that is down fails on every part: without any answer, an attempt ends after two requests. This module keeps
// the state of one attempt, and sends nothing.
import type { PutObject } from '../../destination/destination.js';
import { isSpoiled } from '../../destination/http-errors.js';
import { codeOf, SlotsyncError } from '../../errors/errors.js';
import type { Write } from '../object/decide-outcome.js';

/** Failures of the earlier attempts of a batch. */
export interface EarlierFailures {
  /** Number of attempts that failed on a request that was sent. */
  count: number;
  /** True if, within one attempt, the service failed on some objects and answered for others. */
  isBeside: boolean;
  /** True if `isBeside`, and each object on which the service failed was sent alone. */
  areAlone: boolean;
}

/** An attempt of a batch: failures of earlier attempts, and whether this attempt got answers. */
export interface BatchAttempt {
  readonly earlier: EarlierFailures;
  /** Set to true when a request of this attempt is answered. It stays true when objects are read again. */
  isAnswered: boolean;
}

export const NO_FAILURES: EarlierFailures = { count: 0, isBeside: false, areAlone: false };

/** Error code of a record on which the service fails, and of an attempt in which other objects were answered. */
export const FAILS_ON_OBJECT = 'service_fails_on_object';

/** Returns external ids of objects on which the service failed in an earlier run. */
export const suspectsOf = (writes: readonly Write[]): ReadonlySet<string> =>
  new Set(writes.flatMap(({ object, record }) => (record.errorCode === FAILS_ON_OBJECT ? object.extId : [])));

/** Number of parts. Four need as many requests as halving, but only half the timeouts. */
const PARTS = 4;
/** Successive failures that end an attempt, before and after the first answer. */
const MOST_FAILURES = { before: 2, after: 20 };
/** Maximum number of requests of a batch in flight. Unanswered requests keep their slots until the timeout. */
const AT_ONCE = 4;
/** Failed attempts, some seconds apart, before an object that fails alone is blamed. */
const ATTEMPTS_BEFORE = 3;
/** Failed attempts, over half a minute, if no other object was answered in the same attempt. */
const ATTEMPTS_WITHOUT_OTHERS = 5;

export type Narrowing = ReturnType<typeof createNarrowing>;

/** Adds an attempt's error to the findings of earlier attempts. */
export function afterFailure(earlier: EarlierFailures, error: unknown): EarlierFailures {
  const isBeside = codeOf(error) === FAILS_ON_OBJECT;
  if (!isBeside && !isSpoiled(error)) return earlier;
  const areAlone = error instanceof SlotsyncError && error.facts['areAlone'] === true;
  return {
    count: earlier.count + 1,
    isBeside: earlier.isBeside || isBeside,
    areAlone: earlier.areAlone || areAlone,
  };
}

/** Tracks a batch's parts in one attempt. `areKnown`: the service failed on each object before; each is sent alone. */
export function createNarrowing(attempt: BatchAttempt, areKnown = false) {
  const { count, isBeside, areAlone } = attempt.earlier;
  /** Maximum request size for objects of a failed request, by object. */
  const limits = new Map<PutObject, number>();
  /** Objects that failed alone, with their errors. They are not sent again in this attempt. */
  const alone = new Map<PutObject, unknown>();
  let isAnyAnswered = attempt.isAnswered || areAlone || (isBeside && count >= ATTEMPTS_WITHOUT_OTHERS);
  let failuresInRow = 0;
  let answers = 0;
  /** Error of the objects that must wait for the next attempt. */
  let left: { error: unknown } | undefined;

  return {
    /** Returns the maximum number of requests in flight. */
    atOnce: () => (areKnown ? 1 : isAnyAnswered ? AT_ONCE : MOST_FAILURES.before - failuresInRow),

    /** Rotates the objects in each attempt, because the first ones sent before may be the failing ones. */
    inOrder(objects: readonly PutObject[]): PutObject[] {
      const from = Math.floor((objects.length * count) / PARTS) % Math.max(1, objects.length);
      return [...objects.slice(from), ...objects.slice(0, from)];
    },

    /** True if an object that fails alone now must itself be the cause. */
    isNarrowed: () => isAnyAnswered && !areKnown,

    /**
     * Returns the maximum request size for this object. `most`: normal size. If the service may have been down, the
     * size grows with each answer.
     */
    limitOf(object: PutObject, most: number): number {
      if (areKnown) return 1;
      const divisions = isBeside ? count : Math.max(1, count - answers);
      return Math.min(limits.get(object) ?? Infinity, Math.ceil(most / PARTS ** divisions));
    },

    answered(): void {
      isAnyAnswered = true;
      attempt.isAnswered = true;
      answers++;
      failuresInRow = 0;
    },

    /**
     * Notes a failed request. Returns its objects that should be sent again, or undefined if the attempt must end.
     * `isStale`: the objects would have to be read again.
     */
    failed(
      objects: readonly PutObject[],
      error: unknown,
      isStale: boolean,
    ): readonly PutObject[] | undefined {
      const [only] = objects;
      const isAlone = only !== undefined && objects.length === 1;
      if (isAlone) alone.set(only, error);
      failuresInRow++;
      const isEnough = failuresInRow >= MOST_FAILURES[isAnyAnswered || areKnown ? 'after' : 'before'];
      if (isEnough || (isStale && !isAlone)) left ??= { error };
      if (isEnough) return undefined;
      if (isAlone || isStale) return [];
      for (const object of objects) limits.set(object, Math.ceil(objects.length / PARTS));
      return objects;
    },

    /** Returns the failing objects with their errors. Empty unless every remaining object failed alone. */
    culprits: (): ReadonlyMap<PutObject, unknown> =>
      areKnown || (isAnyAnswered && !left && count >= ATTEMPTS_BEFORE) ? alone : new Map(),

    /** Returns the attempt's error, or undefined if no object is left. `failure`: error that ended the attempt. */
    failure(failure = left): { error: unknown } | undefined {
      const [first] = this.culprits().size > 0 ? [] : alone.values();
      const given = failure ?? (first === undefined ? undefined : { error: first });
      if (!given || !isAnyAnswered || !isSpoiled(given.error)) return given;
      return { error: serviceFailsOnObject(given.error, areAlone || left === undefined) };
    },
  };
}

/** Makes the error for failures beside answered objects. `areAlone`: each failing object was sent alone. */
export function serviceFailsOnObject(cause: unknown, areAlone: boolean): SlotsyncError {
  const message = 'the service failed at some objects, and answered others of the batch';
  return new SlotsyncError(FAILS_ON_OBJECT, message, { facts: { areAlone }, cause });
}
