// Finds of reservations and cancellations. A find of upcoming reservations answers which objects have any: each request
// reads one page, only for objects not yet found. If a page is not complete, the next request covers a shorter period,
// whose reservations fit on a page.
import type { Filter, FoundCancellation, FoundReservation } from '../dialect/dialect.js';
import { tryInHalves } from '../errors/try-in-halves.js';
import type { FieldValues } from '../streams/destination-object.js';
import { isStorable } from '../streams/local-key.js';
import type { Client } from './client.js';
import type { Context } from './exchange.js';
import { byExtIds, byIds, PAGES_AT_ONCE, type Finder } from './find-pages.js';
import { invalidAnswer, type Named } from './http-errors.js';
import { isWholeAnswer, type PageAnswer } from './paging.js';
import type { Find, Reader } from './read-answers.js';

/** Begin and end of a period, in Unix seconds. */
export interface Period {
  from: number;
  to: number;
}

export interface UpcomingReservation {
  /** External id of the reservation, or else its id. */
  name: string;
  /** Begin of the reservation, in Unix seconds. */
  begin: number;
}

/** Selects reservations or cancellations by period, by time of change, or by id. `most` is their maximum number. */
export type ReservationSelection =
  | { window: Period; most?: number | undefined }
  | { modified: Period; most?: number | undefined }
  | { extIds: readonly string[] }
  | { ids: readonly string[] };

/** Results of a find. If they would be more than `most`, `results` is empty and `tooMany` has their number. */
export interface Found<T> {
  results: T[];
  tooMany?: number;
}

export function createReservationFinds(
  pageSize: number,
  client: Client,
  { findPage, readFind, findNamed }: Finder,
  { finds }: Reader,
) {
  /** Reads selected reservations or cancellations. If there are more than `most`, returns only their number. */
  async function findSelected<T extends FoundReservation, R>(
    find: Find<T>,
    convert: (found: T) => R,
    selection: ReservationSelection,
    context: Context,
  ): Promise<Found<R>> {
    const atOnce = PAGES_AT_ONCE;
    const found =
      'ids' in selection
        ? { results: await findNamed(find, selection.ids, byIds, context, { atOnce }) }
        : 'extIds' in selection
          ? { results: await findNamed(find, selection.extIds, byExtIds, context, { atOnce }) }
          : await readFind(find, filterOf(selection), context, { most: selection.most, atOnce });
    return { ...found, results: found.results.map(convert) };
  }

  return {
    /** Returns upcoming reservations of objects of one type: see `findUpcoming`. `now` is in Unix seconds. */
    findUpcomingReservations(typeId: string, extIds: readonly string[], now: number, context: Context) {
      const upcomingOf = (some: readonly string[], period: Period): Filter => ({
        by: 'upcoming',
        typeId,
        extIds: some,
        ...inMilliseconds(period),
      });
      const ask = async (some: readonly string[], period: Period) => {
        const first = { page: 1, limit: pageSize };
        const answer = await findPage(finds.reservations, upcomingOf(some, period), first, context);
        const results = answer.results.map((one) => ({
          ...one,
          begin: one.begin / 1000,
          end: one.end / 1000,
        }));
        return { ...answer, results };
      };
      const { call } = client.find('reservations', upcomingOf(extIds, { from: now, to: now }));
      return findUpcoming(ask, extIds, { now, pageSize, call });
    },

    findReservations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.reservations, toReservation, selection, context),
    findCancellations: (selection: ReservationSelection, context: Context) =>
      findSelected(finds.cancellations, toCancellation, selection, context),
  };
}

const filterOf = (selection: Extract<ReservationSelection, { most?: unknown }>): Filter =>
  'window' in selection
    ? { by: 'window', ...inMilliseconds(selection.window) }
    : { by: 'modified', ...inMilliseconds(selection.modified) };

export const inMilliseconds = ({ from, to }: Period) => ({ from: from * 1000, to: to * 1000 });

/** A reservation in the form that is compared with bookings. */
export type Reservation = ReturnType<typeof toReservation>;
/** A cancellation with its own `id` and `extId`. `reservationId` is the id of the cancelled reservation. */
export type Cancellation = ReturnType<typeof toCancellation>;

/**
 * Converts a found reservation. Adds the usual status, `B_COMPLETE` or `C_CONFIRMED`, if no status has the same prefix.
 * Objects and fields without a name are left out, because slotsync did not make them.
 */
function toReservation(found: FoundReservation) {
  const given = found.status ?? [];
  const usual = (['B_COMPLETE', 'C_CONFIRMED'] as const).filter(
    (status) => !given.some((other) => other.startsWith(status.slice(0, 2))),
  );
  const fields: readonly FieldValues[] = (found.fields ?? []).flatMap(({ fieldId, values }) =>
    fieldId === undefined ? [] : { fieldId, values: values ?? [] },
  );
  const { id, extId, begin, end } = found;
  return {
    id,
    extId: extId !== undefined && isStorable(extId) ? extId : undefined,
    begin,
    end,
    status: [...given, ...usual].toSorted(),
    objects: (found.objects ?? []).flatMap(({ typeId, objectId }) =>
      typeId === undefined || objectId === undefined ? [] : { typeId, objectId },
    ),
    fields,
  };
}

function toCancellation(found: FoundCancellation) {
  const { reservationId, cancelledAt } = found;
  return {
    ...toReservation(found),
    reservationId: reservationId ?? undefined,
    cancelledAt: cancelledAt ?? undefined,
  };
}

/** A reservation of which `findUpcoming` reads these properties. Times are in Unix seconds. */
type Booked = Pick<FoundReservation, 'id' | 'extId' | 'begin' | 'end' | 'objects'>;

/** Period in which reservations are searched for, in seconds. No timetable reaches further than ten years. */
const FAR_AHEAD = 10 * 365 * 24 * 60 * 60;
const LEAST_AIM = 0.5;

/**
 * Returns reservations of these objects that have not ended at `now` (Unix seconds), sorted by begin. An object without
 * reservations is not in the result. A booked object may have more reservations than the result shows.
 *
 * `ask` reads the first page of the objects' reservations in a period. Only a complete answer over the whole future
 * shows that an object has no reservation. Reservations that do not name their objects belong to the object that was
 * requested alone. Throws `answer_invalid` if there are reservations, but all of them name other objects.
 *
 * The number of requests depends on the objects, not on the number of reservations. It is 1 if everything fits on a
 * page, 2 if a single object has very many reservations, and about 10 at most for 1000 similarly booked objects. It is
 * never more than two per object and one.
 */
export async function findUpcoming(
  ask: (extIds: readonly string[], period: Period) => Promise<PageAnswer<Booked>>,
  extIds: readonly string[],
  { now, pageSize, call }: { now: number; pageSize: number; call: Named },
): Promise<Map<string, UpcomingReservation[]>> {
  const future: Period = { from: now, to: now + FAR_AHEAD };
  const upcoming = new Map<string, UpcomingReservation[]>();
  await tryInHalves(extIds, async (part) => {
    const open = new Set(part);
    let period = future;
    /** Number of pages that the next period is aimed at. Raised after a page that had room left. */
    let aim = LEAST_AIM;
    for (let isFirst = true; open.size > 0; isFirst = false) {
      const page = await ask([...open], period);
      const isWhole = isWholeAnswer(page, pageSize);
      const standing = page.results.filter(({ end }) => end > now).toSorted((a, b) => a.begin - b.begin);
      const seen = standing.filter(({ objects }) => objects?.some(({ objectId = '' }) => open.has(objectId)));
      const nameless = standing.filter((one) => isNameless(one) && !seen.includes(one));
      if (seen.length === 0 && (!isWhole || standing.length > 0)) {
        // Unnamed objects cannot be determined, and the next answer would be the same.
        if (nameless.length === 0)
          throw invalidAnswer(call, 'none of its reservations books a requested object');
        const rest = [...open];
        const [only = '', more] = rest;
        if (more === undefined) upcoming.set(only, nameless.map(toUpcoming));
        return rest;
      }
      const booked = new Set<string>();
      for (const one of seen)
        for (const { objectId = '' } of one.objects ?? []) {
          if (!open.has(objectId)) continue;
          upcoming.set(objectId, [...(upcoming.get(objectId) ?? []), toUpcoming(one)]);
          booked.add(objectId);
        }
      for (const objectId of booked) open.delete(objectId);
      if (isWhole && period === future) {
        if (nameless.length === 0) return [];
        continue;
      }
      if (period !== future) {
        const hasRoom = page.results.length * 2 < pageSize;
        aim = isWhole ? aim * (hasRoom ? 4 : 1) : Math.max(aim / 4, LEAST_AIM);
      }
      // A single object may have filled the first page. If the second page is full too, many objects are booked a lot.
      const isNarrowed = period === future && !isFirst;
      period = isNarrowed ? { from: now, to: endOfShare(page, seen, { now, aim }) } : future;
    }
    return [];
  });
  return upcoming;
}

const toUpcoming = ({ id, extId, begin }: Booked): UpcomingReservation => ({
  name: extId ?? id,
  begin,
});

function isNameless({ objects }: Booked): boolean {
  return !objects?.length || objects.some(({ objectId }) => objectId === undefined);
}

/** Returns the end of a period of about `aim` pages, assuming that all objects are booked like those on this page. */
function endOfShare(
  { results, totalResults, totalPages }: PageAnswer<Booked>,
  sorted: readonly Booked[],
  { now, aim }: { now: number; aim: number },
): number {
  const pages = Math.max((totalResults ?? 0) / results.length, totalPages ?? 2);
  const last = sorted[Math.floor((sorted.length * aim) / pages)] ?? sorted.at(-1);
  return Math.max(last?.begin ?? now, now) + 1;
}
