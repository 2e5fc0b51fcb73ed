// Stores of the sandbox, and the common part of finds. A store holds records of one kind, for example objects. Records
// are replaced, never changed, so they can be returned without a copy.
import { z } from 'zod';
import { Refusal } from './http.js';

/** Reference to a record by its external id. The service also has the format INTERNAL, which slotsync never uses. */
export const reference = z.string().min(1);
export const idFormat = z.literal('EXTERNAL');

/** Integer id or external id of a record. */
export type Key = number | string;

export interface Identified {
  id: number;
  /** External id. If null, no external reference can name the record. */
  extId: string | null;
}

/**
 * Creates an empty store. Integer ids ascend from `first`. `groupOf` returns the group of a record. External ids are
 * equal if `compared` returns the same text for both.
 */
export function createIdStore<T extends Identified>(
  noun: string,
  first: number,
  groupOf: (record: T) => string = () => '',
  compared: (extId: string) => string = (extId) => extId,
) {
  const byId = new Map<number, T>();
  const byExtId = new Map<string, T>();
  /** Sorted records by group (undefined: all). Cached until the next write, so that reading a page copies nothing. */
  const lists = new Map<string | undefined, readonly T[]>();
  let nextId = first;

  const get = (key: Key): T | undefined =>
    typeof key === 'number' ? byId.get(key) : byExtId.get(compared(key));
  const remove = (record: T): void => {
    byId.delete(record.id);
    if (record.extId !== null && get(record.extId) === record) byExtId.delete(compared(record.extId));
    lists.clear();
  };

  return {
    nextId: () => nextId,
    get,
    /** Returns the record of an external id. Throws a 400 Refusal if there is no such record. */
    require(extId: string): T {
      const found = get(extId);
      if (found === undefined) throw new Refusal(400, `unknown ${noun} ${extId}`);
      return found;
    },
    /** Returns the records of a group, or all records, in ascending order of id. */
    list(group?: string): readonly T[] {
      const list =
        lists.get(group) ??
        [...byId.values()]
          .filter((record) => group === undefined || groupOf(record) === group)
          .sort((a, b) => a.id - b.id);
      lists.set(group, list);
      return list;
    },
    /** Adds a record, or replaces the record with the same id. */
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
  };
}

export type IdStore<T extends Identified> = ReturnType<typeof createIdStore<T>>;

// The envelope of every find, and the filters that all finds have in common.

// A greater number of seconds is after the year 9999, so it must be milliseconds.
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

export interface FindSelection<T> {
  show: (record: T) => unknown;
  /** Group of the store. Like a filter, it excludes the records of other groups. */
  group?: string | undefined;
  filters?: readonly (Filter<T> | undefined)[];
  /** Returns false for a record that is found only if the request lists its id. */
  isVisible?: Filter<T>;
}

interface PageRules {
  /** Maximum number of results on one page. A greater limit is lowered to this number. */
  maxPage: number;
  /** Number of empty pages at the end, although the answer counts them. */
  missingPages: number;
}

/** Returns a page of the selected records, in ascending order of id. */
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
 * Selects records. `ids` and `extIds` form a union with the other filters: a listed record is found even if it matches
 * no filter. Without other filters, only listed records are found.
 */
function select<T extends Identified>(
  store: IdStore<T>,
  { ids = [], extIds = [] }: FindRequest,
  { group, filters = [], isVisible }: FindSelection<T>,
): readonly T[] {
  // An empty list of ids is no filter, as if the request had left it out.
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

/** Returns a filter for records that were changed within a period, including both ends. */
export function modifiedWithin(within: z.infer<typeof period> | undefined) {
  return (
    within &&
    (({ modified }: { modified: number }) => modified >= within.startDate && modified <= within.endDate)
  );
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
