// The stores of the service, and finds in them. A store has the records of one kind: types, fields, objects, reservations or
// cancellations. Each has an integer id, which the service chooses, and an external id, or none. A record is replaced, never
// changed, so it can be handed out without a copy.
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

// The envelope of every find, and the filters that all finds have in common.

// A greater number of seconds is after the year 9999: these are milliseconds.
const LAST_SECOND = 253_402_300_799;
const DEFAULT_LIMIT = 100;

const seconds = z.int().min(0).max(LAST_SECOND, 'Unix seconds expected, this looks like milliseconds');

export const period = z.strictObject({ startDate: seconds, endDate: seconds });

export const find = z.strictObject({
  idFormat,
  page: z.int().min(1).default(1),
  limit: z.int().min(1).default(DEFAULT_LIMIT),
  ids: z.array(z.int()).optional(),
  extIds: z.array(z.string()).optional(),
  sort: z.literal('ASCID').optional(),
});
export type FindRequest = z.infer<typeof find>;

type Filter<T> = (record: T) => boolean;

/** The records that a find takes from a store, page by page. */
export interface FindSelection<T> {
  show: (record: T) => unknown;
  /** A filter too: only what is listed in this group of the store. */
  group?: string | undefined;
  /** The filters that were given; undefined for one that was not. */
  filters?: readonly (Filter<T> | undefined)[];
  /** False for what is found only if it is listed. */
  isVisible?: Filter<T>;
}

interface PageRules {
  /** Most results on one page; a greater limit is lowered to it. */
  maxPage: number;
  /** So many pages at the end are empty, although the answer counts them. */
  missingPages: number;
}

/** A page of a find's selection, in ascending id order. */
export function findPage<T extends Identified>(
  store: IdStore<T>,
  request: FindRequest,
  selection: FindSelection<T>,
  { maxPage, missingPages }: PageRules,
) {
  const selected = select(store, request, selection);
  const { page } = request;
  const limit = Math.min(request.limit, maxPage);
  const totalPages = Math.ceil(selected.length / limit);
  const isMissing = page > totalPages - missingPages;
  return {
    results: isMissing ? [] : selected.slice((page - 1) * limit, page * limit).map(selection.show),
    limit,
    page,
    totalPages,
    totalResults: selected.length,
  };
}

/**
 * `ids` and `extIds` are a union with the other filters: what they list is found although it does not match the rest.
 * Without other filters only what they list is found. A whole group is not copied.
 */
function select<T extends Identified>(
  store: IdStore<T>,
  { ids = [], extIds = [] }: FindRequest,
  { group, filters = [], isVisible }: FindSelection<T>,
): readonly T[] {
  // An empty list is no filter: alone it selects everything, as if it had been left out.
  const keys = [...ids, ...extIds];
  const listed = new Set(keys.flatMap((key) => store.get(key) ?? []));
  const named = filters.filter((filter) => filter !== undefined);
  const byId = (a: T, b: T) => a.id - b.id;
  if (keys.length > 0 && named.length === 0 && group === undefined) return [...listed].sort(byId);
  const conditions = isVisible === undefined ? named : [isVisible, ...named];
  const candidates = store.list(group);
  const matching =
    conditions.length === 0
      ? candidates
      : candidates.filter((record) => conditions.every((condition) => condition(record)));
  return listed.size === 0 ? matching : [...new Set([...matching, ...listed])].sort(byId);
}

/** The filter for what was changed within a period, both ends included. */
export function modifiedWithin(within: z.infer<typeof period> | undefined) {
  return (
    within &&
    (({ modified }: { modified: number }) => modified >= within.startDate && modified <= within.endDate)
  );
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
