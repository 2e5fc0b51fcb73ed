// Finds of reservations and cancellations, with the known traps of the service: statuses that are hidden unless they are
// named, and lists of ids that widen a find instead of narrowing it.
import { z } from 'zod';
import { reference, type IdFormat } from './id-store.js';
import type { Objects } from './object-store.js';
import { find, modifiedWithin, period, type FindSelection } from './paging.js';
import { statusSchema, type SandboxReservation, type SandboxStatus } from './reservation-store.js';
import type { Schema } from './schema.js';

export const reservationFind = find.extend({
  date: period.optional(),
  searchObjects: z.array(z.strictObject({ typeId: reference, objectId: reference })).optional(),
  reservationStatus: statusSchema.optional(),
  modified: period.optional(),
});
type ReservationFind = z.infer<typeof reservationFind>;

/** The selection of a find of reservations or of cancellations: these show what they have in addition, too. */
export function createSelectReservations(
  { schema, objects }: { schema: Schema; objects: Objects },
  honoursModified: boolean,
) {
  const show = ({ modified: _hidden, ...shown }: SandboxReservation, format: IdFormat) => ({
    ...shown,
    objects: shown.objects?.map(({ typeId, objectId }) => ({
      typeId: typeof typeId === 'string' ? schema.types.shown(typeId, format) : typeId,
      objectId: typeof objectId === 'string' ? objects.store.shown(objectId, format) : objectId,
    })),
    fields: shown.fields.map(({ fieldId, values }) => ({
      fieldId: schema.fields.shown(fieldId, format),
      values,
    })),
  });

  /** The filter for a reservation that has, of each type asked for, any of the objects asked for. */
  const hasObjects = (searchObjects: NonNullable<ReservationFind['searchObjects']>, idFormat: IdFormat) => {
    const wanted = new Map<string, Set<unknown>>();
    for (const { typeId, objectId } of searchObjects) {
      const type = schema.types.require(typeId, idFormat).extId ?? '';
      const known = objects.store.resolve(objectId, idFormat);
      const extId = typeof objectId === 'string' ? objectId : (known?.extId ?? '');
      wanted.set(type, (wanted.get(type) ?? new Set()).add(extId));
    }
    return (reservation: SandboxReservation) =>
      [...wanted].every(([type, extIds]) =>
        reservation.objects?.some(({ typeId, objectId }) => typeId === type && extIds.has(objectId)),
      );
  };

  return (request: ReservationFind): FindSelection<SandboxReservation> => {
    const { date, modified, reservationStatus, searchObjects } = request;
    const isVisible = ({ status }: SandboxReservation) => isAskedFor(status, reservationStatus);
    return {
      isVisible,
      filters: [
        date && (({ begin, end }) => begin < date.endDate && end > date.startDate),
        honoursModified ? modifiedWithin(modified) : undefined,
        reservationStatus && isVisible,
        searchObjects && hasObjects(searchObjects, request.idFormat),
      ],
      show: (reservation) => show(reservation, request.idFormat),
    };
  };
}

/** In each of the two ranks the status has to be one that was asked for; in a rank without one, the usual status. */
function isAskedFor(status: readonly string[], asked: readonly SandboxStatus[] = []): boolean {
  return (['B_COMPLETE', 'C_CONFIRMED'] as const).every((usual) => {
    const rank = usual.slice(0, 2);
    const actual = status.find((name) => name.startsWith(rank)) ?? usual;
    const wanted: string[] = asked.filter((name) => name.startsWith(rank));
    return wanted.length === 0 ? actual === usual : wanted.includes(actual);
  });
}
