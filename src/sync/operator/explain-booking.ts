// Everything about one booking side by side: the mirror's booking, the service's reservations and cancellations, the last
// verdict and what was asked. Reads on all sides and writes nothing.
import type { Context } from '../../destination/client.js';
import type { Found, ReservationSelection } from '../../destination/destination.js';
import { readBooking, readBookingEvents } from '../../state/bookings/read-reservations.js';
import type { ReservationConfig } from '../../streams/bookings.js';
import type { ExplainDeps } from './explain-record.js';

const CONTEXT = { lane: 'incremental' } as const;
const MOST_EVENTS = 20;

export type BookingExplained = Awaited<ReturnType<typeof explainBooking>>;

/** Explains one booking, named by its key, its external id, or the service's number. */
export async function explainBooking(
  { mirror, destination, state, signal }: ExplainDeps,
  { bookings }: ReservationConfig,
  name: string,
) {
  const known = await readBooking(state.db, name);
  const key = known?.key ?? name;
  const [here] = await mirror.bookings.readByKeys(bookings, [key]);
  const extId = here?.externalId ?? known?.externalId ?? undefined;
  const id = known?.destinationId ?? undefined;

  const requests: { asked: string; results: number }[] = [];
  const ask = async <B extends { id: string }>(
    what: string,
    find: (selection: ReservationSelection, context: Context) => Promise<Found<B>>,
    selections: readonly ReservationSelection[],
  ): Promise<B[]> => {
    const found = new Map<string, B>();
    for (const selection of selections) {
      const { results } = await find(selection, { ...CONTEXT, signal });
      requests.push({ asked: `${what} by ${JSON.stringify(selection)}`, results: results.length });
      for (const one of results) found.set(one.id, one);
    }
    return [...found.values()];
  };
  const byName = extId === undefined ? [] : [{ extIds: [extId] }];
  const byNumber = id === undefined ? [] : [{ ids: [id] }];
  const reservations = await ask('reservations', destination.findReservations, [...byName, ...byNumber]);
  const when = here?.begin ?? known?.beginThere?.getTime();
  const from = Math.floor((when ?? 0) / 1000);
  const around = when === undefined || reservations.length > 0 ? [] : [{ window: { from, to: from + 1 } }];
  const cancellations = await ask('cancellations', destination.findCancellations, [...byName, ...around]);
  return {
    key,
    /** Undefined: no booking of the mirror has this key. */
    here,
    reservations,
    cancellations: cancellations.filter(
      (one) => (extId !== undefined && one.extId === extId) || (id !== undefined && one.reservationId === id),
    ),
    known,
    /** Latest first. */
    events: await readBookingEvents(state.db, key, MOST_EVENTS),
    /** The question to the service, and the size of its answer. */
    requests,
  };
}
