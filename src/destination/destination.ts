// The scheduling service as verbs: what the use cases ask of it, in our own types.
import type { z } from 'zod';
import type { DestinationObject } from '../streams/object.js';
import { createClient, invalidAnswer, type ClientOptions, type Context } from './client.js';
import * as wire from './wire.js';

export interface DestinationOptions extends ClientOptions {
  /** Most results asked for in one page. */
  pageSize: number;
}

/** What the service said about one object of a PUT. */
export type PutResult =
  { accepted: true; id: number | undefined } | { accepted: false; status: number; message: string };

export interface ObjectThere extends DestinationObject {
  id: number;
}

export interface Definition {
  extId: string;
  name: string | undefined;
}

/** Readings of one find before its answers are called contradictory. */
const MOST_READINGS = 3;

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

  /**
   * Reads a find to its last page, each result once. Pages shift when objects come or go meanwhile: when fewer were
   * seen than the service says there are, everything is read again.
   */
  async function findAll<T extends z.ZodType<{ id: number }>>(
    path: string,
    schema: T,
    request: (page: wire.Page) => unknown,
    context: Context,
  ): Promise<z.output<T>[]> {
    for (let reading = 1; ; reading++) {
      const seen = new Map<number, z.output<T>>();
      let total: number | undefined;
      for (let page = 1, pages = 1; page <= pages; page++) {
        const body = request({ page, limit: options.pageSize });
        const answer = await sendAndParse(wire.findAnswer(schema), { method: 'POST', path, body }, context);
        for (const result of answer.results) seen.set(result.id, result);
        total = answer.totalResults ?? undefined;
        if (typeof answer.totalPages !== 'number' && answer.results.length >= options.pageSize) {
          throw invalidAnswer('POST', path, 'a full page does not say how many pages there are');
        }
        pages = answer.results.length === 0 ? 0 : (answer.totalPages ?? 1);
      }
      if (total === undefined || seen.size >= total) return [...seen.values()];
      if (reading === MOST_READINGS) {
        throw invalidAnswer(
          'POST',
          path,
          `it says there are ${total} results, but only ${seen.size} were in its pages`,
        );
      }
    }
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
    ): Promise<Map<string, ObjectThere>> {
      const wanted = new Set(extIds);
      const there = new Map<string, ObjectThere>();
      const request = (page: wire.Page) => wire.findByExternalIds(extIds, page);
      for (const found of await findAll(paths.findObjects, wire.foundObject, request, context)) {
        if (found.extId === null || found.extId === undefined || !wanted.has(found.extId)) continue;
        const object = wire.toDestinationObject(found, { extId: found.extId, typeId });
        there.set(found.extId, { ...object, id: found.id });
      }
      return there;
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
