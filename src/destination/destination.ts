// The scheduling service, as the use cases call it: one function for each request, in our own types.
import { z } from 'zod';
import { codeOf, type SlotsyncError } from '../errors/errors.js';
import type { DestinationObject } from '../streams/destination-object.js';
import type { Place } from '../process/tracing.js';
import { retryDelayMs } from '../time/retry-delay.js';
import { createClient, untilAnswered, type Client, type ClientOptions } from './client.js';
import type { Context } from './exchange.js';
import {
  answerTooLarge,
  failsOnFound,
  invalidAnswer,
  isSpoiled,
  refusedContent,
  type Call,
} from './http-errors.js';
import { askInParts, countKept, eachPage, readAgainWhenMoved, readPages } from './paging.js';
import { createPatience, noPatience, pause, type Patience } from './patience.js';
import { findUpcoming } from './upcoming-reservations.js';
import * as wire from './wire.js';

export type { UpcomingReservation } from './upcoming-reservations.js';
export type { Cancellation, Period, PutObject, Reservation } from './wire.js';

/** Assumed: nothing is published, and a find that is served by a copy of the service's database lags. */
const FIND_LAG_SECONDS = 10;

export interface DestinationOptions extends ClientOptions {
  /** Most results asked for in one page. */
  pageSize: number;
  searchByFields?: boolean;
  assignExternalIds?: boolean;
  /** Seconds, beyond the request timeout, within which a write whose answer was lost may still be carried out. */
  lateWriteSeconds: number;
}

/** The service's answer about one object of a PUT. */
export type PutResult =
  { accepted: true; id: number | undefined } | { accepted: false; status: number; message: string };

export interface ServiceObject extends DestinationObject {
  id: number;
}

/** An object as one of its type: it may have been made by hand, without an external id. */
export type FoundObject = Omit<ServiceObject, 'extId'> & { extId: string | undefined };

/** A type or a field. One without an external id cannot be named in a configuration. */
export interface Definition {
  id: number;
  extId: string | undefined;
  name: string | undefined;
}

/** Reservations or cancellations in a period, changed in one, or named. Of the first two at most `most`. */
export type ReservationSelection =
  | { window: wire.Period; most?: number | undefined }
  | { modified: wire.Period; most?: number | undefined }
  | Named;

/** By external ids, or by the service's own. */
type Named = { extIds: readonly string[] } | { ids: readonly number[] };

/** By the id that was asked for, why the object cannot be read. */
export type Unreadable = Map<string | number, SlotsyncError>;

interface Narrowing {
  /** Pages asked for at once. */
  atOnce?: number;
  unreadable?: Unreadable | undefined;
  /** External ids. */
  suspects?: ReadonlySet<string | number> | undefined;
}

/** Place and fault of what is not understood. A symbol: an answer cannot have it. */
const FAULT = Symbol('fault');

/** An object of which only the names are understood, which say whose it is. */
interface NotUnderstood {
  id: number;
  extId?: string | null | undefined;
  [FAULT]: string;
}

/** Everything that was asked for. `tooMany`: how much it is, when it is more than `most`; there are no results then. */
export interface Found<T> {
  results: T[];
  tooMany?: number;
}

/** Pages of one find that are read at once. */
const PAGES_AT_ONCE = 4;
/** Ids named in one find. */
const NAMED_AT_ONCE = 1000;
/** Failures in a row that end a find by ids, before and after something was answered: the service is down. */
const MOST_FAILURES = { before: 8, after: 20 };
/** Failures of an id alone, some seconds apart, after which it is the cause. */
const ATTEMPTS_ALONE = 3;

const ONE_RESULT: wire.Page = { page: 1, limit: 1 };
/** Reservations and cancellations that are looked at to see whether they are understood. */
const PROBED = 100;

type FindResult = z.ZodType<{ id: number }>;

const objectNames = wire.foundObject.pick({ id: true, extId: true });
/** An object as far as it is understood. Without its names there is no answer. */
const anyObject = z.unknown().transform((given, context) => {
  const parsed = wire.foundObject.safeParse(given);
  if (parsed.success) return parsed.data;
  const { data: names } = objectNames.safeParse(given);
  if (names) return { ...names, [FAULT]: describeIssue(parsed.error) } satisfies NotUnderstood;
  for (const issue of parsed.error.issues) context.issues.push(issue as never);
  return z.NEVER;
});

const describeIssue = ({ issues: [issue] }: z.ZodError): string =>
  `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`;

const isUnderstood = <T extends object>(found: T | NotUnderstood): found is T => !(FAULT in found);

interface Find<T> {
  path: string;
  schema: T;
}

export type Destination = ReturnType<typeof openDestination>;

/**
 * Opens the service. Every function throws SlotsyncError, or the signal's reason. `patient`: the same for a command that only
 * reads; its finds are sent again while the service fails.
 */
export function createDestination(options: DestinationOptions): Destination & { patient: Destination } {
  const client = createClient(options);
  const patience = createPatience(options.log, () => client.meanLatencyMs() !== undefined);
  return {
    ...openDestination(options, client, noPatience),
    patient: openDestination(options, client, patience),
  };
}

function openDestination(options: DestinationOptions, client: Client, patience: Patience) {
  const { paths } = client;
  const { searchByFields: searchesByFields = true } = options;
  const finds = {
    objects: { path: paths.findObjects, schema: anyObject },
    reservations: { path: paths.findReservations, schema: wire.foundReservation },
    cancellations: { path: paths.findCancellations, schema: wire.foundCancellation },
  } as const;

  const parserOf =
    <T extends z.ZodType>(schema: T, call: Call) =>
    (body: unknown): z.output<T> => {
      const parsed = schema.safeParse(body);
      if (parsed.success) return parsed.data;
      throw invalidAnswer(call, describeIssue(parsed.error));
    };

  const findWholePage = <T extends FindResult>(
    { path, schema }: Find<T>,
    filter: object,
    page: wire.Page,
    context: Context,
  ) => {
    const call = { method: 'POST', path, body: wire.findRequest(filter, page) } as const;
    const parse = parserOf(wire.findAnswer(schema), call);
    return client.send(call, context, (body, characters) => ({ ...parse(body), characters }));
  };

  /** Reads one page of a find, in parts where the answer is too large. */
  const findPage = <T extends FindResult>(find: Find<T>, filter: object, page: wire.Page, context: Context) =>
    askInParts(
      (part) => patience(context, () => findWholePage(find, filter, part, context)),
      page,
      find.path,
    );

  /** Reads a find to its last page, each result once. */
  const readFind = <T extends FindResult>(
    find: Find<T>,
    filter: object,
    context: Context,
    bounds: { most?: number | undefined; atOnce?: number; ask?: typeof findPage } = {},
  ) => {
    const { ask = findPage, ...rest } = bounds;
    const reading = { path: find.path, pageSize: options.pageSize, ...rest };
    return readPages((page) => ask<T>(find, filter, page, context), reading);
  };

  /**
   * Finds objects or bookings by any number of ids. A find that one of its ids may have spoiled is sent again in halves. An id that fails alone,
   * while others are answered, is noted in `unreadable`, or thrown unless that is given. `suspects` failed alone before: each
   * is asked for alone, once.
   */
  async function narrowNamed<T extends FindResult>(
    find: Find<T>,
    named: Named,
    context: Context,
    { unreadable, suspects = new Set(), ...bounds }: Narrowing,
  ): Promise<z.output<T>[]> {
    const [by, ids] = 'ids' in named ? ['ids', named.ids] : ['extIds', named.extIds];
    const call = { method: 'POST', path: find.path } as const;
    const results: z.output<T>[] = [];
    const kept = countKept(call);
    let isAnswered = false;
    let failuresInRow = 0;

    /** Finds part by part. Returns the failures of ids that failed alone. */
    async function ask(parts: (readonly (string | number)[])[]): Promise<Map<string | number, unknown>> {
      const failed = new Map<string | number, unknown>();
      for (let part = parts.shift(); part; part = parts.shift()) {
        let found: Awaited<ReturnType<typeof readFind<T>>>;
        try {
          found = await readFind(find, { [by]: part }, context, { ...bounds, ask: findWholePage });
        } catch (error) {
          const [only] = part;
          if (only === undefined || !(isSpoiled(error) || refusedContent(error))) throw error;
          const isTooLarge = codeOf(error) === 'answer_too_large';
          if (!isTooLarge && ++failuresInRow >= MOST_FAILURES[isAnswered ? 'after' : 'before']) throw error;
          const halves = part.length > 1 ? slice(part, Math.ceil(part.length / 2)) : [];
          // The remaining parts go first after a failure: if one of them is answered, the service is not down.
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

    const others = ids.filter((id) => !suspects.has(id));
    let failed = await ask(slice(others, NAMED_AT_ONCE));
    for (let attempt = 1; failed.size > 0 && attempt < ATTEMPTS_ALONE; attempt++) {
      if (!isAnswered) throw [...failed.values()][0];
      await pause(retryDelayMs(attempt), context.signal);
      failed = await ask([...failed.keys()].map((id) => [id]));
    }
    const known = await ask(ids.filter((id) => suspects.has(id)).map((id) => [id]));
    for (const [id, error] of [...failed, ...known]) note(unreadable, id, failsOnFound(error, id));
    return results;
  }

  /** Calls `narrowNamed` again while the service fails, as long as the caller's patience lasts. */
  const findNamed = <T extends FindResult>(
    find: Find<T>,
    named: Named,
    context: Context,
    narrowing: Narrowing = {},
  ) => patience(context, () => narrowNamed(find, named, context, narrowing));

  /** Results beyond `most` are not read: the answer says how many there are. */
  async function findSelected<T extends FindResult, R>(
    find: Find<T>,
    convert: (found: z.output<T>) => R,
    selection: ReservationSelection,
    context: Context,
  ): Promise<Found<R>> {
    const atOnce = PAGES_AT_ONCE;
    if ('ids' in selection || 'extIds' in selection)
      return { results: (await findNamed(find, selection, context, { atOnce })).map(convert) };
    const filter =
      'window' in selection ? wire.windowFilter(selection.window) : wire.modifiedFilter(selection.modified);
    const found = await readFind(find, filter, context, { most: selection.most, atOnce });
    return { ...found, results: found.results.map(convert) };
  }

  /** The error of an object that is not understood. */
  const notUnderstood = ({ id, extId, [FAULT]: fault }: NotUnderstood) =>
    invalidAnswer({ method: 'POST', path: finds.objects.path }, fault, `'${extId ?? id}'`);

  /** Leaves out objects that are not understood: who needs one of them asks for it by its name. */
  function skipNotUnderstood<T extends object>(found: readonly (T | NotUnderstood)[]): T[] {
    const understood = found.filter(isUnderstood<T>);
    const skipped = found.length - understood.length;
    if (skipped > 0) options.log.debug({ skipped }, 'objects that are not understood were left out');
    return understood;
  }

  const readDefinitions = async (path: string, context: Context, extIds?: readonly string[]) => {
    const found = await readFind({ path, schema: wire.foundDefinition }, extIds ? { extIds } : {}, context);
    return found.results.map(({ id, extId, name }): Definition => ({
      id,
      extId: extId ?? undefined,
      name: name ?? undefined,
    }));
  };

  /**
   * Reads a type whole: `read` gets its objects page by page, in ascending number, inactive ones too. When objects come or
   * go meanwhile, `read` is called again from the beginning; what it returns of a complete reading is the result. `pace` is
   * awaited before each request.
   */
  function readType<T>(
    typeId: string,
    context: Context,
    read: (pages: AsyncIterable<readonly FoundObject[]>) => Promise<T>,
    { pace = async () => undefined }: { pace?: () => Promise<void> } = {},
  ): Promise<T> {
    const { path } = finds.objects;
    async function* pages(): AsyncGenerator<FoundObject[]> {
      const send = async (page: wire.Page) => {
        await pace();
        return findPage(finds.objects, wire.typeFilter(typeId), page, context);
      };
      const reading = { path, pageSize: options.pageSize, atOnce: PAGES_AT_ONCE };
      let seen = 0;
      const skipped: NotUnderstood[] = [];
      for await (const results of eachPage(send, reading)) {
        const understood = skipNotUnderstood(results);
        seen += understood.length;
        if (seen === 0) for (const found of results) if (FAULT in found) skipped.push(found);
        yield understood.map((found) => wire.toFoundObject(found, typeId, false));
      }
      // Objects of the type have another form than is known.
      const [first, second] = skipped;
      if (first && second && seen === 0) throw notUnderstood(first);
    }
    return readAgainWhenMoved(path, () => read(pages()));
  }

  /** The objects of a type that are wanted, by default all. Reads the type whole, and keeps only these in memory. */
  const listObjects = (
    typeId: string,
    context: Context,
    isWanted: (object: FoundObject) => boolean = () => true,
  ): Promise<FoundObject[]> =>
    readType(typeId, context, async (pages) => {
      const objects: FoundObject[] = [];
      for await (const page of pages) for (const object of page) if (isWanted(object)) objects.push(object);
      return objects;
    });

  /** A PUT of which its sender decides with the slot in hand what is written; see `openRequest`. */
  function openPut(context: Context) {
    const call = { method: 'PUT', path: paths.objects } as const;
    const request = client.openRequest(call, context);
    const parse = parserOf(wire.putAnswer, call);
    const toResult = (item: z.output<typeof wire.putAnswer>['results'][number]): PutResult => {
      const { id, status } = item;
      if (status >= 200 && status < 300) return { accepted: true, id: id ?? undefined };
      const reason = wire.readReason(item) ?? `refused with ${status}`;
      return { accepted: false, status, message: client.toMessage(reason) };
    };
    return {
      takeSlot: request.takeSlot,
      hasSlot: request.hasSlot,
      /** Results by external id. An object of which the service answered nothing has none. */
      send: (objects: readonly wire.PutObject[], sharedBy: readonly Place[] = []) =>
        request.send(
          wire.putRequest(objects),
          (body) => new Map(parse(body).results.map((item) => [item.extId, toResult(item)] as const)),
          { attributes: { 'slotsync.objects': objects.length }, links: sharedBy },
        ),
      end: request.end,
    };
  }

  return {
    /** Obtains a token, or throws what is wrong with key, organization, region or address. */
    authenticate: () => patience({}, client.authenticate),
    meanLatencyMs: client.meanLatencyMs,
    /** Milliseconds after which a request without an answer is given up. */
    requestTimeoutMs: options.requestTimeoutMs,
    /** Milliseconds from its sending within which a write may be carried out whose answer was lost. */
    lateWriteMs: options.requestTimeoutMs + options.lateWriteSeconds * 1000,
    /** The service and organization that requests go to. */
    binding: {
      baseUrl: options.api.baseUrl,
      organizationId: options.api.organizationId,
      region: options.api.region,
    },
    /** Seconds after a write for which a find may still answer what was before it. */
    findLagSeconds: FIND_LAG_SECONDS,
    requests: client.requests,
    pageSize: options.pageSize,

    /**
     * The objects with these external ids; one the service does not have is not in the answer. One that cannot be read is noted
     * in `unreadable`, or thrown unless that is given. `suspects`: those at which the service failed before.
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
      const narrowing = { unreadable, suspects };
      for (const found of await findNamed(finds.objects, { extIds }, context, narrowing)) {
        if (found.extId === null || found.extId === undefined || !wanted.has(found.extId)) continue;
        if (FAULT in found) {
          note(unreadable, found.extId, notUnderstood(found));
          continue;
        }
        const object = wire.toDestinationObject(found, { extId: found.extId, typeId });
        objects.set(found.extId, { ...object, id: found.id });
      }
      return objects;
    },

    /** The same by the service's numbers, whatever the objects' external ids. */
    async findObjectsByNumber(
      ids: readonly number[],
      typeId: string,
      context: Context,
      unreadable?: Unreadable,
    ): Promise<Map<number, FoundObject>> {
      const found = await findNamed(finds.objects, { ids }, context, { unreadable });
      for (const object of found) if (FAULT in object) note(unreadable, object.id, notUnderstood(object));
      return new Map(
        found.filter(isUnderstood).map((object) => [object.id, wire.toFoundObject(object, typeId)]),
      );
    },

    readType,
    listObjects,

    /** How many objects a type has, inactive ones too. One request. Undefined: the service does not tell. */
    async countObjects(typeId: string, context: Context): Promise<number | undefined> {
      const { totalResults } = await findPage(finds.objects, wire.typeFilter(typeId), ONE_RESULT, context);
      return totalResults ?? undefined;
    },

    /**
     * The objects of a type that are wanted, each of which has one of the values in each of the fields: by the service's own
     * search, or by reading the type whole where it has none. A search may answer more: `isWanted` is asked of every object.
     */
    async findObjectsByFields(
      typeId: string,
      values: ReadonlyMap<string, readonly string[]>,
      isWanted: (object: FoundObject) => boolean,
      context: Context,
    ): Promise<FoundObject[]> {
      if (!searchesByFields) return listObjects(typeId, context, isWanted);
      const found = await readFind(finds.objects, wire.fieldsFilter(typeId, values), context);
      return skipNotUnderstood(found.results)
        .map((object) => wire.toFoundObject(object, typeId, false))
        .filter(isWanted);
    },

    /** Whether objects can be found by the values of their fields. */
    searchesByFields,
    /** Whether a PUT may give an object its external id by its number. */
    assignsExternalIds: options.assignExternalIds ?? false,

    /** Reservations of these objects of one type that are to take place: see `findUpcoming`. `now` in Unix seconds. */
    findUpcomingReservations(typeId: string, extIds: readonly string[], now: number, context: Context) {
      const { pageSize } = options;
      const find = finds.reservations;
      const ask = (some: readonly string[], period: wire.Period) =>
        findPage(find, wire.upcomingFilter(typeId, some, period), { page: 1, limit: pageSize }, context);
      return findUpcoming(ask, extIds, { now, pageSize, path: find.path });
    },

    openPut,

    /** Writes objects whole. An object of which the service answered nothing is not in the answer. */
    putObjects(objects: readonly wire.PutObject[], context: Context): Promise<Map<string, PutResult>> {
      const request = openPut(context);
      return untilAnswered(request, () => request.send(objects));
    },

    /** The types that the service knows: of these external ids, by default all, also one without an external id. */
    findTypes: (context: Context, extIds?: readonly string[]) =>
      readDefinitions(paths.findTypes, context, extIds),
    /** The fields that the service knows, as the types. */
    findFields: (context: Context, extIds?: readonly string[]) =>
      readDefinitions(paths.findFields, context, extIds),

    /** The reservations that are selected. */
    findReservations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.reservations, wire.toReservation, selection, context),
    /** The cancellations that are selected. */
    findCancellations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.cancellations, wire.toCancellation, selection, context),

    /**
     * Whether finds of reservations honour `modified`: asked for what was changed the day after tomorrow, a service that
     * does finds nothing. `now` in milliseconds.
     */
    async honoursModified(now: number, context: Context): Promise<boolean> {
      const from = Math.floor(now / 1000) + 24 * 60 * 60;
      const filter = wire.modifiedFilter({ from, to: from + 24 * 60 * 60 });
      return (await findPage(finds.reservations, filter, ONE_RESULT, context)).results.length === 0;
    },

    /** Reads one page of a find, to see whether its answer is understood. Times in Unix seconds. */
    async probe(find: keyof typeof finds, window: wire.Period, context: Context) {
      const [filter, page] =
        find === 'objects' ? [{}, ONE_RESULT] : [wire.windowFilter(window), { page: 1, limit: PROBED }];
      const answer = await findPage<FindResult>(finds[find], filter, page, context);
      for (const found of answer.results) if (FAULT in found) throw notUnderstood(found as NotUnderstood);
      return answer;
    },

    /** Whether one page of a find by fields has an object with this value in this field; and what else it has. */
    async probeFields(typeId: string, fieldId: string, value: string, context: Context) {
      const filter = wire.fieldsFilter(typeId, new Map([[fieldId, [value]]]));
      const { results } = await findPage(finds.objects, filter, ONE_RESULT, context);
      const isOne = (found: (typeof results)[number]) =>
        isUnderstood(found) &&
        found.fields.some((field) => field.fieldId === fieldId && field.values?.includes(value));
      return { found: results.filter(isOne).length, others: results.filter((one) => !isOne(one)).length };
    },

    /**
     * The form of the service's errors: `json`, or `other` when its answer to a find that it must refuse is not. Undefined
     * when it refuses nothing, or when `errorBodies` takes every body for the service's.
     */
    async probeErrors(context: Context): Promise<'json' | 'other' | undefined> {
      if (options.errorBodies === 'any') return undefined;
      try {
        const call = { method: 'POST', path: paths.findObjects, body: wire.refusedFind } as const;
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

/** Notes why an object cannot be read; throws it where nobody keeps that. */
function note(unreadable: Unreadable | undefined, id: string | number, reason: SlotsyncError): void {
  if (!unreadable) throw reason;
  unreadable.set(id, reason);
}

const slice = <T>(list: readonly T[], length: number): (readonly T[])[] =>
  Array.from({ length: Math.ceil(list.length / length) }, (_, at) =>
    list.slice(at * length, (at + 1) * length),
  );
