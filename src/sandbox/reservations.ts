// The service's reservations and cancellations. Schedulers make, move and cancel them at the service; rehearsals do it
// through the controls. The service's endpoints only find them.
import { z } from 'zod';
import { Refusal } from './http.js';
import {
  createIdStore,
  reference,
  type IdFormat,
  nowSeconds,
  find,
  modifiedWithin,
  period,
  type FindSelection,
} from './stores.js';
import { fieldsSchema, type Schema } from './schema.js';
import type { Objects } from './object-store.js';

/** How complete (`B_`) and how certain (`C_`) a reservation is: one of each, the first of each unless stated. */
const SANDBOX_STATUSES = [
  'B_COMPLETE',
  'B_INCOMPLETE',
  'C_CONFIRMED',
  'C_PRELIMINARY',
  'C_PLANNED',
  'C_REQUESTED',
  'C_REJECTED',
] as const;
export type SandboxStatus = (typeof SANDBOX_STATUSES)[number];

export const periodSchema = z.strictObject({ begin: z.int(), end: z.int() });
export const statusSchema = z.array(z.enum(SANDBOX_STATUSES)).readonly();

/** A reservation as a scheduler enters it. Times in Unix seconds. */
export const reservationInput = periodSchema.extend({
  /** The service makes one up when absent; null: made by hand, without one. */
  extId: z.string().min(1).nullish(),
  /** Empty: complete and confirmed. Those of the organization's own may be among them. */
  status: z.array(z.string()).readonly().optional(),
  /** External ids. What was made by hand has none: null, or the service's number. Null: they are not shown. */
  objects: z
    .array(z.strictObject({ typeId: reference.nullish(), objectId: reference.nullish() }))
    .readonly()
    .nullish(),
  fields: fieldsSchema.optional(),
  /** When it was changed last; now, when absent. */
  modified: z.int().optional(),
});
export type ReservationInput = z.infer<typeof reservationInput>;

type Complete<T> = { [Key in keyof T]-?: Exclude<T[Key], undefined> };
type SandboxReservation = { id: number } & Complete<ReservationInput>;

export interface SandboxCancellation extends SandboxReservation {
  /** The id the reservation had, and has again if it is restored. */
  reservationId: number;
  /** Unix seconds. */
  cancelled: number;
}

/** A reservation's id or external id. */
export type ReservationKey = number | string;

/** A reservation is either among the reservations or among the cancellations. */
export function createReservations() {
  const reservations = createIdStore<SandboxReservation>('reservation', 500_001);
  const cancellations = createIdStore<SandboxCancellation>('cancellation', 900_001);
  /** The reservations that were cancelled, as they were. */
  const cancelled = new Map<SandboxCancellation, SandboxReservation>();

  const existing = (key: ReservationKey): SandboxReservation => {
    const found = reservations.get(key);
    if (found === undefined) throw new Refusal(404, `no reservation ${key}`);
    return found;
  };
  const put = (reservation: SandboxReservation): SandboxReservation => {
    const { id, extId, begin, end } = reservation;
    if (begin >= end) throw new Refusal(400, 'begin must be before end');
    if (extId !== null && (reservations.get(extId)?.id ?? id) !== id)
      throw new Refusal(400, `reservation ${extId} exists`);
    return reservations.put(reservation);
  };
  const change = (key: ReservationKey, to: Partial<SandboxReservation>) =>
    put({ ...existing(key), ...to, modified: nowSeconds() });

  return {
    stores: { reservations, cancellations },
    controls: {
      reservations: () => reservations.list(),
      cancellations: () => cancellations.list(),
      addReservation(input: ReservationInput): SandboxReservation {
        const id = reservations.nextId();
        const { begin, end, extId = `reservation_${id}`, modified = nowSeconds() } = input;
        const { status = [], objects = [], fields = [] } = structuredClone(input);
        return put({ id, extId, begin, end, status, objects, fields, modified });
      },
      moveReservation: (key: ReservationKey, { begin, end }: { begin: number; end: number }) =>
        change(key, { begin, end }),
      setReservationStatus: (key: ReservationKey, status: readonly SandboxStatus[]) =>
        change(key, { status: [...status] }),
      /** Moves it to the cancellations, with an id and an external id of its own. */
      cancelReservation(key: ReservationKey, options: { extId?: string | undefined } = {}) {
        const was = existing(key);
        const id = cancellations.nextId();
        const extId = options.extId ?? `cancellation_${id}`;
        const now = nowSeconds();
        const cancellation = { ...was, id, extId, reservationId: was.id, cancelled: now, modified: now };
        reservations.remove(was);
        cancelled.set(cancellation, was);
        return cancellations.put(cancellation);
      },
      /** Takes a cancellation back; `key` is the reservation's. */
      restoreReservation(key: ReservationKey): SandboxReservation {
        for (const [cancellation, was] of cancelled) {
          if (was.id !== key && was.extId !== key) continue;
          const restored = put({ ...was, modified: nowSeconds() });
          cancelled.delete(cancellation);
          cancellations.remove(cancellation);
          return restored;
        }
        throw new Refusal(404, `no cancelled reservation ${key}`);
      },
      /** Removes it without a trace, as the service does with one that existed less than five minutes. */
      removeReservation: (key: ReservationKey): void => reservations.remove(existing(key)),
    },
  };
}

// Finds of reservations and cancellations, with the known traps of the service: statuses that are hidden unless they are
// named, and lists of ids that widen a find instead of narrowing it.

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
