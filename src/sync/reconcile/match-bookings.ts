// Matches bookings of the mirror with reservations at the service, and stores the verdicts in one transaction. Searches
// for a missing booking or reservation by id first, because it may only lie outside the period that was read.
import type { Cancellation, Reservation } from '../../destination/destination.js';
import type { Lane } from '../../destination/quota/limiter.js';
import type { Queries } from '../../state/database.js';
import { readExternalIds } from '../../state/records/read/owners.js';
import type { MatchedBooking, VerdictStore } from '../../state/bookings/verdict-store.js';
import type { KnownBooking } from '../../state/bookings/read-reservations.js';
import type { Booking, ReservationConfig } from '../../streams/bookings.js';
import type { SyncDeps } from '../run/sync-deps.js';
import { compareBooking, type ResolvedBooking, type ReservationState } from './compare-booking.js';

export interface MatchDeps extends Pick<SyncDeps, 'mirror' | 'destination'> {
  db: Queries;
  verdicts: VerdictStore;
  reservations: ReservationConfig;
  /** Throws `run_cancelled` if an operator has cancelled the run. */
  requireUnended: () => Promise<void>;
  lane: Lane;
  /** External ids that several bookings of the mirror have. */
  shared: ReadonlySet<string>;
}

interface Matching {
  bookings: readonly Booking[];
  reservations: readonly Reservation[];
  /** Keys of bookings from earlier comparisons. A key is deleted if neither side has the booking any more. */
  known?: readonly string[];
  /** Reads the cancellations of this period again, because some may be newer than the first reading. */
  readNewCancellations?: () => Promise<readonly Cancellation[]>;
}

/** Matches bookings with reservations and stores the verdicts. If an error is thrown, nothing is stored. */
export async function matchBookings(deps: MatchDeps, given: Matching, signal?: AbortSignal): Promise<void> {
  const pairs = await pair(deps, given, signal);
  const { cancelled, gone, goneIds, seen } = await findCancellations(deps, given, pairs, signal);
  const resolve = await createResolver(deps, pairs.bookings.values());

  const restored = new Set(gone.flatMap(({ reservationId }) => reservationId ?? []));
  const matched: MatchedBooking[] = [];
  const superseded = new Set<string>();
  const add = (key: string, booking: Booking | undefined, reservation: Reservation | undefined) => {
    const known = pairs.known.get(key);
    const destinationId = reservation?.id ?? known?.destinationId ?? undefined;
    const here = booking && resolve(booking);
    const there: ReservationState = reservation
      ? { is: 'standing', reservation }
      : { is: isCancelled(cancelled, booking, destinationId) ? 'cancelled' : 'absent' };
    const verdict = compareBooking(
      {
        here: deps.reservations.bookings ? here : 'unasked',
        there,
        before: known?.verdict,
        isCancellationGone: reservation !== undefined && restored.has(reservation.id),
      },
      deps.reservations.rules,
    );
    if (!verdict) return;
    matched.push({
      ...verdict,
      key,
      externalId: booking?.externalId ?? reservation?.extId ?? known?.externalId ?? undefined,
      destinationId,
      problem: booking && problemOf(deps, booking, here, pairs.sharedThere),
      beginHere: booking?.begin,
      endHere: booking?.end,
      beginThere: reservation?.begin,
      endThere: reservation?.end,
      here: here && {
        objects: [...here.objects, ...here.unknownObjects],
        fields: here.fields,
        isCancelled: here.isCancelled,
      },
      there: reservation && {
        objects: reservation.objects,
        fields: reservation.fields,
        status: reservation.status,
      },
    });
  };

  for (const booking of pairs.bookings.values()) {
    const reservation = pairs.byExtId.get(booking.externalId);
    add(booking.key, booking, reservation);
    // The reservation was known under another key, without a booking. Now it has the booking's key.
    if (reservation)
      for (const key of pairs.namesOf(reservation.id))
        if (isOnlyAtService(pairs.known.get(key))) superseded.add(key);
  }
  for (const [key, reservation] of pairs.withoutBooking) add(key, undefined, reservation);

  const kept = new Set(matched.map(({ key }) => key));
  const forgotten = [...new Set([...superseded, ...(given.known ?? [])])].filter((key) => !kept.has(key));
  await deps.verdicts.keep({ seen, goneIds: [...goneIds], forgotten, matched });
}

/** Searches each side for bookings that only the other side has, and reads what earlier comparisons found. */
async function pair(deps: MatchDeps, given: Matching, signal: AbortSignal | undefined) {
  const { mirror, destination, verdicts, lane } = deps;
  const source = deps.reservations.bookings;
  const bookings = new Map(given.bookings.map((booking) => [booking.key, booking]));
  const met = new Map<string, Reservation>(given.reservations.map((there) => [there.id, there]));

  const extIdsOfBookings = () =>
    new Set([...bookings.values()].flatMap(({ externalId }) => externalId ?? []));
  const matched = extIdsOfBookings();
  const strays = given.reservations.flatMap(({ extId = [] }) => extId).filter((extId) => !matched.has(extId));
  // The booking lies in another slice of the period, where it is matched again with the same verdict.
  for (const booking of await mirror.bookings.readByExternalIds(source, strays))
    bookings.set(booking.key, booking);

  const standing = new Set([...met.values()].flatMap(({ extId }) => extId ?? []));
  const unmet = [...extIdsOfBookings()].filter((extId) => !standing.has(extId));
  const { results } = await destination.findReservations({ extIds: unmet }, { lane, signal });
  for (const there of results) met.set(there.id, there);

  const rows = await verdicts.readKnown({
    keys: [...new Set([...bookings.keys(), ...(given.known ?? [])])],
    destinationIds: [...met.keys()],
  });
  const known = new Map(rows.map((row) => [row.key, row]));
  const names = new Map<string, string[]>();
  for (const { key, destinationId } of rows)
    if (destinationId !== null) names.set(destinationId, [...(names.get(destinationId) ?? []), key]);
  /** Returns the keys under which a reservation was known, by its number at the service. */
  const namesOf = (id: string) => names.get(id) ?? [];

  const byExtId = new Map<string | undefined, Reservation>();
  /** External ids that several reservations of the service have. */
  const sharedThere = new Set<string | undefined>();
  for (const there of [...met.values()].toSorted(byNumber)) {
    if (there.extId === undefined) continue;
    if (byExtId.has(there.extId)) sharedThere.add(there.extId);
    else byExtId.set(there.extId, there);
  }
  const taken = extIdsOfBookings();
  const alone = [...met.values()].filter(
    (there) => !taken.has(there.extId ?? '') || byExtId.get(there.extId) !== there,
  );
  const withoutBooking = await nameWithoutBooking(deps, alone, namesOf);
  return { bookings, byExtId, sharedThere, withoutBooking, known, namesOf };
}

/** Chooses keys for reservations without a booking: the key of the former booking, unless another booking has it. */
async function nameWithoutBooking(
  { mirror, reservations: { bookings } }: MatchDeps,
  alone: readonly Reservation[],
  namesOf: (id: string) => readonly string[],
): Promise<Map<string, Reservation>> {
  const former = alone.flatMap(({ id }) => namesOf(id).filter((key) => key !== nameOf(id)));
  const inUse = new Set((await mirror.bookings.readByKeys(bookings, former)).map(({ key }) => key));
  return new Map(
    alone.map((there) => [namesOf(there.id).find((key) => !inUse.has(key)) ?? nameOf(there.id), there]),
  );
}

/** Sorts numbers as text: shorter texts first, then by character. */
const byNumber = (a: Reservation, b: Reservation) => a.id.length - b.id.length || (a.id < b.id ? -1 : 1);

/** Returns the key of a reservation that has never had a booking. */
const nameOf = (id: string) => `#${id}`;

const isOnlyAtService = (known: KnownBooking | undefined) =>
  known?.verdict === 'unknown_here' || known?.verdict === 'not_compared';

/**
 * Finds which bookings without a reservation were cancelled. `gone`: known cancellations that the service no longer
 * has, so that the reservation exists again. `seen`: cancellations found now.
 */
async function findCancellations(
  { destination, verdicts, lane }: MatchDeps,
  given: Matching,
  { bookings, byExtId, withoutBooking, known }: Awaited<ReturnType<typeof pair>>,
  signal: AbortSignal | undefined,
) {
  const absent = [...bookings.values()].filter(({ externalId }) => !byExtId.has(externalId));
  const extIds = [...new Set(absent.flatMap(({ externalId }) => externalId ?? []))];
  const seen = new Map<string, Cancellation>();
  const see = (found: readonly Cancellation[]) => {
    for (const one of found) seen.set(one.id, one);
  };
  see((await destination.findCancellations({ extIds }, { lane, signal })).results);

  const standingIds = [...byExtId.values(), ...withoutBooking.values()].map(({ id }) => id);
  const absentIds = [...absent.map(({ key }) => key), ...(given.known ?? [])].flatMap(
    (key) => known.get(key)?.destinationId ?? [],
  );
  const rows = await verdicts.readCancellations({ reservationIds: [...standingIds, ...absentIds], extIds });
  // Cancellations read by this run exist. Older ones may have been removed since, so they are read again.
  const doubtful = rows.filter(({ id, isMet }) => !isMet && !seen.has(id));
  const ids = doubtful.map(({ id }) => id);
  const { results: found } = await destination.findCancellations({ ids }, { lane, signal });
  const confirmed = new Set(found.map(({ id }) => id));
  see(found);
  const gone = doubtful.filter(({ id }) => !confirmed.has(id));
  const goneIds = new Set(gone.map(({ id }) => id));
  const valid = rows.filter(({ id }) => !goneIds.has(id));

  const all = [...valid.map((one) => ({ ...one, extId: one.externalId })), ...seen.values()];
  const cancelled = {
    reservations: new Set(all.map(({ reservationId }) => reservationId)),
    extIds: new Set(all.map(({ extId }) => extId)),
  };
  const vanished = absent.some((booking) => {
    const id = known.get(booking.key)?.destinationId ?? undefined;
    return id !== undefined && !isCancelled(cancelled, booking, id);
  });
  if (vanished && given.readNewCancellations) {
    // The reservation has disappeared since the last comparison. It may have been cancelled only just now.
    const again = await given.readNewCancellations();
    see(again);
    for (const { reservationId } of again) cancelled.reservations.add(reservationId);
  }
  return { cancelled, gone, goneIds, seen: [...seen.values()] };
}

function isCancelled(
  { reservations, extIds }: { reservations: ReadonlySet<unknown>; extIds: ReadonlySet<unknown> },
  booking: Booking | undefined,
  destinationId: string | undefined,
): boolean {
  const extId = booking?.externalId;
  if (destinationId !== undefined && reservations.has(destinationId)) return true;
  return extId !== undefined && extIds.has(extId);
}

/** Returns a function that looks up the external ids of the objects that a booking contains. */
async function createResolver(
  { db }: MatchDeps,
  bookings: Iterable<Booking>,
): Promise<(booking: Booking) => ResolvedBooking> {
  const wanted = new Map(
    [...bookings].flatMap(({ references }) =>
      references.map((one) => [`${one.stream} ${one.localKey}`, one]),
    ),
  );
  const externalIdOf = await readExternalIds(db, [...wanted.values()]);
  return (booking) => ({
    ...booking,
    objects: booking.references.flatMap((one) => externalIdOf(one) ?? []),
    unknownObjects: booking.references
      .filter((one) => externalIdOf(one) === undefined)
      .map(({ stream, localKey }) => `${stream} '${localKey}'`),
  });
}

function problemOf(
  { shared }: MatchDeps,
  booking: Booking,
  here: ResolvedBooking | undefined,
  sharedThere: ReadonlySet<string | undefined>,
) {
  if (booking.problem !== undefined) return booking.problem;
  if (booking.externalId !== undefined && shared.has(booking.externalId)) return 'external_id_shared';
  if (sharedThere.has(booking.externalId)) return 'reservation_shared';
  return here && here.unknownObjects.length > 0 ? 'object_unknown' : undefined;
}
