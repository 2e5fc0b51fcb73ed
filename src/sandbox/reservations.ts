// Reservations and cancellations of the sandbox. Tests and rehearsals change them through the sandbox's control
// requests, as people who schedule do at the real service.
import { z } from 'zod';
import { Refusal } from './http.js';
import {
  createIdStore,
  reference,
  type Key,
  nowSeconds,
  find,
  modifiedWithin,
  period,
  type FindSelection,
} from './stores.js';
import { fieldsSchema, type Schema } from './schema.js';

/** How complete (`B_`) and how certain (`C_`) a reservation is. The first status of each kind is the default. */
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

const name = z.union([reference, z.int()]);

/** A reservation as a scheduler enters it. Times are in Unix seconds. */
export const reservationInput = periodSchema.extend({
  /** External id. If undefined, the service makes one; null means that the reservation has none. */
  extId: z.string().min(1).nullish(),
  /** Statuses, which may include the organization's own. An empty list means complete and confirmed. */
  status: z.array(z.string()).readonly().optional(),
  /**
   * Booked objects. `objectId` is an external id; for an object that was made by hand it is null or a number. If the
   * list itself is null, answers omit it.
   */
  objects: z
    .array(z.strictObject({ typeId: name.nullish(), objectId: name.nullish() }))
    .readonly()
    .nullish(),
  fields: fieldsSchema.optional(),
  /** Time of the last change; by default now. */
  modified: z.int().optional(),
});
export type ReservationInput = z.infer<typeof reservationInput>;

type Complete<T> = { [Key in keyof T]-?: Exclude<T[Key], undefined> };
type SandboxReservation = { id: number } & Complete<ReservationInput>;

export interface SandboxCancellation extends SandboxReservation {
  /** Integer id of the cancelled reservation, which it gets again if it is restored. */
  reservationId: number;
  /** Time of the cancellation, in Unix seconds. */
  cancelled: number;
}

/** Creates the stores. A reservation is in only one of the two stores. */
export function createReservations() {
  const reservations = createIdStore<SandboxReservation>('reservation', 500_001);
  const cancellations = createIdStore<SandboxCancellation>('cancellation', 900_001);
  /** Original reservation of each cancellation, for restoring it. */
  const cancelled = new Map<SandboxCancellation, SandboxReservation>();

  const existing = (key: Key): SandboxReservation => {
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
  const change = (key: Key, to: Partial<SandboxReservation>) =>
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
      moveReservation: (key: Key, { begin, end }: { begin: number; end: number }) =>
        change(key, { begin, end }),
      setReservationStatus: (key: Key, status: readonly SandboxStatus[]) =>
        change(key, { status: [...status] }),
      /** Moves a reservation to the cancellations, under a new id and a new external id. */
      cancelReservation(key: Key, options: { extId?: string | undefined } = {}) {
        const was = existing(key);
        const id = cancellations.nextId();
        const extId = options.extId ?? `cancellation_${id}`;
        const now = nowSeconds();
        const cancellation = { ...was, id, extId, reservationId: was.id, cancelled: now, modified: now };
        reservations.remove(was);
        cancelled.set(cancellation, was);
        return cancellations.put(cancellation);
      },
      /** Restores a cancelled reservation. `key` is the reservation's id or external id. */
      restoreReservation(key: Key): SandboxReservation {
        for (const [cancellation, was] of cancelled) {
          if (was.id !== key && was.extId !== key) continue;
          const restored = put({ ...was, modified: nowSeconds() });
          cancelled.delete(cancellation);
          cancellations.remove(cancellation);
          return restored;
        }
        throw new Refusal(404, `no cancelled reservation ${key}`);
      },
      /** Removes a reservation without a trace, as the service does with a reservation younger than five minutes. */
      removeReservation: (key: Key): void => reservations.remove(existing(key)),
    },
  };
}

// Finds of reservations and cancellations, with the known pitfalls of the service. Statuses are hidden unless the
// request lists them, and lists of ids widen a find instead of narrowing it.

export const reservationFind = find.extend({
  date: period.optional(),
  searchObjects: z.array(z.strictObject({ typeId: reference, objectId: reference })).optional(),
  reservationStatus: statusSchema.optional(),
  modified: period.optional(),
});
type ReservationFind = z.infer<typeof reservationFind>;

/** Returns a function that selects the reservations or cancellations of a find. */
export function createSelectReservations(schema: Schema, honoursModified: boolean) {
  /** Returns a filter for reservations that book, for each requested type, at least one of its requested objects. */
  const hasObjects = (searchObjects: NonNullable<ReservationFind['searchObjects']>) => {
    const wanted = new Map<string, Set<unknown>>();
    for (const { typeId, objectId } of searchObjects) {
      schema.types.require(typeId);
      wanted.set(typeId, (wanted.get(typeId) ?? new Set()).add(objectId));
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
        searchObjects && hasObjects(searchObjects),
      ],
      show: ({ modified: _hidden, ...shown }) => shown,
    };
  };
}

/** Returns true if a reservation's `B_` and `C_` status were requested. Without a request, the usual one matches. */
function isAskedFor(status: readonly string[], asked: readonly SandboxStatus[] = []): boolean {
  return (['B_COMPLETE', 'C_CONFIRMED'] as const).every((usual) => {
    const rank = usual.slice(0, 2);
    const actual = status.find((name) => name.startsWith(rank)) ?? usual;
    const wanted: string[] = asked.filter((name) => name.startsWith(rank));
    return wanted.length === 0 ? actual === usual : wanted.includes(actual);
  });
}
