// Everything this program believes about the service's paths, requests and answers stands here, and nowhere
// else. What is not published is named an assumption; docs/api-contract.md lists each with the way it is
// switched and checked. Answers may hold more than is named; what is named must be there.
import { z } from 'zod';
import { createObject, type DestinationObject } from '../streams/object.js';

/** The version in front of the authentication path is the service's own; that of the others is configurable. */
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
 * Assumed: `typeId` and `active` stand on an object that is read; absent, they are taken as ours and true. Without
 * `fields` there is no telling what a whole replacement would empty: such an answer is refused.
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

/** Times in Unix seconds. Assumed: `extId`. */
export const foundReservation = z.looseObject({
  id,
  extId: externalId,
  begin: z.number(),
  end: z.number(),
  status: z.array(z.string()).nullish(),
  objects: z.array(z.looseObject({ typeId: z.string(), objectId: z.string() })).nullish(),
  fields: z.array(field).nullish(),
});

/** Assumed: a reservation's shape, with `reservationId` and `cancelled` in seconds. */
export const foundCancellation = foundReservation.extend({
  reservationId: id.nullish(),
  cancelled: z.number().nullish(),
});

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

/** Every status with a begin and an end. A find that does not name them hides five of the seven. */
export const RESERVATION_STATUSES = [
  'B_COMPLETE',
  'B_INCOMPLETE',
  'C_CONFIRMED',
  'C_PRELIMINARY',
  'C_PLANNED',
  'C_REQUESTED',
  'C_REJECTED',
] as const;

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

/** `from` and `to` in Unix seconds; what overlaps them. */
export function findInWindow(window: { from: number; to: number }, page: Page) {
  return {
    ...EXTERNAL,
    date: { startDate: window.from, endDate: window.to },
    reservationStatus: RESERVATION_STATUSES,
    ...page,
  };
}

/** Assumed: the request's shape; a match by `extId`; what is there is replaced whole. */
export function putRequest(objects: readonly DestinationObject[]) {
  return { ...EXTERNAL, objects };
}

/** Assumed: one result an object, in any order, named by `extId`; `status` as HTTP's. */
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

/** What an object that was read holds, as we compare and write it. */
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

/** The service's own words about a failure: a JSON body's message, or the beginning of its text. */
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
