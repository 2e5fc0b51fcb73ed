// The service's store of one kind (types, fields, objects, reservations, cancellations): each record has an integer id, which
// the service chooses, and an external id, or none. A record is replaced, never changed, so it can be handed out without a copy.
import { z } from 'zod';
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
 * A store of `noun`s, empty at first. Ids ascend from `first` in the order of creation. `groupOf` names a record's group.
 * Records are found by external ids whose `compared` is the same.
 */
export function createIdStore<T extends Identified>(
  noun: string,
  first: number,
  groupOf: (record: T) => string = () => '',
  compared: (extId: string) => string = (extId) => extId,
) {
  const byId = new Map<number, T>();
  const byExtId = new Map<string, T>();
  /** By group, and all records by undefined. They are kept until the next write: one page of a million is read without copying them. */
  const lists = new Map<string | undefined, readonly T[]>();
  let nextId = first;

  const get = (key: ObjectReference): T | undefined =>
    typeof key === 'number' ? byId.get(key) : byExtId.get(compared(key));
  /** The record that a reference names, if any; a 400 when it is not of the kind that `idFormat` announced. */
  const resolve = (key: ObjectReference, format: IdFormat): T | undefined => {
    const [kind, expected] = format === 'EXTERNAL' ? ['string', 'a string'] : ['number', 'an integer'];
    if (typeof key === kind) return get(key);
    throw new Refusal(400, `${noun}Id: ${expected} expected with idFormat ${format}`);
  };
  const remove = (record: T): void => {
    byId.delete(record.id);
    if (record.extId !== null && get(record.extId) === record) byExtId.delete(compared(record.extId));
    lists.clear();
  };

  return {
    nextId: () => nextId,
    get,
    resolve,
    /** The record that a reference names; a 400 when it is not stored. */
    require(key: ObjectReference, format: IdFormat): T {
      const found = resolve(key, format);
      if (found === undefined) throw new Refusal(400, `unknown ${noun} ${key}`);
      return found;
    },
    /** In ascending id order, all or those of a group. */
    list(group?: string): readonly T[] {
      const list =
        lists.get(group) ??
        [...byId.values()]
          .filter((record) => group === undefined || groupOf(record) === group)
          .sort((a, b) => a.id - b.id);
      lists.set(group, list);
      return list;
    },
    /** Adds it, or replaces the one that has its id. */
    put(record: T): T {
      const replaced = byId.get(record.id);
      if (replaced !== undefined && replaced.extId !== record.extId) remove(replaced);
      byId.set(record.id, record);
      if (record.extId !== null) byExtId.set(compared(record.extId), record);
      nextId = Math.max(nextId, record.id + 1);
      lists.clear();
      return record;
    },
    remove,
    /** The reference by which an answer shows it; 0 for what is not stored. */
    shown: (extId: string, format: IdFormat): ObjectReference =>
      format === 'EXTERNAL' ? extId : (get(extId)?.id ?? 0),
  };
}

export type IdStore<T extends Identified> = ReturnType<typeof createIdStore<T>>;
