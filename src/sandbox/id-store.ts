// What the service stores of one kind (types, fields, objects, reservations, cancellations): each has an integer id, which
// the service gives, and an external id, or none. It is replaced, never changed, so it can be handed out without a copy.
import { z } from 'zod';
import { createAscending, type Ascending } from './ascending.js';
import { Refusal } from './http.js';

/** A reference: the external id with `idFormat` EXTERNAL, the integer id with INTERNAL. */
export const reference = z.union([z.string().min(1), z.int()]);
export type ObjectReference = z.infer<typeof reference>;

export const idFormat = z.enum(['INTERNAL', 'EXTERNAL']).default('INTERNAL');
export type IdFormat = z.infer<typeof idFormat>;

export interface Identified {
  id: number;
  /** Null: no external reference can name it. */
  extId: string | null;
}

/**
 * A store of what `noun` names, empty at first. Ids ascend from `first` in the order of creation. `groupOf` says in which
 * group it is listed.
 */
export function createIdStore<T extends Identified>(
  noun: string,
  first: number,
  groupOf: (one: T) => string = () => '',
) {
  const byId = new Map<number, T>();
  const byExtId = new Map<string, T>();
  const everything = createAscending<T>();
  const groups = new Map<string, Ascending<T>>();
  let nextId = first;

  const get = (key: ObjectReference): T | undefined =>
    typeof key === 'number' ? byId.get(key) : byExtId.get(key);
  /** What a reference names, if anything; a 400 when it is not of the kind that `idFormat` announced. */
  const resolve = (given: ObjectReference, format: IdFormat): T | undefined => {
    const [kind, expected] = format === 'EXTERNAL' ? ['string', 'a string'] : ['number', 'an integer'];
    if (typeof given === kind) return get(given);
    throw new Refusal(400, `${noun}Id: ${expected} expected with idFormat ${format}`);
  };
  const groupFor = (one: T): Ascending<T> => {
    const name = groupOf(one);
    const group = groups.get(name) ?? createAscending<T>();
    groups.set(name, group);
    return group;
  };
  /** Takes it out of the groups and the external ids, before it is replaced or removed. */
  const unlist = (one: T): void => {
    groupFor(one).remove(one.id);
    if (one.extId !== null && byExtId.get(one.extId) === one) byExtId.delete(one.extId);
  };

  return {
    nextId: () => nextId,
    get,
    resolve,
    /** What a reference names; a 400 when there is nothing. */
    require(given: ObjectReference, format: IdFormat): T {
      const found = resolve(given, format);
      if (found === undefined) throw new Refusal(400, `unknown ${noun} ${given}`);
      return found;
    },
    /** In ascending id order. */
    all: (): T[] => [...everything.list],
    /** In ascending id order, all or those of a group: not a copy, it changes with the next write. */
    listed: (group?: string): readonly T[] =>
      group === undefined ? everything.list : (groups.get(group)?.list ?? []),
    /** Adds it, or replaces the one that has its id. */
    put(one: T): T {
      const replaced = byId.get(one.id);
      if (replaced !== undefined && (replaced.extId !== one.extId || groupOf(replaced) !== groupOf(one)))
        unlist(replaced);
      byId.set(one.id, one);
      everything.put(one);
      groupFor(one).put(one);
      if (one.extId !== null) byExtId.set(one.extId, one);
      nextId = Math.max(nextId, one.id + 1);
      return one;
    },
    remove(one: T): void {
      byId.delete(one.id);
      everything.remove(one.id);
      unlist(one);
    },
    /** The reference by which an answer shows it; 0 for what is not stored. */
    shown: (extId: string, format: IdFormat): ObjectReference =>
      format === 'EXTERNAL' ? extId : (byExtId.get(extId)?.id ?? 0),
  };
}

export type IdStore<T extends Identified> = ReturnType<typeof createIdStore<T>>;
