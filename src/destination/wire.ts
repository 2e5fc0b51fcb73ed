// The service's paths, requests and answers: everything that is known or assumed of them, and nowhere else. What is not
// published is marked "Assumed"; docs/api-contract.md lists each assumption with its switch and its check. Answers may
// hold more than is named here; what is named must be in them.
import { z } from 'zod';
import { RESERVATION_STATUSES } from '../streams/config-schema.js';
import {
  createObject,
  type Carried,
  type DestinationObject,
  type FieldValues,
} from '../streams/destination-object.js';
import { isStorable } from '../streams/local-key.js';
import { findExcess } from './read-body.js';

/** The prefix of the authentication path is fixed by the service; that of the others is configurable. */
export function createPaths(organizationId: string, prefix: string) {
  return {
    authenticate: `/v1/organizations/${encodeURIComponent(organizationId)}/api-keys/authenticate`,
    objects: `${prefix}/objects`,
    findObjects: `${prefix}/objects/find`,
    findTypes: `${prefix}/types/find`,
    findFields: `${prefix}/fields/find`,
    findReservations: `${prefix}/reservations/find`,
    findCancellations: `${prefix}/cancellations/find`,
  } as const;
}

/** A token is sent in a header: visible ASCII, of a length that servers accept. */
export const authenticateAnswer = z.looseObject({ token: z.string().regex(/^[!-~]{1,16384}$/) });

/** A list is understood up to its first fault: a million faults would take gigabytes. */
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

const id = z.number().int();
const externalId = z.string().nullish();

const field = z.looseObject({ fieldId: z.string(), values: listOf(z.string()).nullish() });

/**
 * Assumed: `typeId` and `active` are on an object that is read; where they are absent, our type and true are taken.
 * Without `fields` a whole replacement could empty fields unseen: such an answer is refused.
 */
export const foundObject = z.looseObject({
  id,
  extId: externalId,
  typeId: z.string().nullish(),
  active: z.boolean().nullish(),
  fields: listOf(field),
});

/** A type or a field. Assumed: `name`. */
export const foundDefinition = z.looseObject({ id, extId: externalId, name: z.string().nullish() });

/** Beyond this a number of seconds lies past the year 9999: it would be milliseconds. */
const seconds = z.number().min(0).max(253_402_300_799, 'Unix seconds expected');

// People make reservations at the service, of anything: what is not ours need not be understood.
/** Undefined: an external id that is missing, or a number in its place, as of what was made by hand. Ours have one. */
const nameOrNone = z.string().min(1).optional().catch(undefined);
/** A value that is no text is shown as JSON. */
const anyText = z.unknown().transform((given) => (typeof given === 'string' ? given : JSON.stringify(given)));

/** Times in Unix seconds. Assumed: `extId`, and that booked objects of ours are named by external ids. */
export const foundReservation = z.looseObject({
  id,
  extId: nameOrNone,
  begin: seconds,
  end: seconds,
  status: listOf(anyText).nullish(),
  objects: listOf(z.looseObject({ typeId: nameOrNone, objectId: nameOrNone }).catch({})).nullish(),
  fields: listOf(
    z.looseObject({ fieldId: nameOrNone, values: listOf(anyText).nullish() }).catch({}),
  ).nullish(),
});

/** Assumed: a reservation's shape, with `reservationId` and `cancelled` in seconds. */
export const foundCancellation = foundReservation.extend({
  reservationId: id.nullish(),
  cancelled: seconds.nullish(),
});

export function findAnswer<T extends z.ZodType>(result: T) {
  return z.looseObject({
    results: listOf(result),
    page: z.number().int().nullish(),
    totalPages: z.number().int().nullish(),
    totalResults: z.number().int().nullish(),
  });
}

/** Ids and references as external ids, in request and answer. */
const EXTERNAL = { idFormat: 'EXTERNAL' } as const;

/** Statuses of a reservation that is to take place. */
export const STANDING_STATUSES = RESERVATION_STATUSES.filter((status) => status !== 'C_REJECTED');

export interface Page {
  page: number;
  limit: number;
}

/**
 * A find filters by one thing: together with another filter the service answers the union of both. `extIds` are external
 * ids, `ids` the service's own; without a filter everything is found.
 */
export function findRequest(filter: object, page: Page) {
  return { ...EXTERNAL, ...filter, ...page };
}

export interface Period {
  /** Unix seconds. */
  from: number;
  to: number;
}

const dates = ({ from, to }: Period) => ({ startDate: from, endDate: to });
const everyStatus = { reservationStatus: RESERVATION_STATUSES, sort: 'ASCID' } as const;

/** Reservations that overlap the period. Assumed: ascending ids can be asked for, as with objects. */
export const windowFilter = (window: Period) => ({ date: dates(window), ...everyStatus });

/** Reservations changed within the period, whenever they are. Assumed: `modified` has the shape of `date`. */
export const modifiedFilter = (period: Period) => ({ modified: dates(period), ...everyStatus });

/**
 * Assumed: a reservation of any of the `searchObjects` of one type is found; a cancelled one is not among the
 * reservations, and a rejected one only when its status is named.
 */
export const upcomingFilter = (typeId: string, extIds: readonly string[], window: Period) => ({
  date: dates(window),
  searchObjects: extIds.map((objectId) => ({ typeId, objectId })),
  reservationStatus: STANDING_STATUSES,
});

/** Every object of a type, inactive ones too, in ascending id. Assumed: `typeId` selects; `sort` is honoured. */
export const typeFilter = (typeId: string) => ({ typeId, sort: 'ASCID' }) as const;

/**
 * Objects of a type that have one of the values in each of the fields. Assumed: several values of a field match any,
 * several fields must all match, and text fields can be searched: `service.searchByFields`.
 */
export const fieldsFilter = (typeId: string, wanted: ReadonlyMap<string, readonly string[]>) => ({
  typeId,
  fields: { exactSearchFields: [...wanted].map(([fieldId, values]) => ({ fieldId, values })) },
  sort: 'ASCID',
});

/**
 * Assumed: the request's shape; a match by `extId`; an object that exists is replaced whole. Assumed, and off unless
 * `service.assignExternalIds`: an `id` beside `extId` names the object that is given this external id.
 */
export function putRequest(objects: readonly PutObject[]) {
  return { ...EXTERNAL, objects: objects.map(toWritten) };
}

function toWritten(written: PutObject): object {
  const { carried, fields, ...object } = written;
  const isPlain = fields.every((given) => given.carried === undefined);
  return {
    ...carried,
    ...object,
    fields: isPlain ? fields : fields.map(({ carried: more, ...given }) => ({ ...more, ...given })),
  };
}

/** An object to be written; with a number it is that object, which has no external id yet. */
export type PutObject = DestinationObject & { id?: number | undefined };

/** Assumed: one result for each object, in any order, named by `extId`; `status` as in HTTP; a reason as in an error's body. */
export const putAnswer = z.looseObject({
  results: listOf(
    z.looseObject({
      extId: z.string(),
      id: id.nullish(),
      status: z.number().int(),
    }),
  ),
});

/** An object that was read as one of a type; it may have no external id. */
export function toFoundObject(found: z.output<typeof foundObject>, typeId: string, carries = true) {
  const { extId, ...object } = toDestinationObject(found, { extId: '', typeId }, carries);
  return { ...object, id: found.id, extId: extId === '' ? undefined : extId };
}

/**
 * An object that was read, as we compare and write it. `carries`: with the properties that a write sends back although they
 * are not understood. A reading of a whole type does without them.
 */
export function toDestinationObject(
  found: z.output<typeof foundObject>,
  fallback: { extId: string; typeId: string },
  carries = true,
): DestinationObject {
  return createObject(
    found.extId ?? fallback.extId,
    found.typeId ?? fallback.typeId,
    found.active ?? true,
    found.fields.map((given) => [
      given.fieldId,
      given.values ?? [],
      carries ? carriedOf(given, field) : undefined,
    ]),
    carries ? carriedOf(found, foundObject) : undefined,
  );
}

/** Only the service maintains these properties: they are not sent back. Assumed: their names. */
const MAINTAINED: ReadonlySet<string> = new Set(['created', 'createdBy', 'modified', 'modifiedBy']);

/** The properties that the schema does not name. */
function carriedOf(found: object, { shape }: { shape: object }): Carried | undefined {
  const more = Object.entries(found).filter(([name]) => !Object.hasOwn(shape, name) && !MAINTAINED.has(name));
  return more.length > 0 ? Object.fromEntries(more) : undefined;
}

/** A reservation as we compare it. */
export type Reservation = ReturnType<typeof toReservation>;
/** `id` and `extId` are the cancellation's own; the reservation's id is `reservationId`. */
export type Cancellation = ReturnType<typeof toCancellation>;

/**
 * Seconds become milliseconds. The status has one of each rank, how complete (`B_`) and how certain (`C_`): a rank without
 * one gets the usual one. What has no name is left out: it is not ours.
 */
export function toReservation(found: z.output<typeof foundReservation>) {
  const given = found.status ?? [];
  const usual = (['B_COMPLETE', 'C_CONFIRMED'] as const).filter(
    (status) => !given.some((other) => other.startsWith(status.slice(0, 2))),
  );
  const fields: readonly FieldValues[] = (found.fields ?? []).flatMap(({ fieldId, values }) =>
    fieldId === undefined ? [] : { fieldId, values: values ?? [] },
  );
  return {
    id: found.id,
    extId: found.extId !== undefined && isStorable(found.extId) ? found.extId : undefined,
    begin: found.begin * 1000,
    end: found.end * 1000,
    status: [...given, ...usual].toSorted(),
    objects: (found.objects ?? []).flatMap(({ typeId, objectId }) =>
      typeId === undefined || objectId === undefined ? [] : { typeId, objectId },
    ),
    fields,
  };
}

export function toCancellation(found: z.output<typeof foundCancellation>) {
  const { reservationId, cancelled } = found;
  return {
    ...toReservation(found),
    reservationId: reservationId ?? undefined,
    cancelledAt: cancelled === null || cancelled === undefined ? undefined : cancelled * 1000,
  };
}

/** `any`: the body of every error is the service's. `json`: only an object or a list is; the rest is a gateway's. */
export type ErrorBodies = 'json' | 'any';

export interface FailureReading {
  errorBodies: ErrorBodies;
  /** Removes secrets from a text. */
  redact: (text: string) => string;
}

/**
 * The service's text of a failure: the reason in a JSON body, or the beginning of the body. Undefined: the body is not
 * the service's. Assumed: its errors are JSON.
 */
export function readFailure(body: string, { errorBodies, redact }: FailureReading): string | undefined {
  const given = parseJson(body);
  if (errorBodies === 'json' && (typeof given !== 'object' || given === null)) return undefined;
  return toDetail(readReason(given) ?? (isMarkup(body) ? withoutTags(body) : body), redact);
}

/** Most texts of a list of errors. */
const MOST_ERRORS = 20;

/**
 * The reason in an error's body, or in the result of one object: `message`, `error` or `title`, followed by `detail` and
 * `errors`. Undefined: no property has a text. Assumed: these names, of which RFC 9457 has two.
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

/** The texts of errors by the name of what they are about. */
function namedTexts(errors: unknown): string[] {
  if (typeof errors !== 'object' || errors === null) return [];
  return Object.entries(errors)
    .slice(0, MOST_ERRORS)
    .flatMap(([name, given]) => textsOf(given).map((text) => `${name}: ${text}`));
}

const isMarkup = (body: string) => /^\s*<[a-z!?]/i.test(body);

/** The text of a page of HTML. */
function withoutTags(body: string): string {
  const parts = body.slice(0, REDACTED).split(/<\/(?:script|style)[^<>]*>?/i);
  return parts
    .map((part) => part.replace(/<(?:script|style)[\s\S]*$/i, '').replace(/<[^<>]*>/g, ' '))
    .join(' ');
}

/** Characters in which secrets are looked for: far more than are kept, so that none is cut in two among those. */
const REDACTED = 100_000;

/** A message of the service as one line of at most 500 characters. Secrets are removed before it is shortened. */
export function toDetail(text: string, redact: FailureReading['redact']): string {
  return redact(text.slice(0, REDACTED)).slice(0, 1000).replace(/\s+/g, ' ').trim().slice(0, 500);
}

/** Whether a body that should be JSON is something else, rather than JSON that was cut off or nothing. */
export const isForeignText = (body: string) => /^\s*[^\s{[]/.test(body);

/** The smallest find there is: whether the service permits anything with a token. */
export const findAny = findRequest({}, { page: 1, limit: 1 });
/** Assumed: refused for its format, and nothing else happens. */
export const refusedFind = { ...findRequest({}, { page: 1, limit: 1 }), idFormat: 'NONE' };

function parseJson(text: string): unknown {
  try {
    return findExcess(text) === undefined ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}
