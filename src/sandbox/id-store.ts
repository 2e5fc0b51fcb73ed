// What the service stores of one kind (types, fields, objects, reservations, cancellations): each has an integer id, which
// the service gives, and an external id. It is replaced, never changed, so it can be handed out without a copy.
import { z } from 'zod';
import { Refusal } from './http.js';

/** A reference: the external id with `idFormat` EXTERNAL, the integer id with INTERNAL. */
export const reference = z.union([z.string().min(1), z.int()]);
export type ObjectReference = z.infer<typeof reference>;

export const idFormat = z.enum(['INTERNAL', 'EXTERNAL']).default('INTERNAL');
export type IdFormat = z.infer<typeof idFormat>;

export interface Identified {
  id: number;
  extId: string;
}

/** A store of what `noun` names, empty at first. Ids ascend from `first` in the order of creation. */
export function createIdStore<T extends Identified>(noun: string, first: number) {
  let byId = new Map<number, T>();
  const byExtId = new Map<string, T>();
  const givenIds = new Map<string, number>();
  let nextId = first;

  const get = (key: ObjectReference): T | undefined =>
    typeof key === 'number' ? byId.get(key) : byExtId.get(key);
  /** What a reference names, if anything; a 400 when it is not of the kind that `idFormat` announced. */
  const resolve = (given: ObjectReference, format: IdFormat): T | undefined => {
    const [kind, expected] = format === 'EXTERNAL' ? ['string', 'a string'] : ['number', 'an integer'];
    if (typeof given === kind) return get(given);
    throw new Refusal(400, `${noun}Id: ${expected} expected with idFormat ${format}`);
  };

  return {
    nextId: () => nextId,
    /** The id that this external id has or had; the next one when it is new. */
    idFor: (extId: string): number => givenIds.get(extId) ?? nextId,
    get,
    resolve,
    /** What a reference names; a 400 when there is nothing. */
    require(given: ObjectReference, format: IdFormat): T {
      const found = resolve(given, format);
      if (found === undefined) throw new Refusal(400, `unknown ${noun} ${given}`);
      return found;
    },
    /** In ascending id order. */
    all: (): T[] => [...byId.values()],
    /** Adds it, or replaces the one that has its id. */
    put(one: T): T {
      const isOutOfOrder = one.id < nextId && !byId.has(one.id);
      byId.set(one.id, one);
      byExtId.set(one.extId, one);
      givenIds.set(one.extId, one.id);
      nextId = Math.max(nextId, one.id + 1);
      if (isOutOfOrder) byId = new Map([...byId].sort(([a], [b]) => a - b));
      return one;
    },
    remove(one: T): void {
      byId.delete(one.id);
      if (byExtId.get(one.extId) === one) byExtId.delete(one.extId);
    },
    /** The reference by which an answer shows it; 0 for what is not stored. */
    shown: (extId: string, format: IdFormat): ObjectReference =>
      format === 'EXTERNAL' ? extId : (byExtId.get(extId)?.id ?? 0),
  };
}

export type IdStore<T extends Identified> = ReturnType<typeof createIdStore<T>>;
