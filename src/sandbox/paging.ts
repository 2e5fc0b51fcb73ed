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

type Filter<T> = (one: T) => boolean;

/** What a find takes from a store, page by page. */
export interface FindSelection<T> {
  show: (one: T) => unknown;
  /** The filters that were given; undefined for one that was not. */
  filters?: readonly (Filter<T> | undefined)[];
  /** False for what is found only if it is listed. */
  isVisible?: Filter<T>;
}

/**
 * One page of what a find selects, in ascending id order. `ids` and `extIds` are a union with the other filters: what
 * they list is found although it does not match the rest. Without other filters only what they list is found.
 */
export function findPage<T extends Identified>(
  store: IdStore<T>,
  request: FindRequest,
  { show, filters = [], isVisible = () => true }: FindSelection<T>,
  maxPage: number,
) {
  // An empty list is no filter: alone it selects everything, as if it had been left out.
  const keys = [...(request.ids ?? []), ...(request.extIds ?? [])];
  const listed = new Set(keys.flatMap((key) => store.get(key) ?? []));
  const given = filters.filter((filter) => filter !== undefined);
  const matches = (one: T) => isVisible(one) && given.every((filter) => filter(one));
  const selected =
    keys.length > 0 && given.length === 0
      ? [...listed].sort((a, b) => a.id - b.id)
      : store.all().filter((one) => listed.has(one) || matches(one));
  const { page } = request;
  const limit = Math.min(request.limit, maxPage);
  return {
    results: selected.slice((page - 1) * limit, page * limit).map(show),
    limit,
    page,
    totalPages: Math.ceil(selected.length / limit),
    totalResults: selected.length,
  };
}

/** The filter for what was changed within a period, both ends included. */
export function modifiedWithin(given: z.infer<typeof period> | undefined) {
  return (
    given &&
    (({ modified }: { modified: number }) => modified >= given.startDate && modified <= given.endDate)
  );
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}
