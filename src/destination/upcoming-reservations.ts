// Finds the objects that are booked, where only that matters: from one page of their reservations at a time, each time for the
// objects not seen yet. When a page does not hold everything, what is asked for next is a time so near that a page does.
import { invalidAnswer, type Named } from './http-errors.js';
import { isWholeAnswer, type PageAnswer } from './paging.js';

/** Unix seconds. */
export interface Period {
  from: number;
  to: number;
}

export interface UpcomingReservation {
  /** External id, or id. */
  name: string;
  /** Unix seconds. */
  begin: number;
}

interface Booked {
  id: string;
  extId?: string | undefined;
  begin: number;
  end: number;
  /** Without objects, or with one that has no name, it may book what was asked for, or not. */
  objects?: readonly { objectId?: string | undefined }[] | null | undefined;
}

/** How far ahead reservations are looked for, in seconds: no timetable reaches further. */
const FAR_AHEAD = 10 * 365 * 24 * 60 * 60;
const LEAST_AIM = 0.5;

/**
 * Reservations of these objects that have not ended at `now` (Unix seconds), the next one first. An object without any is
 * not in the answer; one that has more than fit into a page may have more than are answered. `ask` reads the first page of
 * the reservations of some of them in a period. That an object has none says one answer alone, over the whole future and
 * complete. Reservations that do not name their objects are those of the object that finds them when it is asked for
 * alone. Throws `answer_invalid` when there are reservations, and all of them name other objects.
 *
 * How many requests it takes depends on the objects, and not on how much is booked: one where everything fits into a page;
 * two beside one that is booked much; at most about ten where up to 1000 of them are booked alike, however much; more the more
 * they are booked at times of their own; and in no case more than two for each object and one.
 */
export async function findUpcoming(
  ask: (extIds: readonly string[], period: Period) => Promise<PageAnswer<Booked>>,
  extIds: readonly string[],
  { now, pageSize, call }: { now: number; pageSize: number; call: Named },
): Promise<Map<string, UpcomingReservation[]>> {
  const future: Period = { from: now, to: now + FAR_AHEAD };
  const upcoming = new Map<string, UpcomingReservation[]>();
  const open = new Set(extIds);
  let period = future;
  /** Pages of reservations that are aimed at in a near time: more after one that had room left. */
  let aim = LEAST_AIM;
  for (let isFirst = true; open.size > 0; isFirst = false) {
    const page = await ask([...open], period);
    const isWhole = isWholeAnswer(page, pageSize);
    const standing = page.results.filter(({ end }) => end > now).toSorted((a, b) => a.begin - b.begin);
    const seen = standing.filter(({ objects }) => objects?.some(({ objectId = '' }) => open.has(objectId)));
    const nameless = standing.filter((one) => isNameless(one) && !seen.includes(one));
    if (seen.length === 0 && (!isWhole || standing.length > 0)) {
      // Their objects cannot be known, and the next answer could only be the same.
      if (nameless.length === 0)
        throw invalidAnswer(call, 'none of its reservations is of the objects that were asked for');
      const rest = [...open];
      const [only = ''] = rest;
      if (rest.length === 1) return upcoming.set(only, nameless.map(toUpcoming));
      const middle = Math.ceil(rest.length / 2);
      for (const half of [rest.slice(0, middle), rest.slice(middle)])
        for (const [extId, found] of await findUpcoming(ask, half, { now, pageSize, call }))
          upcoming.set(extId, found);
      return upcoming;
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
      if (nameless.length === 0) break;
      continue;
    }
    if (period !== future) {
      const hasRoom = page.results.length * 2 < pageSize;
      aim = isWhole ? aim * (hasRoom ? 4 : 1) : Math.max(aim / 4, LEAST_AIM);
    }
    // An object may have filled the page alone. The second time, the others are booked much as well.
    const isNarrowed = period === future && !isFirst;
    period = isNarrowed ? { from: now, to: endOfShare(page, seen, { now, aim }) } : future;
  }
  return upcoming;
}

const toUpcoming = ({ id, extId, begin }: Booked): UpcomingReservation => ({
  name: extId ?? id,
  begin,
});

function isNameless({ objects }: Booked): boolean {
  return !objects?.length || objects.some(({ objectId }) => objectId === undefined);
}

/** Until then there are so many pages as are aimed at, if all objects are booked as those of this page are. */
function endOfShare(
  { results, totalResults, totalPages }: PageAnswer<Booked>,
  sorted: readonly Booked[],
  { now, aim }: { now: number; aim: number },
): number {
  const pages = Math.max((totalResults ?? 0) / results.length, totalPages ?? 2);
  const last = sorted[Math.floor((sorted.length * aim) / pages)] ?? sorted.at(-1);
  return Math.max(last?.begin ?? now, now) + 1;
}
