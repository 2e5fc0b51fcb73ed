// Finds of objects: by external id, by number, by type and by field values.
import type { Filter } from '../dialect/dialect.js';
import type { Logger } from '../process/logger.js';
import type { FieldValues } from '../streams/destination-object.js';
import { findSimilarIds } from '../streams/external-id-rule.js';
import { DigestSet } from '../text/digest-set.js';
import { ONE_RESULT, type Client } from './client.js';
import type { Context } from './exchange.js';
import { byExtIds, byIds, note, PAGES_AT_ONCE, type Finder, type Unreadable } from './find-pages.js';
import { answeredOtherwise } from './http-errors.js';
import { knownAs } from './match-results.js';
import { eachPage, readAgainWhenMoved, type Page } from './paging.js';
import { isFaulty, type FoundObject, type Reader, type ServiceObject } from './read-answers.js';

interface ObjectFindOptions {
  pageSize: number;
  searchByFields?: boolean | undefined;
  derivedFields?: boolean | undefined;
  log: Logger;
}

export function createObjectFinds(
  { pageSize, searchByFields = true, derivedFields: derived, log }: ObjectFindOptions,
  client: Client,
  { findPage, findNamed }: Finder,
  { finds, toKey, faultOf, skipNotUnderstood, toFoundObject }: Reader,
) {
  /**
   * Returns objects by external id; absent objects are missing from the result. An object that cannot be read, or has
   * another id in the answer, is noted in `unreadable`; without `unreadable`, an error is thrown. `suspects` are ids on
   * which the service failed before.
   */
  async function findObjects(
    extIds: readonly string[],
    typeId: string,
    context: Context,
    unreadable?: Unreadable,
    suspects?: ReadonlySet<string>,
  ) {
    const wanted = new Set(extIds);
    const objects = new Map<string, ServiceObject>();
    const strays: string[] = [];
    const find = (ids: readonly string[]) =>
      findNamed(finds.objects, ids, byExtIds, context, { unreadable, suspects });
    const all = await find(extIds);
    const answered = new Set(all.flatMap((found) => (found.extId ? toKey(found.extId) : [])));
    // A service that treats two ids as equal returns their object once. The id without an answer is requested alone.
    const absent = extIds.filter((extId) => !answered.has(extId) && !unreadable?.has(extId));
    const hidden = new Set(findSimilarIds(answered, absent));
    const again = hidden.size > 0 ? await find([...hidden]) : [];
    for (const { extId } of again) if (extId && !hidden.has(toKey(extId))) strays.push(extId);
    for (const found of [...all, ...again]) {
      const extId = toKey(found.extId ?? '');
      const other = objects.get(extId);
      if (!wanted.has(extId)) strays.push(found.extId ?? '');
      else if (isFaulty(found)) note(unreadable, extId, faultOf(found));
      else if (other && other.id !== found.id)
        note(
          unreadable,
          extId,
          answeredOtherwise(`'${extId}' is the external id of two objects, ${other.id} and ${found.id}`),
        );
      else objects.set(extId, { ...toFoundObject(found, typeId), extId });
    }
    const missing = [...wanted].filter((extId) => !objects.has(extId));
    for (const stray of strays) {
      const similar = findSimilarIds([stray], missing);
      const same = similar.filter((extId) => findSimilarIds([extId], [stray]).length > 0);
      for (const extId of same.length > 0 ? same : similar)
        note(unreadable, extId, answeredOtherwise(knownAs(extId, stray)));
    }
    return objects;
  }

  /** Reads all objects of a type page by page: see `readTypes`. */
  async function* pagesOf(
    typeId: string,
    context: Context,
    { pace, skips }: { pace: () => Promise<void>; skips: boolean },
  ): AsyncGenerator<FoundObject[]> {
    const filter = { by: 'type', typeId, derived } as const;
    const send = async (page: Page) => {
      await pace();
      const answer = await findPage(finds.listed, filter, page, context, skips);
      const { skipped = 0 } = answer;
      if (skipped > 0)
        log.warn({ skipped, typeId }, 'skipped objects of a type, because the service fails on them');
      return answer;
    };
    const { call } = client.find('objects', filter);
    let understood = 0;
    const faulty = [];
    for await (const results of eachPage(send, { call, pageSize, atOnce: PAGES_AT_ONCE })) {
      const page = skipNotUnderstood(results);
      understood += page.length;
      if (understood === 0) for (const found of results) if (isFaulty(found)) faulty.push(found);
      yield page.map((found) => toFoundObject(found, typeId));
    }
    // If no object of a type can be understood, the type has an unknown form. Skipping all objects would hide that.
    const [first, second] = faulty;
    if (first && second && understood === 0) throw faultOf(first);
  }

  /**
   * Reads all objects of the types, including inactive ones. `read` gets the objects page by page, each object once,
   * and its result is returned. If objects come or go meanwhile, `read` is called again from the beginning.
   *
   * `pace` is awaited before each request. With `skips`, objects on which the service fails are left out, so `read`
   * must not treat missing objects as absent.
   */
  function readTypes<T>(
    types: Iterable<string>,
    context: Context,
    read: (pages: AsyncIterable<readonly FoundObject[]>) => Promise<T>,
    { pace = async () => undefined, skips = true }: { pace?: () => Promise<void>; skips?: boolean } = {},
  ): Promise<T> {
    const all = [...types];
    /** Drops duplicates: the service may return an object of a subtype also for the parent type. */
    async function* pages(): AsyncGenerator<FoundObject[]> {
      const seen = new DigestSet();
      const isFirst = ({ id }: FoundObject) => seen.add(id);
      for (const type of all)
        for await (const page of pagesOf(type, context, { pace, skips }))
          yield all.length > 1 ? page.filter(isFirst) : page;
    }
    const { call } = client.find('objects', { by: 'type', typeId: all[0] ?? '', derived });
    return readAgainWhenMoved(call, () => read(pages()));
  }

  /** Returns the wanted objects of these types, or all objects. Reads all, but keeps only wanted ones in memory. */
  const listObjects = (
    types: Iterable<string>,
    context: Context,
    isWanted: (object: FoundObject) => boolean = () => true,
  ): Promise<FoundObject[]> => {
    const read = async (pages: AsyncIterable<readonly FoundObject[]>) => {
      const objects: FoundObject[] = [];
      for await (const page of pages) for (const object of page) if (isWanted(object)) objects.push(object);
      return objects;
    };
    return readTypes(types, context, read, { skips: false });
  };

  return {
    findObjects,

    /** Returns objects by the service's numbers, whatever their external ids. */
    async findObjectsByNumber(
      ids: readonly string[],
      typeId: string,
      context: Context,
      unreadable?: Unreadable,
    ): Promise<Map<string, FoundObject>> {
      const objects = new Map<string, FoundObject>();
      for (const found of await findNamed(finds.objects, ids, byIds, context, { unreadable }))
        if (isFaulty(found)) note(unreadable, found.id, faultOf(found));
        else objects.set(found.id, toFoundObject(found, typeId));
      return objects;
    },

    readTypes,
    listObjects,

    /** Counts all objects of these types, one request a type. Returns undefined if the service states no total. */
    async countObjects(types: Iterable<string>, context: Context): Promise<number | undefined> {
      let sum = 0;
      for (const typeId of types) {
        const answer = await findPage(finds.listed, { by: 'type', typeId }, ONE_RESULT, context);
        sum += answer.totalResults ?? NaN;
      }
      return Number.isNaN(sum) ? undefined : sum;
    },

    /**
     * Returns the wanted objects of these types that have the field values of an entry in `sought`. Uses the service's
     * search by fields, or reads all objects of the types. The search may return too many objects, so `isWanted` checks
     * each one. A name in `sought` whose search always fails is noted in `unreadable`.
     */
    async findObjectsByFields(
      types: Iterable<string>,
      sought: ReadonlyMap<string, readonly FieldValues[]>,
      isWanted: (object: FoundObject) => boolean,
      context: Context,
      unreadable: Unreadable,
    ): Promise<FoundObject[]> {
      if (!searchByFields) return listObjects(types, context, isWanted);
      const wanted = new Map<string, FoundObject>();
      for (const typeId of types) {
        const filterOf = (part: readonly string[]): Filter => {
          const fields = valuesByField(part.flatMap((name) => sought.get(name) ?? []));
          return { by: 'fields', typeId, fields, derived };
        };
        const names = [...sought.keys()].filter((name) => !unreadable.has(name));
        const found = await findNamed(finds.listed, names, filterOf, context, { unreadable });
        for (const result of skipNotUnderstood(found)) {
          const object = toFoundObject(result, typeId);
          if (isWanted(object)) wanted.set(object.id, object);
        }
      }
      return [...wanted.values()];
    },

    searchesByFields: searchByFields,
  };
}

/** Merges entries of the same field, so that each field occurs once with all its values. */
function valuesByField(given: readonly FieldValues[]): FieldValues[] {
  const all = new Map<string, Set<string>>();
  for (const { fieldId, values } of given) {
    const ofField = all.get(fieldId) ?? new Set();
    for (const value of values) ofField.add(value);
    all.set(fieldId, ofField);
  }
  return [...all].map(([fieldId, values]) => ({ fieldId, values: [...values] }));
}
