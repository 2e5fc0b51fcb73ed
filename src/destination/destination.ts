// The scheduling service as verbs: what the use cases ask of it, in our own types.
import type { z } from 'zod';
import type { DestinationObject } from '../streams/destination-object.js';
import { createClient, invalidAnswer, type ClientOptions, type Context } from './client.js';
import { readPages } from './paging.js';
import * as wire from './wire.js';

export type { Cancellation, Period, Reservation } from './wire.js';

export interface DestinationOptions extends ClientOptions {
  /** Most results asked for in one page. */
  pageSize: number;
}

/** What the service said about one object of a PUT. */
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

/** How far ahead bookings are looked for: no timetable reaches further. Seconds. */
const FAR_AHEAD = 10 * 365 * 24 * 60 * 60;

/** Which bookings: in a period, changed in one, or named. Of the first two at most `most`. */
export type ReservationSelection =
  | { window: wire.Period; most?: number | undefined }
  | { modified: wire.Period; most?: number | undefined }
  | { extIds: readonly string[] }
  | { ids: readonly number[] };

/** Everything that was asked for, or how much it is, when it is more than was wanted. */
export type Found<B> = { results: B[] } | { tooMany: number };

/** Pages of one find that are read at once. */
const PAGES_AT_ONCE = 4;
/** Ids named in one find. */
const NAMED_AT_ONCE = 1000;

export type Destination = ReturnType<typeof createDestination>;

/** Opens the service. Every verb throws SlotsyncError, or the signal's reason. */
export function createDestination(options: DestinationOptions) {
  const client = createClient(options);
  const { paths } = client;

  async function sendAndParse<T extends z.ZodType>(
    schema: T,
    call: { method: 'POST' | 'PUT'; path: string; body: unknown },
    context: Context,
  ): Promise<z.output<T>> {
    const parsed = schema.safeParse(await client.send(call, context));
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    throw invalidAnswer(call.method, call.path, `${issue?.path.join('.') ?? ''}: ${issue?.message ?? ''}`);
  }

  /** Reads a find to its last page, each result once. */
  async function findAll<T extends z.ZodType<{ id: number }>>(
    path: string,
    schema: T,
    request: (page: wire.Page) => unknown,
    context: Context,
  ): Promise<z.output<T>[]> {
    const found = await readPages(
      (page) => sendAndParse(wire.findAnswer(schema), { method: 'POST', path, body: request(page) }, context),
      { path, pageSize: options.pageSize },
    );
    return found.results;
  }

  /** What does not fit into `most` is not read: the answer says how much there is. */
  async function findSelected<T extends z.ZodType<{ id: number }>, B>(
    path: string,
    schema: T,
    convert: (found: z.output<T>) => B,
    selection: ReservationSelection,
    context: Context,
  ): Promise<Found<B>> {
    const read = (request: (page: wire.Page) => unknown, most?: number) =>
      readPages(
        (page) =>
          sendAndParse(wire.findAnswer(schema), { method: 'POST', path, body: request(page) }, context),
        { path, pageSize: options.pageSize, most, atOnce: PAGES_AT_ONCE },
      );
    if ('window' in selection || 'modified' in selection) {
      const request = (page: wire.Page) =>
        'window' in selection
          ? wire.findInWindow(selection.window, page)
          : wire.findModified(selection.modified, page);
      const found = await read(request, selection.most);
      return 'tooMany' in found ? found : { results: found.results.map(convert) };
    }
    const results: B[] = [];
    const listed = 'ids' in selection ? selection.ids : selection.extIds;
    for (let at = 0; at < listed.length; at += NAMED_AT_ONCE) {
      const request = (page: wire.Page) =>
        'ids' in selection
          ? wire.findByIds(selection.ids.slice(at, at + NAMED_AT_ONCE), page)
          : wire.findByExternalIds(selection.extIds.slice(at, at + NAMED_AT_ONCE), page);
      const found = await read(request);
      if ('results' in found) results.push(...found.results.map(convert));
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
    const found = await findAll(path, wire.foundDefinition, request, context);
    return found.flatMap(({ extId, name }) =>
      extId === null || extId === undefined ? [] : [{ extId, name: name ?? undefined }],
    );
  }

  return {
    /** Obtains a token, or throws what is wrong with key, organization, region or address. */
    authenticate: client.authenticate,
    meanLatencyMs: client.meanLatencyMs,
    requests: client.requests,

    /** The objects with these external ids; what is not there is not in the answer. */
    async findObjects(
      extIds: readonly string[],
      typeId: string,
      context: Context,
    ): Promise<Map<string, ServiceObject>> {
      const wanted = new Set(extIds);
      const there = new Map<string, ServiceObject>();
      const request = (page: wire.Page) => wire.findByExternalIds(extIds, page);
      for (const found of await findAll(paths.findObjects, wire.foundObject, request, context)) {
        if (found.extId === null || found.extId === undefined || !wanted.has(found.extId)) continue;
        const object = wire.toDestinationObject(found, { extId: found.extId, typeId });
        there.set(found.extId, { ...object, id: found.id });
      }
      return there;
    },

    /**
     * Bookings of these objects of one type that have not ended at `now` (Unix seconds) and are to take place, the
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
      const bookings = new Map<string, UpcomingReservation[]>();
      const found = await findAll(paths.findReservations, wire.foundUpcoming, request, context);
      for (const { id, extId, begin, end, objects } of found.toSorted((a, b) => a.begin - b.begin)) {
        if (end <= now) continue;
        for (const { objectId } of objects) {
          if (!wanted.has(objectId)) continue;
          const booked = bookings.get(objectId) ?? [];
          booked.push({ name: extId ?? String(id), begin });
          bookings.set(objectId, booked);
        }
      }
      return bookings;
    },

    /** Writes objects whole. Returns what was said of each; an object nothing was said of is not in the answer. */
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

    /** Which of these types are known there, or all of them. */
    findTypes: (extIds: readonly string[] | 'all', context: Context) =>
      findDefinitions(paths.findTypes, extIds, context),
    /** Which of these fields are known there, or all of them. */
    findFields: (extIds: readonly string[] | 'all', context: Context) =>
      findDefinitions(paths.findFields, extIds, context),

    /** Reservations that a find selects. */
    findReservations: (selection: ReservationSelection, context: Context): Promise<Found<wire.Reservation>> =>
      findSelected(paths.findReservations, wire.foundReservation, wire.toReservation, selection, context),
    /** Cancellations that a find selects. */
    findCancellations: (
      selection: ReservationSelection,
      context: Context,
    ): Promise<Found<wire.Cancellation>> =>
      findSelected(paths.findCancellations, wire.foundCancellation, wire.toCancellation, selection, context),

    /**
     * Whether finds of bookings look at `modified`: asked for what was changed the day after tomorrow, a service that
     * does has nothing to answer. `now` in milliseconds.
     */
    async honoursModified(now: number, context: Context): Promise<boolean> {
      const from = Math.floor(now / 1000) + 24 * 60 * 60;
      const body = wire.findModified({ from, to: from + 24 * 60 * 60 }, { page: 1, limit: 1 });
      const call = { method: 'POST', path: paths.findReservations, body } as const;
      return (await sendAndParse(wire.findAnswer(wire.foundReservation), call, context)).results.length === 0;
    },

    /** Reads one page of a find, to see whether its answer is understood. Times in Unix seconds. */
    async probe(
      find: 'objects' | 'reservations' | 'cancellations',
      window: { from: number; to: number },
      context: Context,
    ) {
      const page = { page: 1, limit: 1 };
      const probes = {
        objects: { path: paths.findObjects, schema: wire.foundObject, body: wire.findEverything(page) },
        reservations: {
          path: paths.findReservations,
          schema: wire.foundReservation,
          body: wire.findInWindow(window, page),
        },
        cancellations: {
          path: paths.findCancellations,
          schema: wire.foundCancellation,
          body: wire.findInWindow(window, page),
        },
      } as const;
      const { path, schema, body } = probes[find];
      return sendAndParse(wire.findAnswer(schema), { method: 'POST', path, body }, context);
    },

    close: client.close,
  };
}

/** What was asked for by name, or without a limit, is never too much. */
export function resultsOf<B>(found: Found<B>): B[] {
  return 'results' in found ? found.results : [];
}
