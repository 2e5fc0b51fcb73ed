// An object at which the service fails (5xx, no answer, the page of a gateway) spoils every request that it is in, and no
// answer names it. So the attempts after a failed one send the batch in parts, and a part that fails is divided again, until
// the object stands alone. A service that is down fails at every part: as long as it answers nothing, an attempt ends
// after two requests. State of one batch in one attempt; it sends nothing.
import type { PutObject } from '../../destination/destination.js';
import { isSpoiled } from '../../destination/http-errors.js';
import { codeOf, SlotsyncError } from '../../errors/errors.js';
import type { Write } from '../object/decide-outcome.js';

/** Findings of the earlier attempts of a batch. */
export interface EarlierFailures {
  /** Attempts that failed at a request that was sent. */
  count: number;
  /** In one of them the service failed at some objects and answered others. */
  isBeside: boolean;
  /** So it did, and each of those it failed at was sent alone. */
  areAlone: boolean;
}

/** An attempt of a batch: the failures of earlier attempts, and whether its own requests were answered. */
export interface BatchAttempt {
  readonly earlier: EarlierFailures;
  /** Others were answered in it, also before some objects were read again. Set here. */
  isAnswered: boolean;
}

export const NO_FAILURES: EarlierFailures = { count: 0, isBeside: false, areAlone: false };

/** Code of a record at which the service fails, and of an attempt in which it failed at some objects and accepted others. */
export const FAILS_ON_OBJECT = 'service_fails_on_object';

/** External ids of the objects at which the service failed before. */
export const suspectsOf = (writes: readonly Write[]): ReadonlySet<string> =>
  new Set(writes.flatMap(({ object, record }) => (record.errorCode === FAILS_ON_OBJECT ? object.extId : [])));

/** Quarters cost as many requests as halves, and half of the timeouts. */
const PARTS = 4;
/** Failures in a row that end an attempt, before and after something was answered. */
const MOST_FAILURES = { before: 2, after: 20 };
/** Requests of one batch under way: one that is never answered keeps its slot of the quota until the timeout. */
const AT_ONCE = 4;
/** Failed attempts before the one in which an object that fails alone is taken for the cause: some seconds. */
const ATTEMPTS_BEFORE = 3;
/** The same where it was never sent alone while others were answered: half a minute. */
const ATTEMPTS_WITHOUT_OTHERS = 5;

export type Narrowing = ReturnType<typeof createNarrowing>;

/** The findings after an attempt that ended with this error. */
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

/** `areKnown`: the service failed at each of these objects before, so each is sent alone, and once. */
export function createNarrowing(attempt: BatchAttempt, areKnown = false) {
  const { count, isBeside, areAlone } = attempt.earlier;
  /** Objects in one request, by an object that was in one that failed. */
  const limits = new Map<PutObject, number>();
  /** Failed alone: they are not sent again in this attempt. */
  const alone = new Map<PutObject, unknown>();
  let isAnyAnswered = attempt.isAnswered || areAlone || (isBeside && count >= ATTEMPTS_WITHOUT_OTHERS);
  let failuresInRow = 0;
  let answers = 0;
  /** Failure of the objects that have to wait for the next attempt. */
  let left: { error: unknown } | undefined;

  return {
    /** Requests that may be under way at once. */
    atOnce: () => (areKnown ? 1 : isAnyAnswered ? AT_ONCE : MOST_FAILURES.before - failuresInRow),

    /** Others go first in each attempt: those that went first may be the ones that fail. */
    inOrder(objects: readonly PutObject[]): PutObject[] {
      const from = Math.floor((objects.length * count) / PARTS) % Math.max(1, objects.length);
      return [...objects.slice(from), ...objects.slice(0, from)];
    },

    /** An object that fails alone now is the cause itself, and was not known for it before. */
    isNarrowed: () => isAnyAnswered && !areKnown,

    /**
     * Objects in a request with this one, when `most` were sent at once otherwise. Where the service may have been down, more
     * after each answer.
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
     * A request failed, of which these objects have no answer. Returns those that are to be sent again; undefined: nothing
     * more of the batch is sent in this attempt. `isStale`: they would have to be read again.
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

    /** The objects that the service fails on, with the failure of each: when every one that is left failed alone. */
    culprits: (): ReadonlyMap<PutObject, unknown> =>
      areKnown || (isAnyAnswered && !left && count >= ATTEMPTS_BEFORE) ? alone : new Map(),

    /** The failure of the attempt; `failure`: what it was ended by. Undefined: nothing is left for another attempt. */
    failure(failure = left): { error: unknown } | undefined {
      const [first] = this.culprits().size > 0 ? [] : alone.values();
      const given = failure ?? (first === undefined ? undefined : { error: first });
      if (!given || !isAnyAnswered || !isSpoiled(given.error)) return given;
      return { error: serviceFailsOnObject(given.error, areAlone || left === undefined) };
    },
  };
}

/** The failure of a request beside others that were answered. `areAlone`: of one object, or of several, each in its own. */
export function serviceFailsOnObject(cause: unknown, areAlone: boolean): SlotsyncError {
  const message = 'the service failed at some objects, and answered others of the batch';
  return new SlotsyncError(FAILS_ON_OBJECT, message, { facts: { areAlone }, cause });
}
