// The service's reservations and cancellations. Schedulers make, move and cancel them at the service; rehearsals do it
// through the handle or the control interface. The service's endpoints only find them.
import { z } from 'zod';
import { fieldsSchema } from './paging.js';
import { Refusal } from './refusal.js';

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
export const statusSchema = z.array(z.enum(SANDBOX_STATUSES));

/** A reservation as a scheduler enters it. Times in Unix seconds. */
export const reservationInput = periodSchema.extend({
  /** The service makes one up when absent. */
  extId: z.string().min(1).optional(),
  /** Empty: complete and confirmed. */
  status: statusSchema.optional(),
  /** External ids. */
  objects: z.array(z.strictObject({ typeId: z.string(), objectId: z.string() })).optional(),
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

const FIRST_RESERVATION = 500_001;
const FIRST_CANCELLATION = 900_001;

/** A reservation is either among the reservations or among the cancellations. Changes return a copy. */
export function createReservations(now: () => number = () => Math.floor(Date.now() / 1000)) {
  const reservations = new Map<number, SandboxReservation>();
  const idByExtId = new Map<string, number>();
  const cancellations = new Map<number, { shown: SandboxCancellation; was: SandboxReservation }>();
  let nextReservation = FIRST_RESERVATION;
  let nextCancellation = FIRST_CANCELLATION;

  const existing = (key: ReservationKey): SandboxReservation => {
    const found = reservations.get(typeof key === 'number' ? key : (idByExtId.get(key) ?? 0));
    if (found === undefined) throw new Refusal(404, `no reservation ${key}`);
    return found;
  };
  const keep = (reservation: SandboxReservation): SandboxReservation => {
    if (reservation.begin >= reservation.end) throw new Refusal(400, 'begin must be before end');
    const holder = idByExtId.get(reservation.extId);
    if (holder !== undefined && holder !== reservation.id)
      throw new Refusal(400, `reservation ${reservation.extId} exists`);
    reservations.set(reservation.id, reservation);
    idByExtId.set(reservation.extId, reservation.id);
    return structuredClone(reservation);
  };
  const drop = (reservation: SandboxReservation): void => {
    reservations.delete(reservation.id);
    idByExtId.delete(reservation.extId);
  };

  return {
    /** In ascending id order. */
    reservations: (): SandboxReservation[] => [...reservations.values()].sort((a, b) => a.id - b.id),
    /** In ascending id order. */
    cancellations: (): SandboxCancellation[] => [...cancellations.values()].map(({ shown }) => shown),

    add(input: ReservationInput): SandboxReservation {
      const id = nextReservation;
      const { begin, end, status = [], objects = [], fields = [], modified = now() } = input;
      const extId = input.extId ?? `reservation_${id}`;
      const added = keep(structuredClone({ id, extId, begin, end, status, objects, fields, modified }));
      nextReservation += 1;
      return added;
    },
    move(key: ReservationKey, to: { begin: number; end: number }): SandboxReservation {
      return keep({ ...existing(key), begin: to.begin, end: to.end, modified: now() });
    },
    setStatus(key: ReservationKey, status: readonly SandboxStatus[]): SandboxReservation {
      return keep({ ...existing(key), status: [...status], modified: now() });
    },
    /** Moves it to the cancellations, with an id and an external id of its own. */
    cancel(key: ReservationKey, options: { extId?: string | undefined } = {}): SandboxCancellation {
      const was = existing(key);
      const id = nextCancellation;
      nextCancellation += 1;
      const cancelled = now();
      const extId = options.extId ?? `cancellation_${id}`;
      const shown = { ...was, id, extId, reservationId: was.id, cancelled, modified: cancelled };
      cancellations.set(id, { shown, was });
      drop(was);
      return structuredClone(shown);
    },
    /** Takes back the cancellation of this reservation. */
    restore(key: ReservationKey): SandboxReservation {
      for (const [id, { was }] of cancellations) {
        if (was.id !== key && was.extId !== key) continue;
        const restored = keep({ ...was, modified: now() });
        cancellations.delete(id);
        return restored;
      }
      throw new Refusal(404, `no cancelled reservation ${key}`);
    },
    /** Removes it without a trace, as the service does with one that existed less than five minutes. */
    remove(key: ReservationKey): void {
      drop(existing(key));
    },
  };
}

export type ReservationStore = ReturnType<typeof createReservations>;
