// The envelope of every find, and the filters that all finds have in common.
import { z } from 'zod';
import { idFormat, type Identified, type IdStore } from './id-store.js';

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

export interface PageRules {
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
