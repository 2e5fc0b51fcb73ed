// The scheduling service as the use cases see it: one function for each request, with our own types.
import { DEFAULT_DIALECT, type CompleteDialect } from '../dialect/complete-dialect.js';
import {
  NotUnderstood,
  type Filter,
  type FoundCancellation,
  type FoundObject as ReadObject,
  type FoundReservation,
  type Json,
  type Kind,
  type PutObject,
} from '../dialect/dialect.js';
import { codeOf, type SlotsyncError } from '../errors/errors.js';
import {
  createObject,
  type Carried,
  type DestinationObject,
  type FieldValues,
} from '../streams/destination-object.js';
import { isStorable } from '../streams/local-key.js';
import {
  findSimilarIds,
  isSimilarId,
  keyOf,
  toRule,
  type ExternalIdRule,
} from '../streams/external-id-rule.js';
import type { Place } from '../process/tracing.js';
import { retryDelayMs } from '../time/deadline.js';
import { createClient, ONE_RESULT, untilAnswered, type Client, type ClientOptions } from './client.js';
import type { Context } from './exchange.js';
import {
  answeredOtherwise,
  answerTooLarge,
  failsOnFound,
  isRequestTooLarge,
  invalidAnswer,
  isSpoiled,
  refusedContent,
} from './http-errors.js';
import { knownAs, matchResults, type PutResult } from './match-results.js';
import { askInParts, countKept, eachPage, readAgainWhenMoved, readPages, type Page } from './paging.js';
import { createPatience, noPatience, pause, type Patience } from './patience.js';
import { findUpcoming, type Period } from './upcoming-reservations.js';

export type { PutObject } from '../dialect/dialect.js';
export type { Period, UpcomingReservation } from './upcoming-reservations.js';
export type { PutResult } from './match-results.js';

export interface DestinationOptions extends Omit<ClientOptions, 'dialect'> {
  dialect?: CompleteDialect;
  pageSize: number;
  searchByFields?: boolean;
  assignExternalIds?: boolean;
  canChangeTypes?: boolean;
  derivedFields?: boolean;
  externalIds?: ExternalIdRule | undefined;
  /** Seconds after the request timeout within which the service may still carry out a write whose answer was lost. */
  lateWriteSeconds: number;
}

export interface ServiceObject extends DestinationObject {
  id: string;
}

/** An object of the service. `extId` is undefined for an object that was made by hand without an external id. */
export type FoundObject = Omit<ServiceObject, 'extId'> & { extId: string | undefined };

/** A type or a field. Without an external id, a configuration cannot refer to it. */
export interface Definition {
  id: string;
  extId: string | undefined;
  name: string | undefined;
}

/** Selects reservations or cancellations by period, by time of change, or by id. `most` is their maximum number. */
export type ReservationSelection =
  { window: Period; most?: number | undefined } | { modified: Period; most?: number | undefined } | Named;

/** Names of objects or reservations: external ids, or the service's own ids. */
type Named = { extIds: readonly string[] } | { ids: readonly string[] };

/** Reason by id why an object cannot be read. Needs one map for external ids and another for numbers. */
export type Unreadable = Map<string, SlotsyncError>;

/** Returns the filter of a find for some of the names. */
type FilterOf = (names: readonly string[]) => Filter;
const byIds: FilterOf = (ids) => ({ by: 'ids', ids });
const byExtIds: FilterOf = (extIds) => ({ by: 'extIds', extIds });

interface Narrowing {
  /** Maximum number of pages that are requested at the same time. */
  atOnce?: number;
  unreadable?: Unreadable | undefined;
  /** External ids on which the service failed before. Each is requested alone, once. */
  suspects?: ReadonlySet<string> | undefined;
}

/** Key of the fault in an object that could not be understood. A symbol, so that no key of an answer equals it. */
const FAULT = Symbol('fault');

/** An object of which only the ids could be understood. */
interface NotUnderstoodObject {
  id: string;
  extId?: string | null | undefined;
  [FAULT]: NotUnderstood;
}

/** Results of a find. If they would be more than `most`, `results` is empty and `tooMany` has their number. */
export interface Found<T> {
  results: T[];
  tooMany?: number;
}

const PAGES_AT_ONCE = 4;
/** Maximum number of ids in one find. */
const NAMED_AT_ONCE = 1000;
/** Consecutive failures that end a find by ids, before and after a first answer. The service then counts as down. */
const MOST_FAILURES = { before: 8, after: 20 };
/** Attempts with a single id, seconds apart, after which the id counts as the cause of the failures. */
const ATTEMPTS_ALONE = 3;

/** Number of reservations or cancellations that a probe reads to check whether they can be understood. */
const PROBED = 100;

type ObjectAsRead = ReadObject | NotUnderstoodObject;

interface Find<T> {
  kind: Kind;
  read: (found: Json) => T;
}

export type Destination = ReturnType<typeof openDestination>;

/**
 * Opens the service. All functions throw only SlotsyncError or the signal's reason. `patient` is a variant for commands
 * that only read: while the service fails, it sends finds again.
 */
export function createDestination(given: DestinationOptions): Destination & { patient: Destination } {
  const options = { ...given, dialect: given.dialect ?? DEFAULT_DIALECT };
  const client = createClient(options);
  const patience = createPatience(options.log, () => client.meanLatencyMs() !== undefined);
  return {
    ...openDestination(options, client, noPatience),
    patient: openDestination(options, client, patience),
  };
}

function openDestination(
  options: DestinationOptions & { dialect: CompleteDialect },
  client: Client,
  patience: Patience,
) {
  const { dialect } = options;
  const { searchByFields: searchesByFields = true } = options;

  /** Reads an object. If only its ids can be understood, the object is returned with the fault. */
  const objectsOf = (carries: boolean): Find<ObjectAsRead> => ({
    kind: 'objects',
    read(found) {
      try {
        const object = dialect.object.read(found, carries);
        for (const { carried } of carries ? [object, ...object.fields] : []) requireExact(sentBack(carried));
        return object;
      } catch (error) {
        if (!(error instanceof NotUnderstood)) throw error;
        const names = namesOf(found);
        if (!names) throw error;
        return { ...names, [FAULT]: error };
      }
    },
  });
  const namesOf = (found: Json) => {
    try {
      return dialect.object.identify(found);
    } catch {
      return undefined;
    }
  };

  const { derivedFields: derived } = options;
  const rule = toRule(options.externalIds);
  const toKey = (extId: string) => keyOf(rule, extId);
  /** Converts an object's external id to the form that the service compares. `spelling` keeps the original. */
  const byKey = <T extends FoundObject | ServiceObject>(found: T): T =>
    rule && found.extId !== undefined
      ? { ...found, extId: toKey(found.extId), spelling: found.extId }
      : found;
  /** Converts the external ids of a reservation and its objects to the form that the service compares. */
  const bookedByKey = <
    T extends {
      extId?: string | undefined;
      objects?: readonly { objectId?: string | undefined }[] | null | undefined;
    },
  >(
    found: T,
  ): T =>
    rule
      ? {
          ...found,
          extId: found.extId && toKey(found.extId),
          objects: found.objects?.map((one) => ({ ...one, objectId: one.objectId && toKey(one.objectId) })),
        }
      : found;
  const finds = {
    objects: objectsOf(true),
    /** Reads objects without their uninterpreted properties, because listed objects are not written back. */
    listed: objectsOf(false),
    types: { kind: 'types', read: dialect.type.read },
    fields: { kind: 'fields', read: dialect.field.read },
    reservations: { kind: 'reservations', read: dialect.reservation.read },
    cancellations: { kind: 'cancellations', read: dialect.cancellation.read },
  } as const;

  const findWholePage = <T>({ kind, read }: Find<T>, filter: Filter, page: Page, context: Context) => {
    const { call, question } = client.find(kind, filter, page);
    return client.send(call, context, (body, { body: { length } }) => {
      const { results, ...answer } = dialect.find.read(body as Json, question);
      return {
        ...answer,
        results: results.map((found, at) => readAt(at, () => read(found as Json))),
        characters: length,
      };
    });
  };

  /** Reads one page of a find, in parts if it is too large. `skips` leaves out results on which the service fails. */
  const findPage = <T>(find: Find<T>, filter: Filter, page: Page, context: Context, skips = false) => {
    const ask = (part: Page) => findWholePage(find, filter, part, context);
    return patience(context, () => askInParts(ask, page, client.find(find.kind, filter).call, skips));
  };

  const maintained = new Set(dialect.maintained);
  /** Returns the properties that a write sends back, without those that only the service maintains. */
  function sentBack(carried: Carried | undefined): Carried | undefined {
    const sent = Object.entries(carried ?? {}).filter(([name]) => !maintained.has(name));
    return sent.length > 0 ? Object.fromEntries(sent) : undefined;
  }

  /** Converts an object from an answer to the form that we compare and write. `ofType` applies if it names no type. */
  const toDestinationObject = (
    { typeId, active, fields, carried }: ReadObject,
    extId: string,
    ofType: string,
  ): DestinationObject =>
    createObject(
      extId,
      typeId ?? ofType,
      active ?? true,
      fields.map((given) => [given.fieldId, given.values ?? [], given.carried && sentBack(given.carried)]),
      carried && sentBack(carried),
    );

  function toFoundObject(found: ReadObject, ofType: string): FoundObject {
    const extId = found.extId ?? '';
    const object = toDestinationObject(found, extId, ofType);
    return byKey({ ...object, id: found.id, extId: extId === '' ? undefined : extId });
  }

  /**
   * Throws if a requested object is missing and the answer has an object without an external id. Otherwise the missing
   * object would count as absent, and a write would overwrite its unmapped fields. With a dialect file, an object of
   * another external id is refused too.
   */
  function requireAsked(
    found: readonly { extId?: string | null | undefined }[],
    asked: readonly string[],
  ): void {
    const { file } = dialect;
    const keys = new Set(found.map(({ extId }) => toKey(extId ?? '')));
    const wanted = new Set(asked);
    const missing = asked.filter((extId) => !keys.has(extId));
    const isOther = (extId: string) =>
      !wanted.has(toKey(extId)) && !missing.some((one) => isSimilarId(extId, one));
    const isWrong =
      keys.has('') || (file && (keys.size < found.length || found.some(({ extId }) => isOther(extId ?? ''))));
    if (missing.length === 0 || !isWrong) return;
    throw invalidAnswer(
      callOf(''),
      `${file ? `object.read of ${file}` : 'object.read'} returns an object without the external id that was asked for`,
      undefined,
      file && `Correct object.read, or the filter extIds of find.ask, in ${file}, then: slotsync check`,
    );
  }

  /** Returns the find of a single object, which an error message names. */
  const callOf = (extId: string) => client.find('objects', { by: 'extIds', extIds: [extId] }).call;

  /** Reads all pages of a find. Each result occurs once. */
  const readFind = <T extends { id: string }>(
    find: Find<T>,
    filter: Filter,
    context: Context,
    bounds: { most?: number | undefined; atOnce?: number; ask?: typeof findPage } = {},
  ) => {
    const { ask = findPage, ...rest } = bounds;
    const reading = { call: client.find(find.kind, filter).call, pageSize: options.pageSize, ...rest };
    return readPages((page) => ask<T>(find, filter, page, context), reading);
  };

  /** Maximum number of names in one find, by kind of filter. Lowered after a request was too large. */
  const namedAtOnce = new Map<Filter['by'], number>();

  /**
   * Finds objects or bookings by any number of names. If a name may have spoiled an answer, sends the find again in
   * halves.
   *
   * A name that fails alone is noted in `unreadable`; without `unreadable`, its error is thrown. Each name in
   * `suspects` is requested alone, once.
   */
  async function narrowNamed<T extends { id: string; extId?: string | null | undefined }>(
    find: Find<T>,
    names: readonly string[],
    filterOf: FilterOf,
    context: Context,
    { unreadable, suspects = new Set(), ...bounds }: Narrowing,
  ): Promise<T[]> {
    const { by } = filterOf(names);
    const { call } = client.find(find.kind, filterOf(names));
    const most = () => namedAtOnce.get(by) ?? NAMED_AT_ONCE;
    const results: T[] = [];
    const kept = countKept(call);
    let isAnswered = false;
    let failuresInRow = 0;

    /** Sends the finds one after the other. Returns the errors of ids that failed alone. */
    async function ask(parts: (readonly string[])[]): Promise<Map<string, unknown>> {
      const failed = new Map<string, unknown>();
      for (let part = parts.shift(); part; part = parts.shift()) {
        if (part.length > most()) {
          parts = [...slice(part, most()), ...parts];
          continue;
        }
        let found: Awaited<ReturnType<typeof readFind<T>>>;
        try {
          const filter = filterOf(part);
          // The field values of one row may match very many objects. `findPage` reads a too large answer in parts.
          const ask = by === 'fields' && part.length === 1 ? findPage : findWholePage;
          found = await readFind(find, filter, context, { ...bounds, ask });
          if (find.kind === 'objects' && by === 'extIds') requireAsked(found.results, part);
        } catch (error) {
          const [only] = part;
          if (only === undefined || !(isSpoiled(error) || refusedContent(error))) throw error;
          if (part.length > 1 && isRequestTooLarge(error)) {
            namedAtOnce.set(by, Math.min(most(), Math.ceil(part.length / 2)));
            parts.unshift(part);
            continue;
          }
          const isTooLarge = codeOf(error) === 'answer_too_large';
          if (!isTooLarge && ++failuresInRow >= MOST_FAILURES[isAnswered ? 'after' : 'before']) throw error;
          const halves = part.length > 1 ? slice(part, Math.ceil(part.length / 2)) : [];
          // After a failure, the remaining parts go first. If one of them is answered, the service is not down.
          parts = isTooLarge ? [...halves, ...parts] : [...parts, ...halves];
          if (part.length > 1) continue;
          if (isTooLarge) note(unreadable, only, answerTooLarge(call, 'it is about one alone', `'${only}'`));
          else failed.set(only, error);
          continue;
        }
        kept.add(found);
        for (const result of found.results) results.push(result);
        isAnswered = true;
        failuresInRow = 0;
      }
      return failed;
    }

    const others = names.filter((id) => !suspects.has(id));
    let failed = await ask(slice(others, most()));
    for (let attempt = 1; failed.size > 0 && attempt < ATTEMPTS_ALONE; attempt++) {
      // With `noPatience` the queue retries the batch. Other callers first check whether the service is up.
      if (!isAnswered && (patience === noPatience || !(await isUp(context)))) throw [...failed.values()][0];
      await pause(retryDelayMs(attempt), context.signal);
      failed = await ask([...failed.keys()].map((id) => [id]));
    }
    const known = await ask(names.filter((id) => suspects.has(id)).map((id) => [id]));
    for (const [id, error] of [...failed, ...known]) note(unreadable, id, failsOnFound(error, id));
    return results;
  }

  /** Returns true if the service answers a find of types, so that it fails only on some objects. */
  const isUp = (context: Context) =>
    findWholePage(finds.types, { by: 'none' }, ONE_RESULT, context).then(
      () => true,
      () => false,
    );

  /** Finds by names. Repeats the find while the service fails, as long as the caller's patience lasts. */
  const findNamed = <T extends { id: string; extId?: string | null | undefined }>(
    find: Find<T>,
    names: readonly string[],
    filterOf: FilterOf,
    context: Context,
    narrowing: Narrowing = {},
  ) => patience(context, () => narrowNamed(find, names, filterOf, context, narrowing));

  /** Reads selected reservations or cancellations. If there are more than `most`, returns only their number. */
  async function findSelected<T extends { id: string }, R>(
    find: Find<T>,
    convert: (found: T) => R,
    selection: ReservationSelection,
    context: Context,
  ): Promise<Found<R>> {
    const atOnce = PAGES_AT_ONCE;
    if ('ids' in selection)
      return { results: (await findNamed(find, selection.ids, byIds, context, { atOnce })).map(convert) };
    if ('extIds' in selection)
      return {
        results: (await findNamed(find, selection.extIds, byExtIds, context, { atOnce })).map(convert),
      };
    const filter: Filter =
      'window' in selection
        ? { by: 'window', ...inMilliseconds(selection.window) }
        : { by: 'modified', ...inMilliseconds(selection.modified) };
    const found = await readFind(find, filter, context, { most: selection.most, atOnce });
    return { ...found, results: found.results.map(convert) };
  }

  const notUnderstood = ({ id, extId, [FAULT]: { message, more } }: NotUnderstoodObject) => {
    const detail = [`'${extId ?? id}'`, more.detail].filter(Boolean).join(': ');
    return invalidAnswer(callOf(extId ?? ''), message, detail, more.remedy);
  };

  /** Drops objects that could not be understood. A use case that needs such an object later finds it by its id. */
  function skipNotUnderstood(found: readonly ObjectAsRead[]): ReadObject[] {
    const understood = found.filter(isUnderstood);
    const skipped = found.length - understood.length;
    if (skipped > 0) options.log.debug({ skipped }, 'objects that are not understood were left out');
    return understood;
  }

  const readDefinitions = async (kind: 'types' | 'fields', context: Context, extIds?: readonly string[]) => {
    const found = await readFind(finds[kind], extIds ? { by: 'extIds', extIds } : { by: 'none' }, context);
    return found.results.map(({ id, extId, name }): Definition => ({
      id,
      extId: extId ?? undefined,
      name: name ?? undefined,
    }));
  };

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
    const [first = ''] = types;
    const { call } = client.find('objects', { by: 'type', typeId: first, derived });
    async function* pagesOf(typeId: string): AsyncGenerator<FoundObject[]> {
      const filter = { by: 'type', typeId, derived } as const;
      const send = async (page: Page) => {
        await pace();
        const answer = await findPage(finds.listed, filter, page, context, skips);
        const { skipped = 0 } = answer;
        if (skipped > 0)
          options.log.warn({ skipped, typeId }, 'the service fails on objects of a type: they were left out');
        return answer;
      };
      const { call } = client.find('objects', filter);
      const reading = { call, pageSize: options.pageSize, atOnce: PAGES_AT_ONCE };
      let seen = 0;
      const skipped: NotUnderstoodObject[] = [];
      for await (const results of eachPage(send, reading)) {
        const understood = skipNotUnderstood(results);
        seen += understood.length;
        if (seen === 0) for (const found of results) if (FAULT in found) skipped.push(found);
        yield understood.map((found) => toFoundObject(found, typeId));
      }
      // If no object of a type can be understood, the type has an unknown form. Skipping all objects would hide that.
      const [first, second] = skipped;
      if (first && second && seen === 0) throw notUnderstood(first);
    }
    /** Drops duplicates: the service may return an object of a subtype also for the parent type. */
    async function* pages(): AsyncGenerator<FoundObject[]> {
      const seen = new Set<string>();
      const isFirst = ({ id }: FoundObject) => seen.size < seen.add(id).size;
      const all = [...types];
      for (const type of all)
        for await (const page of pagesOf(type)) yield all.length > 1 ? page.filter(isFirst) : page;
    }
    return readAgainWhenMoved(call, () => read(pages()));
  }

  /** Returns the wanted objects of these types, or all objects. Reads all, but keeps only wanted ones in memory. */
  const listObjects = (
    types: Iterable<string>,
    context: Context,
    isWanted: (object: FoundObject) => boolean = () => true,
  ): Promise<FoundObject[]> =>
    readTypes(
      types,
      context,
      async (pages) => {
        const objects: FoundObject[] = [];
        for await (const page of pages) for (const object of page) if (isWanted(object)) objects.push(object);
        return objects;
      },
      { skips: false },
    );

  /** Opens a PUT. The caller decides what to write only after it has taken a slot: see `openRequest`. */
  function openPut(context: Context) {
    const call = client.callOf('objects', dialect.write);
    const request = client.openRequest(call, context);
    const toMessage = (result: PutResult): PutResult =>
      result.accepted ? result : { ...result, message: client.toMessage(result.message) };
    return {
      takeSlot: request.takeSlot,
      hasSlot: request.hasSlot,
      /** Writes with the slot from `takeSlot`. Returns results by external id: see `matchResults`. */
      send: (objects: readonly PutObject[], sharedBy: readonly Place[] = []) => {
        const written = rule ? objects.map(spell) : objects;
        return request.send(
          dialect.write.body(written),
          (body, { status }) => {
            const results = matchResults(objects, dialect.write.read(body, written, status), toKey);
            return new Map([...results].map(([extId, result]) => [extId, toMessage(result)]));
          },
          { attributes: { 'slotsync.objects': objects.length }, links: sharedBy },
        );
      },
      end: request.end,
    };
  }

  return {
    /** Obtains a token. Throws if the key, organization, region or address is wrong. */
    authenticate: () => patience({}, client.authenticate),
    meanLatencyMs: client.meanLatencyMs,
    requestTimeoutMs: options.requestTimeoutMs,
    /** Milliseconds after sending within which the service may still carry out a write whose answer was lost. */
    lateWriteMs: options.requestTimeoutMs + options.lateWriteSeconds * 1000,
    binding: {
      baseUrl: options.api.baseUrl,
      organizationId: options.api.organizationId,
      region: options.api.region,
    },
    /** Seconds after a write during which a find may still return the state before the write. */
    findLagSeconds: dialect.findLagSeconds,
    requests: client.requests,
    observe: client.observe,
    /** Properties of an object that only the service maintains. A write never sends them back. */
    maintained,
    pageSize: options.pageSize,

    /**
     * Returns objects by external id; absent objects are missing from the result. An object that cannot be read, or has
     * another id in the answer, is noted in `unreadable`; without `unreadable`, an error is thrown. `suspects` are ids
     * on which the service failed before.
     */
    async findObjects(
      extIds: readonly string[],
      typeId: string,
      context: Context,
      unreadable?: Unreadable,
      suspects?: ReadonlySet<string>,
    ) {
      const wanted = new Set(extIds);
      const objects = new Map<string, ServiceObject>();
      const strays: string[] = [];
      const narrowing = { unreadable, suspects };
      const find = (ids: readonly string[]) => findNamed(finds.objects, ids, byExtIds, context, narrowing);
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
        else if (FAULT in found) note(unreadable, extId, notUnderstood(found));
        else if (other && other.id !== found.id)
          note(
            unreadable,
            extId,
            answeredOtherwise(`'${extId}' is that of objects ${other.id} and ${found.id}`),
          );
        else {
          const object = toDestinationObject(found, found.extId ?? '', typeId);
          objects.set(extId, byKey({ ...object, id: found.id }));
        }
      }
      const missing = [...wanted].filter((extId) => !objects.has(extId));
      for (const stray of strays) {
        const similar = findSimilarIds([stray], missing);
        const same = similar.filter((extId) => findSimilarIds([extId], [stray]).length > 0);
        for (const extId of same.length > 0 ? same : similar)
          note(unreadable, extId, answeredOtherwise(knownAs(extId, stray)));
      }
      return objects;
    },

    /** Returns objects by the service's numbers, whatever their external ids. */
    async findObjectsByNumber(
      ids: readonly string[],
      typeId: string,
      context: Context,
      unreadable?: Unreadable,
    ): Promise<Map<string, FoundObject>> {
      const found = await findNamed(finds.objects, ids, byIds, context, { unreadable });
      for (const object of found) if (FAULT in object) note(unreadable, object.id, notUnderstood(object));
      return new Map(found.filter(isUnderstood).map((object) => [object.id, toFoundObject(object, typeId)]));
    },

    readTypes,
    listObjects,

    /** Counts all objects of these types, one request a type. Returns undefined if the service states no total. */
    async countObjects(types: Iterable<string>, context: Context): Promise<number | undefined> {
      let sum = 0;
      for (const type of types) {
        const { totalResults } = await findPage(
          finds.listed,
          { by: 'type', typeId: type },
          ONE_RESULT,
          context,
        );
        sum += totalResults ?? NaN;
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
      if (!searchesByFields) return listObjects(types, context, isWanted);
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

    /** True if the service keeps fields that a write does not name. */
    patches: dialect.write.patches,
    externalIds: rule,
    searchesByFields,
    /** True if a PUT with an object's number may set its external id. */
    assignsExternalIds: options.assignExternalIds ?? false,
    canChangeTypes: options.canChangeTypes ?? false,

    /** Returns upcoming reservations of objects of one type: see `findUpcoming`. `now` is in Unix seconds. */
    findUpcomingReservations(typeId: string, extIds: readonly string[], now: number, context: Context) {
      const { pageSize } = options;
      const upcomingOf = (some: readonly string[], period: Period): Filter => ({
        by: 'upcoming',
        typeId,
        extIds: some,
        ...inMilliseconds(period),
      });
      const ask = async (some: readonly string[], period: Period) => {
        const first = { page: 1, limit: pageSize };
        const answer = await findPage(finds.reservations, upcomingOf(some, period), first, context);
        return {
          ...answer,
          results: answer.results.map((one) => bookedByKey({ ...one, ...inSeconds(one) })),
        };
      };
      const { call } = client.find('reservations', upcomingOf(extIds, { from: now, to: now }));
      return findUpcoming(ask, extIds, { now, pageSize, call });
    },

    openPut,

    /** Writes complete objects. The result has no entry for an object that the service did not mention. */
    putObjects(objects: readonly PutObject[], context: Context): Promise<Map<string, PutResult>> {
      const request = openPut(context);
      return untilAnswered(request, () => request.send(objects));
    },

    /** Returns the service's types with these external ids; by default all, including types without one. */
    findTypes: (context: Context, extIds?: readonly string[]) => readDefinitions('types', context, extIds),
    /** Returns the service's fields with these external ids; by default all, including fields without one. */
    findFields: (context: Context, extIds?: readonly string[]) => readDefinitions('fields', context, extIds),

    findReservations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.reservations, (found) => bookedByKey(toReservation(found)), selection, context),
    findCancellations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.cancellations, (found) => bookedByKey(toCancellation(found)), selection, context),

    /**
     * Returns true if finds of reservations honour the filter `modified`. A find for changes of the day after tomorrow
     * must then return nothing. `now` is in milliseconds.
     */
    async honoursModified(now: number, context: Context): Promise<boolean> {
      const from = Math.floor(now / 1000) + 24 * 60 * 60;
      const filter = { by: 'modified', ...inMilliseconds({ from, to: from + 24 * 60 * 60 }) } as const;
      return (await findPage(finds.reservations, filter, ONE_RESULT, context)).results.length === 0;
    },

    /** Reads one page of a find, to check whether the answer can be understood. Times are in Unix seconds. */
    async probe<K extends 'objects' | 'reservations' | 'cancellations'>(
      kind: K,
      window: Period,
      context: Context,
    ) {
      const [filter, page]: [Filter, Page] =
        kind === 'objects'
          ? [{ by: 'none' }, ONE_RESULT]
          : [
              { by: 'window', ...inMilliseconds(window) },
              { page: 1, limit: PROBED },
            ];
      const find = finds[kind] as Find<Probed[K] | NotUnderstoodObject>;
      const answer = await findPage(find, filter, page, context);
      const results = answer.results.filter((found): found is Probed[K] => {
        if (FAULT in found) throw notUnderstood(found);
        return true;
      });
      return { ...answer, results };
    },

    /** Searches one page for objects with this value in this field. `others` is the number of objects without it. */
    async probeFields(typeId: string, fieldId: string, value: string, context: Context) {
      const filter: Filter = { by: 'fields', typeId, fields: [{ fieldId, values: [value] }] };
      const { results } = await findPage(finds.listed, filter, ONE_RESULT, context);
      const isOne = (found: (typeof results)[number]) =>
        isUnderstood(found) &&
        found.fields.some((field) => field.fieldId === fieldId && field.values?.includes(value));
      return { found: results.filter(isOne).length, others: results.filter((one) => !isOne(one)).length };
    },

    /**
     * Sends a find that the service must refuse, and returns whether the error is JSON. Returns undefined if the
     * service refuses nothing, or if `errorBodies` accepts every body.
     */
    async probeErrors(context: Context): Promise<'json' | 'other' | undefined> {
      if (options.errorBodies === 'any') return undefined;
      try {
        const call = client.callOf('findObjects', dialect.error.ask());
        await client.send(call, context, () => true);
        return undefined;
      } catch (error) {
        const code = codeOf(error);
        if (code === 'gateway_answered') return 'other';
        if (code === 'refused' || code === 'service_failed') return 'json';
        throw error;
      }
    },

    close: client.close,
  };
}

export interface Probed {
  objects: ReadObject;
  reservations: FoundReservation;
  cancellations: FoundCancellation;
}

/** Throws for an integer beyond 2^53: JSON parsing has rounded it, so sending it back would change the object. */
function requireExact(carried: Carried | undefined): void {
  const isRounded = (value: unknown): boolean =>
    typeof value === 'object' && value !== null
      ? Object.values(value).some(isRounded)
      : Number.isInteger(value) && !Number.isSafeInteger(value);
  const rounded = Object.entries(carried ?? {}).find(([, value]) => isRounded(value));
  if (rounded)
    throw new NotUnderstood(
      rounded[0],
      'an integer beyond 2^53 cannot be sent back as it is; if only the service maintains this property, a dialect names it in `maintained`',
    );
}

const isUnderstood = (found: ObjectAsRead): found is ReadObject => !(FAULT in found);

/** Reads one result of a page. Adds the result's position in the answer to the error. */
function readAt<T>(at: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof NotUnderstood)) throw error;
    const isPlace = /^[\w.]+: /.test(error.message) && !error.more.remedy;
    throw new NotUnderstood('', `results.${at}${isPlace ? '.' : ': '}${error.message}`, error.more);
  }
}

const inMilliseconds = ({ from, to }: Period) => ({ from: from * 1000, to: to * 1000 });
const inSeconds = ({ begin, end }: FoundReservation) => ({ begin: begin / 1000, end: end / 1000 });

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

/** A reservation in the form that is compared with bookings. */
export type Reservation = ReturnType<typeof toReservation>;
/** A cancellation with its own `id` and `extId`. `reservationId` is the id of the cancelled reservation. */
export type Cancellation = ReturnType<typeof toCancellation>;

/**
 * Converts a found reservation. Adds the usual status, `B_COMPLETE` or `C_CONFIRMED`, if no status has the same prefix.
 * Objects and fields without a name are left out, because slotsync did not make them.
 */
function toReservation(found: FoundReservation) {
  const given = found.status ?? [];
  const usual = (['B_COMPLETE', 'C_CONFIRMED'] as const).filter(
    (status) => !given.some((other) => other.startsWith(status.slice(0, 2))),
  );
  const fields: readonly FieldValues[] = (found.fields ?? []).flatMap(({ fieldId, values }) =>
    fieldId === undefined ? [] : { fieldId, values: values ?? [] },
  );
  const { id, extId, begin, end } = found;
  return {
    id,
    extId: extId !== undefined && isStorable(extId) ? extId : undefined,
    begin,
    end,
    status: [...given, ...usual].toSorted(),
    objects: (found.objects ?? []).flatMap(({ typeId, objectId }) =>
      typeId === undefined || objectId === undefined ? [] : { typeId, objectId },
    ),
    fields,
  };
}

function toCancellation(found: FoundCancellation) {
  const { reservationId, cancelledAt } = found;
  return {
    ...toReservation(found),
    reservationId: reservationId ?? undefined,
    cancelledAt: cancelledAt ?? undefined,
  };
}

/** Notes why an object cannot be read. Throws the reason if the caller does not collect reasons. */
function note(unreadable: Unreadable | undefined, id: string, reason: SlotsyncError): void {
  if (!unreadable) throw reason;
  unreadable.set(id, reason);
}

const slice = <T>(list: readonly T[], length: number): (readonly T[])[] =>
  Array.from({ length: Math.ceil(list.length / length) }, (_, at) =>
    list.slice(at * length, (at + 1) * length),
  );

/** Returns the object under the external id as the row spells it. */
const spell = ({ spelling, ...object }: PutObject): PutObject => ({
  ...object,
  extId: spelling ?? object.extId,
});
