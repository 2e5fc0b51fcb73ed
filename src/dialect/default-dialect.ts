// The default dialect: all paths, requests and answers of the service. Unpublished facts are marked "Assumed";
// docs/service-contract.md lists each with its setting and check. Answers must have the properties named here, and may
// have more.
import { z } from 'zod';
import { RESERVATION_STATUSES } from '../streams/config-schema.js';
import type { Carried } from '../streams/destination-object.js';
import { isStorable, MAX_ID_BYTES } from '../streams/local-key.js';
import { NotUnderstood, type Dialect, type Filter, type Json } from './dialect.js';

/** Token in visible ASCII, because it is sent in a header, and of a length that servers accept. */
export const TOKEN = z.string().regex(/^[!-~]{1,16384}$/);

/** Schema of a list that stops at the first fault. Collecting a million faults would take gigabytes of memory. */
const listOf = <T extends z.ZodType>(element: T) =>
  z.array(z.unknown()).transform((given, context): z.output<T>[] => {
    const list: z.output<T>[] = [];
    for (const [at, value] of given.entries()) {
      const { data, error } = element.safeParse(value);
      if (error) {
        for (const issue of error.issues)
          context.issues.push({ ...issue, path: [at, ...issue.path] } as never);
        return z.NEVER;
      }
      list.push(data);
    }
    return list;
  });

const idExpected = {
  error: `expected an integer up to 2^53, or a text of at most ${MAX_ID_BYTES} bytes that is not empty`,
};
/** The service's own id: an integer, or a text that the state can store. */
export const ID = z.union(
  [z.int().transform(String), z.string().refine((id) => id !== '' && isStorable(id), idExpected)],
  idExpected,
);
const externalId = z.string().nullish();

const field = z.looseObject({ fieldId: z.string(), values: listOf(z.string()).nullish() });

/** `fields` is required, because replacing an object of unknown fields could clear them. Assumed: `typeId`. */
export const OBJECT = z.looseObject({
  id: ID,
  extId: externalId,
  typeId: z.string().nullish(),
  fields: listOf(field),
});
export const NAMES = z.object({ id: ID, extId: externalId });

export const DEFINITION = z.looseObject({ id: ID, extId: externalId, name: z.string().nullish() });

/** Last second of the year 9999. A greater time is probably in milliseconds. */
const LAST_SECOND = 253_402_300_799;
const time = z.number().min(0);

// Schemas of reservations are lenient, because people also book objects that slotsync does not know.
/** An external id, or undefined if it is missing or no text, as in objects made by hand. */
const nameOrNone = z.string().min(1).optional().catch(undefined);
const anyText = z.unknown().transform((given) => (typeof given === 'string' ? given : JSON.stringify(given)));

/** A reservation. Assumed: `extId`, and that external ids name the booked objects. */
export const RESERVATION = z.looseObject({
  id: ID,
  extId: nameOrNone,
  begin: time,
  end: time,
  status: listOf(anyText).nullish(),
  objects: listOf(z.looseObject({ typeId: nameOrNone, objectId: nameOrNone }).catch({})).nullish(),
  fields: listOf(
    z.looseObject({ fieldId: nameOrNone, values: listOf(anyText).nullish() }).catch({}),
  ).nullish(),
});

/** A cancellation. Assumed: the shape of a reservation, plus `reservationId` and `cancelled`. */
const cancellation = RESERVATION.extend({ reservationId: ID.nullish(), cancelled: time.nullish() });

const results = z.looseObject({
  results: z.array(z.unknown()),
  page: z.number().int().nullish(),
  totalPages: z.number().int().nullish(),
  totalResults: z.number().int().nullish(),
});

/**
 * Assumed: the answer to a write has one result for each object, in any order, with `extId` and an HTTP `status`. A
 * reason has the form of an error's body.
 */
const written = z.looseObject({
  results: listOf(z.looseObject({ extId: z.string(), id: ID.nullish(), status: z.number().int() })),
});

/** Selects external ids for objects and references, in requests and answers. */
const EXTERNAL = { idFormat: 'EXTERNAL' } as const;

/** Statuses of a reservation that will take place. */
const STANDING_STATUSES = RESERVATION_STATUSES.filter((status) => status !== 'C_REJECTED');

/** Assumed: the service returns derived fields only if they are requested. */
const derivedFields = ({ derived }: { derived?: boolean | undefined }) =>
  derived ? { includeReferenceFields: true } : {};

const everyStatus = { reservationStatus: RESERVATION_STATUSES, sort: 'ASCID' } as const;

/** Returns the default dialect. Its functions get all parts from `own`, because some may have been replaced. */
export function createDefaultDialect(own: () => Dialect): Dialect {
  const inSeconds = () => own().times === 'seconds';
  const writeTime = (ms: number) => (inSeconds() ? Math.floor(ms / 1000) : ms);
  const dates = ({ from, to }: { from: number; to: number }) => ({
    startDate: writeTime(from),
    endDate: writeTime(to),
  });
  function readTime(place: string, given: number): number {
    if (!inSeconds()) return given;
    if (given > LAST_SECOND) throw new NotUnderstood(place, 'Unix seconds expected');
    return given * 1000;
  }
  const inPeriod = <T extends { begin: number; end: number }>(found: T): T =>
    Object.assign(found, { begin: readTime('begin', found.begin), end: readTime('end', found.end) });

  /** Returns the id in the form for a request: an integer as a number if `ids` is `numbers`, otherwise text. */
  const writeId = (id: string) => {
    const number = Number(id);
    return own().ids === 'numbers' && Number.isSafeInteger(number) && String(number) === id ? number : id;
  };

  /** Returns the properties of one filter. The service would answer the union of several filters. */
  function propertiesOf(filter: Filter): object {
    switch (filter.by) {
      case 'none':
        return {};
      case 'extIds':
        return { extIds: filter.extIds };
      case 'ids':
        return { ids: filter.ids.map(writeId) };
      // Finds all objects of a type, including inactive ones. Assumed: `typeId` selects, and `sort` is honoured.
      case 'type':
        return { typeId: filter.typeId, sort: 'ASCID', ...derivedFields(filter) };
      // Assumed: one value of each field must match, and text fields can be searched (`service.searchByFields`).
      case 'fields':
        return {
          typeId: filter.typeId,
          fields: { exactSearchFields: filter.fields },
          sort: 'ASCID',
          ...derivedFields(filter),
        };
      // Assumed: reservations can be sorted by ascending id, as objects can.
      case 'window':
        return { date: dates(filter), ...everyStatus };
      // Assumed: the filter `modified` has the same shape as the filter `date`.
      case 'modified':
        return { modified: dates(filter), ...everyStatus };
      // Assumed: finds reservations of any of the `searchObjects`. Cancelled reservations are not included, and
      // rejected ones only if their status is named.
      case 'upcoming':
        return {
          date: dates(filter),
          searchObjects: filter.extIds.map((objectId) => ({ typeId: filter.typeId, objectId })),
          reservationStatus: STANDING_STATUSES,
        };
    }
  }

  return {
    authenticate: {
      ask: ({ key, organizationId, region }) => ({
        method: 'POST',
        path: `/v1/organizations/${encodeURIComponent(organizationId)}/api-keys/authenticate`,
        headers: { authorization: `Api-Key ${key}`, 'x-region': region },
      }),
      read(body: Json | null | undefined) {
        const parsed = TOKEN.safeParse(body?.['token']);
        if (parsed.success) return parsed.data;
        throw new NotUnderstood('', 'it holds no token');
      },
      headers: (token) => ({ authorization: `Bearer ${token}` }),
    },
    find: {
      ask: ({ kind, filter, page, limit }) => ({
        method: 'POST',
        path: `/${kind}/find`,
        body: { ...EXTERNAL, ...propertiesOf(filter), page, limit },
      }),
      read: (body) => understood(results, body),
    },
    type: { read: (found) => understood(DEFINITION, found) },
    field: { read: (found) => understood(DEFINITION, found) },
    object: {
      read(found, carries) {
        const read = understood(OBJECT, found);
        const active = own().active.read(read);
        const { id, extId, typeId, fields, ...more } = read;
        if (!carries) return { id, extId, typeId, active, fields };
        for (const name of Object.keys(own().active.write(true))) delete more[name];
        const carriedFields = fields.map(({ fieldId, values, ...rest }) => ({
          fieldId,
          values,
          carried: orNone(rest),
        }));
        return { id, extId, typeId, active, fields: carriedFields, carried: orNone(more) };
      },
      identify: (found) => understood(NAMES, found),
      write({ id, carried, active, fields, ...rest }) {
        const isPlain = fields.every((given) => given.carried === undefined);
        return {
          ...carried,
          ...(id !== undefined && { id: writeId(id) }),
          ...rest,
          ...own().active.write(active),
          fields: isPlain ? fields : fields.map(({ carried: more, ...given }) => ({ ...more, ...given })),
        };
      },
    },
    reservation: { read: (found) => inPeriod(understood(RESERVATION, found)) },
    cancellation: {
      read(found) {
        const read = inPeriod(understood(cancellation, found));
        const { cancelled: at } = read;
        return { ...read, cancelledAt: typeof at === 'number' ? readTime('cancelled', at) : undefined };
      },
    },
    // Assumed: the request's shape, objects match by `extId`, and an existing object is replaced. With
    // `service.assignExternalIds`, also that an `id` names the object that gets the external id.
    write: {
      method: 'PUT',
      path: '/objects',
      body: (objects) => ({ ...EXTERNAL, objects: objects.map((one) => own().object.write(one)) }),
      read: (body) =>
        understood(written, body).results.map((result) => {
          const { extId, id, status } = result;
          const reason = isAccepted(status) ? undefined : own().error.read(result);
          return { extId, id: id ?? undefined, status, reason };
        }),
      patches: false,
    },
    active: {
      // Assumed: the property of an object is called `active`.
      read({ active }) {
        if (typeof active === 'boolean' || active === null || active === undefined) return active;
        throw new NotUnderstood('active', `expected true or false, received ${typeof active}`);
      },
      write: (active) => ({ active }),
    },
    error: {
      read: readReason,
      // Assumed: the service refuses the unknown `idFormat`, without any effect.
      ask() {
        const asked = own().find.ask({ kind: 'objects', filter: { by: 'none' }, page: 1, limit: 1 });
        return { ...asked, body: { ...(asked.body as object), idFormat: 'NONE' } };
      },
    },
    times: 'seconds',
    ids: 'numbers',
    // Assumed: the names of these properties.
    maintained: ['created', 'createdBy', 'modified', 'modifiedBy'],
    // Assumed: finds may read a delayed copy of the service's database.
    findLagSeconds: 10,
  };
}

/** Returns true if the service accepted an object with this status in the answer to a write. */
export const isAccepted = (status: number): boolean => status >= 200 && status < 300;

/** Parses a part of an answer by its schema. Throws NotUnderstood with the place of the first fault. */
export function understood<T extends z.ZodType>(schema: T, given: unknown): z.output<T> {
  const { data, error } = schema.safeParse(given);
  if (!error) return data;
  const [issue] = error.issues;
  throw new NotUnderstood(issue?.path.join('.') ?? '', issue?.message ?? '');
}

const orNone = (more: Json): Carried | undefined => (Object.keys(more).length > 0 ? more : undefined);

/** Maximum number of texts from a list of errors. */
const MOST_ERRORS = 20;

/**
 * Returns the reason in an error's body or in the result of one object: `message`, `error` or `title`, followed by
 * `detail` and `errors`. Assumed: these names, two of which are from RFC 9457.
 */
export function readReason(given: unknown): string | undefined {
  if (typeof given !== 'object' || Array.isArray(given)) return undefined;
  return [...new Set(textsOf(given))].join('; ') || undefined;
}

function textsOf(given: unknown): string[] {
  if (typeof given === 'string') return given.trim() === '' ? [] : [given];
  if (Array.isArray(given)) return given.slice(0, MOST_ERRORS).flatMap(textsOf);
  if (typeof given !== 'object' || given === null) return [];
  const { message, error, title, detail, errors } = given as Record<string, unknown>;
  const headline = [message, error, title].map(textsOf).find(({ length }) => length > 0);
  const listed = textsOf(errors);
  return [...(headline ?? []), ...textsOf(detail), ...(listed.length > 0 ? listed : namedTexts(errors))];
}

/** Returns the texts of an object of errors, each with its property name. */
function namedTexts(errors: unknown): string[] {
  if (typeof errors !== 'object' || errors === null) return [];
  return Object.entries(errors)
    .slice(0, MOST_ERRORS)
    .flatMap(([name, given]) => textsOf(given).map((text) => `${name}: ${text}`));
}
