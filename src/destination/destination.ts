// The scheduling service, as the use cases call it: one function for each request, in our own types.
import type { z } from 'zod';
import type { DestinationObject } from '../streams/destination-object.js';
import { createClient, type ClientOptions, type Context } from './client.js';
import { invalidAnswer, type Call } from './http-errors.js';
import { readPages } from './paging.js';
import * as wire from './wire.js';

export type { Cancellation, Period, Reservation } from './wire.js';

export interface DestinationOptions extends ClientOptions {
  /** Most results asked for in one page. */
  pageSize: number;
}

/** What the service answered about one object of a PUT. */
export type PutResult =
  { accepted: true; id: number | undefined } | { accepted: false; status: number; message: string };

export interface ServiceObject extends DestinationObject {
  id: number;
}

export interface UpcomingReservation {
  /** External id, or id. */
  name: string;
  /** Unix seconds. */
  begin: number;
}

export interface Definition {
  extId: string;
  name: string | undefined;
}

/** How far ahead reservations are looked for, in seconds: no timetable reaches further. */
const FAR_AHEAD = 10 * 365 * 24 * 60 * 60;

/** Reservations or cancellations in a period, changed in one, or named. Of the first two at most `most`. */
export type ReservationSelection =
  | { window: wire.Period; most?: number | undefined }
  | { modified: wire.Period; most?: number | undefined }
  | { extIds: readonly string[] }
  | { ids: readonly number[] };

/** Everything that was asked for, or how much it is, when it is more than `most`. */
export type Found<T> = { results: T[] } | { tooMany: number };

/** Pages of one find that are read at once. */
const PAGES_AT_ONCE = 4;
/** Ids named in one find. */
const NAMED_AT_ONCE = 1000;

export type Destination = ReturnType<typeof createDestination>;

/** Opens the service. Every function throws SlotsyncError, or the signal's reason. */
export function createDestination(options: DestinationOptions) {
  const client = createClient(options);
  const { paths } = client;
  const finds = {
    objects: { path: paths.findObjects, schema: wire.foundObject },
    reservations: { path: paths.findReservations, schema: wire.foundReservation },
    cancellations: { path: paths.findCancellations, schema: wire.foundCancellation },
  } as const;

  async function sendAndParse<T extends z.ZodType>(
    schema: T,
    call: Call,
    context: Context,
  ): Promise<z.output<T>> {
    const parsed = schema.safeParse(await client.send(call, context));
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    throw invalidAnswer(call, `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`);
  }

  /** Reads one page of a find. */
  const findPage = <T extends z.ZodType<{ id: number }>>(
    { path, schema }: Find<T>,
    body: unknown,
    context: Context,
  ) => sendAndParse(wire.findAnswer(schema), { method: 'POST', path, body }, context);

  /** Reads a find to its last page, each result once. */
  async function findAll<T extends z.ZodType<{ id: number }>>(
    find: Find<T>,
    request: (page: wire.Page) => unknown,
    context: Context,
  ): Promise<z.output<T>[]> {
    const { pageSize } = options;
    const send = (page: wire.Page) => findPage(find, request(page), context);
    return resultsOf(await readPages(send, { path: find.path, pageSize }));
  }

  /** What does not fit into `most` is not read: the answer says how much there is. */
  async function findSelected<T extends z.ZodType<{ id: number }>, R>(
    find: Find<T>,
    convert: (found: z.output<T>) => R,
    selection: ReservationSelection,
    context: Context,
  ): Promise<Found<R>> {
    const most = 'most' in selection ? selection.most : undefined;
    const reading = { path: find.path, pageSize: options.pageSize, most, atOnce: PAGES_AT_ONCE };
    const results: R[] = [];
    for (const request of requestsOf(selection)) {
      const found = await readPages((page) => findPage(find, request(page), context), reading);
      if ('tooMany' in found) return found;
      for (const result of found.results) results.push(convert(result));
    }
    return { results };
  }

  async function findDefinitions(
    path: string,
    extIds: readonly string[] | 'all',
    context: Context,
  ): Promise<Definition[]> {
    const request = (page: wire.Page) =>
      extIds === 'all' ? wire.findEverything(page) : wire.findByExternalIds(extIds, page);
    const found = await findAll({ path, schema: wire.foundDefinition }, request, context);
    return found.flatMap(({ extId, name }) =>
      extId === null || extId === undefined ? [] : [{ extId, name: name ?? undefined }],
    );
  }

  return {
    /** Obtains a token, or throws what is wrong with key, organization, region or address. */
    authenticate: client.authenticate,
    meanLatencyMs: client.meanLatencyMs,
    requests: client.requests,

    /** The objects with these external ids; one the service does not have is not in the answer. */
    async findObjects(
      extIds: readonly string[],
      typeId: string,
      context: Context,
    ): Promise<Map<string, ServiceObject>> {
      const wanted = new Set(extIds);
      const objects = new Map<string, ServiceObject>();
      const request = (page: wire.Page) => wire.findByExternalIds(extIds, page);
      for (const found of await findAll(finds.objects, request, context)) {
        if (found.extId === null || found.extId === undefined || !wanted.has(found.extId)) continue;
        const object = wire.toDestinationObject(found, { extId: found.extId, typeId });
        objects.set(found.extId, { ...object, id: found.id });
      }
      return objects;
    },

    /**
     * Reservations of these objects of one type that have not ended at `now` (Unix seconds) and are to take place, the
     * next one first. An object without any is not in the answer.
     */
    async findUpcomingReservations(
      typeId: string,
      extIds: readonly string[],
      now: number,
      context: Context,
    ): Promise<Map<string, UpcomingReservation[]>> {
      const wanted = new Set(extIds);
      const window = { from: now, to: now + FAR_AHEAD };
      const request = (page: wire.Page) => wire.findUpcoming(typeId, extIds, window, page);
      const find = { path: paths.findReservations, schema: wire.foundUpcoming };
      const upcoming = new Map<string, UpcomingReservation[]>();
      const found = await findAll(find, request, context);
      for (const { id, extId, begin, end, objects } of found.toSorted((a, b) => a.begin - b.begin)) {
        if (end <= now) continue;
        for (const { objectId } of objects.filter((object) => wanted.has(object.objectId))) {
          const reservations = upcoming.get(objectId) ?? [];
          reservations.push({ name: extId ?? String(id), begin });
          upcoming.set(objectId, reservations);
        }
      }
      return upcoming;
    },

    /** Writes objects whole. An object of which the service answered nothing is not in the answer. */
    async putObjects(
      objects: readonly DestinationObject[],
      context: Context,
    ): Promise<Map<string, PutResult>> {
      const call = { method: 'PUT', path: paths.objects, body: wire.putRequest(objects) } as const;
      const { results } = await sendAndParse(wire.putAnswer, call, context);
      return new Map(
        results.map(({ extId, id, status, message }) => [
          extId,
          status >= 200 && status < 300
            ? { accepted: true, id: id ?? undefined }
            : { accepted: false, status, message: message ?? `refused with ${status}` },
        ]),
      );
    },

    /** Which of these types the service knows, or all of them. */
    findTypes: (extIds: readonly string[] | 'all', context: Context) =>
      findDefinitions(paths.findTypes, extIds, context),
    /** Which of these fields the service knows, or all of them. */
    findFields: (extIds: readonly string[] | 'all', context: Context) =>
      findDefinitions(paths.findFields, extIds, context),

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
      const body = wire.findModified({ from, to: from + 24 * 60 * 60 }, { page: 1, limit: 1 });
      return (await findPage(finds.reservations, body, context)).results.length === 0;
    },

    /** Reads one page of a find, to see whether its answer is understood. Times in Unix seconds. */
    probe(find: keyof typeof finds, window: wire.Period, context: Context) {
      const page = { page: 1, limit: 1 };
      const body = find === 'objects' ? wire.findEverything(page) : wire.findInWindow(window, page);
      return findPage<z.ZodType<{ id: number }>>(finds[find], body, context);
    },

    close: client.close,
  };
}

/** The results of a find without `most`. */
export function resultsOf<T>(found: Found<T>): T[] {
  return 'results' in found ? found.results : [];
}

interface Find<T> {
  path: string;
  schema: T;
}

/** One request, or several where more ids are named than one takes. */
function requestsOf(selection: ReservationSelection): ((page: wire.Page) => unknown)[] {
  if ('window' in selection) return [(page) => wire.findInWindow(selection.window, page)];
  if ('modified' in selection) return [(page) => wire.findModified(selection.modified, page)];
  const { length } = 'ids' in selection ? selection.ids : selection.extIds;
  return Array.from({ length: Math.ceil(length / NAMED_AT_ONCE) }, (_, at) => {
    const [from, to] = [at * NAMED_AT_ONCE, (at + 1) * NAMED_AT_ONCE];
    return (page) =>
      'ids' in selection
        ? wire.findByIds(selection.ids.slice(from, to), page)
        : wire.findByExternalIds(selection.extIds.slice(from, to), page);
  });
}
