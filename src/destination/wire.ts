// The service's paths, requests and answers: everything that is known or assumed of them, and nowhere else. What is not
// published is marked "Assumed"; docs/api-contract.md lists each assumption with its switch and its check. Answers may
// hold more than is named here; what is named must be in them.
import { z } from 'zod';
import { RESERVATION_STATUSES } from '../streams/config-schema.js';
import { createObject, type DestinationObject } from '../streams/destination-object.js';

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

export const authenticateAnswer = z.looseObject({ token: z.string().min(1) });

const id = z.number().int();
const externalId = z.string().nullish();

const field = z.looseObject({ fieldId: z.string(), values: z.array(z.string()).nullish() });

/**
 * Assumed: `typeId` and `active` are on an object that is read; where they are absent, our type and true are taken.
 * Without `fields` a whole replacement could empty fields unseen: such an answer is refused.
 */
export const foundObject = z.looseObject({
  id,
  extId: externalId,
  typeId: z.string().nullish(),
  active: z.boolean().nullish(),
  fields: z.array(field),
});
export type FoundObject = z.output<typeof foundObject>;

/** A type or a field. Assumed: `name`. */
export const foundDefinition = z.looseObject({ id, extId: externalId, name: z.string().nullish() });
export type FoundDefinition = z.output<typeof foundDefinition>;

/** Beyond this a number of seconds lies past the year 9999: it would be milliseconds. */
const seconds = z.number().min(0).max(253_402_300_799, 'Unix seconds expected');

/** Times in Unix seconds. Assumed: `extId`. */
export const foundReservation = z.looseObject({
  id,
  extId: externalId,
  begin: seconds,
  end: seconds,
  status: z.array(z.string()).nullish(),
  objects: z.array(z.looseObject({ typeId: z.string(), objectId: z.string() })).nullish(),
  fields: z.array(field).nullish(),
});

/** A reservation that must name its objects: an answer without them is refused. */
export const foundUpcoming = foundReservation.extend({
  objects: z.array(z.looseObject({ typeId: z.string(), objectId: z.string() })),
});

/** Assumed: a reservation's shape, with `reservationId` and `cancelled` in seconds. */
export const foundCancellation = foundReservation.extend({
  reservationId: id.nullish(),
  cancelled: seconds.nullish(),
});
export type FoundReservation = z.output<typeof foundReservation>;
export type FoundCancellation = z.output<typeof foundCancellation>;

export function findAnswer<T extends z.ZodType>(result: T) {
  return z.looseObject({
    results: z.array(result),
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

/** External ids alone: together with another filter the service answers the union of both. */
export function findByExternalIds(extIds: readonly string[], page: Page) {
  return { ...EXTERNAL, extIds, ...page };
}

export function findEverything(page: Page) {
  return { ...EXTERNAL, ...page };
}

/** The service's own ids alone, for the same reason. */
export function findByIds(ids: readonly number[], page: Page) {
  return { ...EXTERNAL, ids, ...page };
}

export interface Period {
  /** Unix seconds. */
  from: number;
  to: number;
}

const dates = ({ from, to }: Period) => ({ startDate: from, endDate: to });
const everyStatus = { reservationStatus: RESERVATION_STATUSES, sort: 'ASCID' } as const;

/** Reservations that overlap the period. Assumed: ascending ids can be asked for, as with objects. */
export function findInWindow(window: Period, page: Page) {
  return { ...EXTERNAL, date: dates(window), ...everyStatus, ...page };
}

/** Reservations changed within the period, whenever they are. Assumed: `modified` has the shape of `date`. */
export function findModified(period: Period, page: Page) {
  return { ...EXTERNAL, modified: dates(period), ...everyStatus, ...page };
}

/**
 * Assumed: a reservation of any of the `searchObjects` of one type is found; a cancelled one is not among the
 * reservations, and a rejected one only when its status is named.
 */
export function findUpcoming(typeId: string, extIds: readonly string[], window: Period, page: Page) {
  const searchObjects = extIds.map((objectId) => ({ typeId, objectId }));
  return {
    ...EXTERNAL,
    date: dates(window),
    searchObjects,
    reservationStatus: STANDING_STATUSES,
    ...page,
  };
}

/** Assumed: the request's shape; a match by `extId`; an object that exists is replaced whole. */
export function putRequest(objects: readonly DestinationObject[]) {
  return { ...EXTERNAL, objects };
}

/** Assumed: one result for each object, in any order, named by `extId`; `status` as in HTTP. */
export const putAnswer = z.looseObject({
  results: z.array(
    z.looseObject({
      extId: z.string(),
      id: id.nullish(),
      status: z.number().int(),
      message: z.string().nullish(),
    }),
  ),
});

/** An object that was read, as we compare and write it. */
export function toDestinationObject(
  found: FoundObject,
  fallback: { extId: string; typeId: string },
): DestinationObject {
  return createObject(
    found.extId ?? fallback.extId,
    found.typeId ?? fallback.typeId,
    found.active ?? true,
    found.fields.map(({ fieldId, values }) => [fieldId, values ?? []] as const),
  );
}

/** A reservation as we compare it. Times in milliseconds since 1970. */
export interface Reservation {
  id: number;
  extId: string | undefined;
  begin: number;
  end: number;
  /** One of each rank: how complete (`B_`), how certain (`C_`). */
  status: readonly string[];
  objects: readonly { typeId: string; objectId: string }[];
  fields: readonly { fieldId: string; values: readonly string[] }[];
}

/** `id` and `extId` are the cancellation's own; the reservation's id is `reservationId`. */
export interface Cancellation extends Reservation {
  reservationId: number | undefined;
  cancelledAt: number | undefined;
}

/** Seconds become milliseconds, and a rank without a status gets the usual one. */
export function toReservation(found: FoundReservation): Reservation {
  const given = found.status ?? [];
  const usual = (['B_COMPLETE', 'C_CONFIRMED'] as const).filter(
    (status) => !given.some((other) => other.startsWith(status.slice(0, 2))),
  );
  return {
    id: found.id,
    extId: found.extId ?? undefined,
    begin: found.begin * 1000,
    end: found.end * 1000,
    status: [...given, ...usual].toSorted(),
    objects: (found.objects ?? []).map(({ typeId, objectId }) => ({ typeId, objectId })),
    fields: (found.fields ?? []).map(({ fieldId, values }) => ({ fieldId, values: values ?? [] })),
  };
}

export function toCancellation(found: FoundCancellation): Cancellation {
  const { reservationId, cancelled } = found;
  return {
    ...toReservation(found),
    reservationId: reservationId ?? undefined,
    cancelledAt: cancelled === null || cancelled === undefined ? undefined : cancelled * 1000,
  };
}

/** What the service says of a failure: the message of a JSON body, or the beginning of its text. */
export function readFailure(body: string): string {
  try {
    const parsed = z
      .looseObject({
        message: z.string().optional(),
        error: z.union([z.string(), z.looseObject({ message: z.string() })]).optional(),
      })
      .parse(JSON.parse(body));
    const error = typeof parsed.error === 'object' ? parsed.error.message : parsed.error;
    return (parsed.message ?? error ?? '').slice(0, 500);
  } catch {
    return body.slice(0, 500).replace(/\s+/g, ' ').trim();
  }
}
