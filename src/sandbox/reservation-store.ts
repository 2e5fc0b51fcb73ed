// The service's reservations and cancellations. Schedulers make, move and cancel them at the service; rehearsals do it
// through the controls. The service's endpoints only find them.
import { z } from 'zod';
import { Refusal } from './http.js';
import { createIdStore, reference } from './id-store.js';
import { nowSeconds } from './paging.js';
import { fieldsSchema } from './schema.js';

/** How complete (`B_`) and how certain (`C_`) a reservation is: one of each, the first of each unless stated. */
export const SANDBOX_STATUSES = [
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
export type SandboxReservation = { id: number } & Complete<ReservationInput>;

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
