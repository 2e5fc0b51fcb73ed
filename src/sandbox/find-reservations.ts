// Finds of reservations and cancellations, with the known traps of the service: statuses that are hidden unless they are
// named, and lists of ids that widen a find instead of narrowing it.
import { z } from 'zod';
import type { Objects } from './object-store.js';
import { find, paged, parseBody, period, reference, select } from './paging.js';
import type { IdFormat } from './paging.js';
import { Refusal } from './refusal.js';
import { SANDBOX_STATUSES } from './reservation-store.js';
import type {
  SandboxStatus,
  ReservationStore,
  SandboxCancellation,
  SandboxReservation,
} from './reservation-store.js';
import type { Schema } from './schema.js';

const reservationFind = find.extend({
  date: period.optional(),
  searchObjects: z.array(z.strictObject({ typeId: reference, objectId: reference })).optional(),
  reservationStatus: z.array(z.enum(SANDBOX_STATUSES)).optional(),
  modified: period.optional(),
});

type Request = z.infer<typeof reservationFind>;

/** The two finds; they differ in the store and in two fields of the answer. */
export function createFindReservations(
  deps: { schema: Schema; objects: Objects; reservations: ReservationStore },
  { honoursModified }: { honoursModified: boolean },
) {
  const { schema, objects, reservations } = deps;

  const show = (one: SandboxReservation, format: IdFormat) => ({
    id: one.id,
    extId: one.extId,
    begin: one.begin,
    end: one.end,
    status: one.status,
    objects: one.objects.map(({ typeId, objectId }) => ({
      typeId: schema.shownType(typeId, format),
      objectId: format === 'EXTERNAL' ? objectId : (objects.idOf(objectId) ?? 0),
    })),
    fields: one.fields.map(({ fieldId, values }) => ({
      fieldId: schema.shownField(fieldId, format),
      values,
    })),
  });
  const showCancellation = (one: SandboxCancellation, format: IdFormat) => ({
    ...show(one, format),
    reservationId: one.reservationId,
    cancelled: one.cancelled,
  });

  /** The objects asked for, by type: a find needs any of each type. */
  const wantedByType = (request: Request): Map<string, Set<string>> => {
    const wanted = new Map<string, Set<string>>();
    for (const { typeId, objectId } of request.searchObjects ?? []) {
      const type = schema.type(typeId, request.idFormat);
      if (type === undefined) throw new Refusal(400, `unknown type ${typeId}`);
      const isExternal = typeof objectId === 'string';
      if (isExternal !== (request.idFormat === 'EXTERNAL'))
        throw new Refusal(400, `objectId: wrong kind of id with idFormat ${request.idFormat}`);
      const extId = isExternal ? objectId : (objects.extIdOf(objectId) ?? '');
      wanted.set(type.extId, (wanted.get(type.extId) ?? new Set()).add(extId));
    }
    return wanted;
  };

  const run = <T extends SandboxReservation, R>(
    body: unknown,
    maxPage: number,
    all: readonly T[],
    shown: (one: T, format: IdFormat) => R,
  ) => {
    const request = parseBody(reservationFind, body);
    const { date, reservationStatus } = request;
    const modified = honoursModified ? request.modified : undefined;
    const wanted = wantedByType(request);
    const matches = (one: T) =>
      isAskedFor(one.status, reservationStatus) &&
      (date === undefined || (one.begin < date.endDate && one.end > date.startDate)) &&
      (modified === undefined || (one.modified >= modified.startDate && one.modified <= modified.endDate)) &&
      [...wanted].every(([typeId, ids]) =>
        one.objects.some((object) => object.typeId === typeId && ids.has(object.objectId)),
      );
    const hasList = (request.ids?.length ?? 0) + (request.extIds?.length ?? 0) > 0;
    const isFiltered = [date, modified, reservationStatus, request.searchObjects].some(
      (one) => one !== undefined,
    );
    const found = select(indexed(all), request, hasList && !isFiltered ? undefined : matches);
    return paged(found, request, maxPage, (one) => shown(one, request.idFormat));
  };

  return {
    findReservations: (body: unknown, maxPage: number) =>
      run(body, maxPage, reservations.reservations(), show),
    findCancellations: (body: unknown, maxPage: number) =>
      run(body, maxPage, reservations.cancellations(), showCancellation),
  };
}

/** In each of the two ranks the status has to be one that was asked for; in a rank without one, the usual status. */
function isAskedFor(status: readonly SandboxStatus[], asked: readonly SandboxStatus[] = []): boolean {
  return (['B_COMPLETE', 'C_CONFIRMED'] as const).every((normal) => {
    const rank = normal.slice(0, 2);
    const actual = status.find((one) => one.startsWith(rank)) ?? normal;
    const wanted = asked.filter((one) => one.startsWith(rank));
    return wanted.length === 0 ? actual === normal : wanted.includes(actual);
  });
}

/** Look-ups over a list, built when first needed: most finds list no ids. */
function indexed<T extends { id: number; extId: string }>(all: readonly T[]) {
  let byId: Map<number, T> | undefined;
  let byExtId: Map<string, T> | undefined;
  return {
    all,
    byId: (id: number) => (byId ??= new Map(all.map((one) => [one.id, one]))).get(id),
    byExtId: (extId: string) => (byExtId ??= new Map(all.map((one) => [one.extId, one]))).get(extId),
  };
}
