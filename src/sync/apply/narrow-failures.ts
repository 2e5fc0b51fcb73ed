// Finds the object that makes the service fail with a 5xx, a timeout or a gateway's error page. No answer names the
// object, and all objects of its request fail. So the batch is sent again in smaller and smaller requests, until the
// object is alone. If the whole service is down, every request fails: without any answer, an attempt ends after two
// requests. This module keeps the state of one attempt.
import type { PutObject } from '../../destination/destination.js';
import { isSpoiled } from '../../destination/http-errors.js';
import { codeOf, SlotsyncError } from '../../errors/errors.js';
import type { Write } from '../object/decide-outcome.js';

/** Failures of earlier attempts of a batch, by which the failing object is found. */
export interface EarlierFailures {
  /** Number of attempts in which a request failed at the service. */
  count: number;
  /** True if an attempt had failed requests as well as answered ones. Then the service is not down. */
  isBeside: boolean;
  /** True if an attempt also sent each failing object alone. */
  areAlone: boolean;
}

export interface BatchAttempt {
  readonly earlier: EarlierFailures;
  /** Set to true when any request of this attempt is answered. */
  isAnswered: boolean;
}

export const NO_FAILURES: EarlierFailures = { count: 0, isBeside: false, areAlone: false };

/** Error code of a record whose object makes the service fail. Also the code of an attempt with such failures. */
export const FAILS_ON_OBJECT = 'service_fails_on_object';

/** Returns external ids of objects on which an earlier run saw the service fail. */
export const suspectsOf = (writes: readonly Write[]): ReadonlySet<string> =>
  new Set(writes.flatMap(({ object, record }) => (record.errorCode === FAILS_ON_OBJECT ? object.extId : [])));

/** Parts into which a failed request is divided. Four need as many requests as two, but half the timeouts. */
const PARTS = 4;
/** Maximum number of failures in a row before an attempt ends: before and after the first answer. */
const MOST_FAILURES = { before: 2, after: 20 };
/** Maximum number of unanswered requests of a batch. Each keeps a slot of the quota until its timeout. */
const AT_ONCE = 4;
/** Number of failed attempts before an object that fails alone is considered the cause. */
const ATTEMPTS_BEFORE = 3;
/**
 * Failed attempts before an object is considered the cause, if the last attempts had no answers, but an earlier one had. If no
 * attempt had any, the service may be down: the objects stay failed, and a later run sends them beside others.
 */
const ATTEMPTS_WITHOUT_OTHERS = 5;

export type Narrowing = ReturnType<typeof createNarrowing>;

/** Adds the result of an attempt that ended with an error. */
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

/** Divides a batch in one attempt. `areKnown`: the objects failed in an earlier run, so each is sent alone, once. */
export function createNarrowing(attempt: BatchAttempt, areKnown = false) {
  const { count, isBeside, areAlone } = attempt.earlier;
  /** Maximum number of objects in a request that contains this object, after an earlier request failed. */
  const limits = new Map<PutObject, number>();
  /** Objects that failed in a request of their own, with the error. They are not sent again in this attempt. */
  const alone = new Map<PutObject, unknown>();
  let isAnyAnswered = attempt.isAnswered || areAlone || (isBeside && count >= ATTEMPTS_WITHOUT_OTHERS);
  let failuresInRow = 0;
  let answers = 0;
  /** Error of objects that are left to the next attempt. */
  let left: { error: unknown } | undefined;

  return {
    /** Returns how many requests of the batch may be unanswered at the same time. */
    atOnce: () => (areKnown ? 1 : isAnyAnswered ? AT_ONCE : MOST_FAILURES.before - failuresInRow),

    /** Returns the objects in another order for each attempt, since the first objects may be the failing ones. */
    inOrder(objects: readonly PutObject[]): PutObject[] {
      const from = Math.floor((objects.length * count) / PARTS) % Math.max(1, objects.length);
      return [...objects.slice(from), ...objects.slice(0, from)];
    },

    /** Returns true if the failure of a single object shows that this object is the cause. */
    isNarrowed: () => isAnyAnswered && !areKnown,

    /**
     * Returns the maximum number of objects in a request with this object. `most`: number without failures. If the
     * service may have been down, the number grows with each answer.
     */
    limitOf(object: PutObject, most: number): number {
      if (areKnown) return 1;
      const divisions = isBeside ? count : Math.max(1, count - answers);
      return Math.min(limits.get(object) ?? Infinity, Math.ceil(most / PARTS ** divisions));
    },

    answered(): void {
      isAnyAnswered = true;
      answers++;
      failuresInRow = 0;
    },

    /**
     * Notes that a request failed. Returns the objects to send again, or undefined if the attempt must end. `isStale`:
     * the objects must be read again first.
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

    /** Returns the objects that make the service fail, with errors. Empty if other objects are unanswered. */
    culprits: (): ReadonlyMap<PutObject, unknown> =>
      areKnown || (isAnyAnswered && !left && count >= ATTEMPTS_BEFORE) ? alone : new Map(),

    /** Returns the error with which the attempt ends. Undefined if all objects were answered or found to fail. */
    failure(failure = left): { error: unknown } | undefined {
      const [first] = this.culprits().size > 0 ? [] : alone.values();
      const given = failure ?? (first === undefined ? undefined : { error: first });
      if (!given || !isAnyAnswered || !isSpoiled(given.error)) return given;
      return { error: serviceFailsOnObject(given.error, areAlone || left === undefined) };
    },
  };
}

/** Returns the error of an attempt in which only some objects failed. `areAlone`: each was sent alone. */
export function serviceFailsOnObject(cause: unknown, areAlone: boolean): SlotsyncError {
  const message = 'the service failed on some objects of the batch, and answered others';
  return new SlotsyncError(FAILS_ON_OBJECT, message, { facts: { areAlone }, cause });
}
