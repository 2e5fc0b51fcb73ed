// Reads a window at both sides, or what was changed at the service in a period, slice by slice, and matches the findings. A booking that was moved and then cancelled
// lies in another slice at the service than in the mirror, so cancellations are read first, for the whole window; and
// what was known in the window and met by no slice is asked for by name at the end.
import type { Found, Period, Reservation } from '../../destination/destination.js';
import { matchBookings, type MatchDeps } from './match-bookings.js';

export interface ReadOptions {
  /** Bookings of a slice at most; memory goes with it. */
  sliceSize: number;
  /** How much of the window is done, in seconds of it. */
  onProgress?: ((done: number, total: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** Seconds. */
const SHORTEST_SLICE = 60 * 60;
const UNMET_AT_ONCE = 1000;

/** Matches everything that belongs to the window (Unix seconds), and the bookings that belong to no time. */
export async function readWindow(deps: MatchDeps, window: Period, options: ReadOptions): Promise<void> {
  const { destination, verdicts, lane } = deps;
  const size = { most: options.sliceSize, least: SHORTEST_SLICE };
  const cancellations = readSlices(window, size, (slice, most) =>
    destination.findCancellations({ window: slice, most }, { lane, signal: options.signal }),
  );
  for await (const { results } of cancellations) await verdicts.keep({ seen: results });
  await readSlicesOfBookings(deps, window, options);
  const { mirror, reservations } = deps;
  if (reservations.bookings)
    for await (const bookings of mirror.bookings.readUndated(reservations.bookings))
      await matchBookings(deps, { bookings, reservations: [] }, options.signal);
  await readUnmet(deps, window, options.signal);
}

async function readSlicesOfBookings(
  deps: MatchDeps,
  window: Period,
  { sliceSize, onProgress, signal }: ReadOptions,
): Promise<void> {
  const { mirror, destination, lane } = deps;
  const source = deps.reservations.bookings;
  const sliceOf = (slice: Period) => ({ ...slice, isFirst: slice.from === window.from });

  /** Both sides have to fit; the mirror is asked first, since that costs no request. */
  const read = async (slice: Period, most: number | undefined): Promise<Found<Reservation>> => {
    const inMirror = source && most ? await mirror.bookings.count(source, sliceOf(slice)) : 0;
    if (most !== undefined && inMirror > most) return { results: [], tooMany: inMirror };
    return destination.findReservations({ window: slice, most }, { lane, signal });
  };

  const slices = readSlices(window, { most: sliceSize, least: SHORTEST_SLICE }, read);
  for await (const { slice, results } of slices) {
    signal?.throwIfAborted();
    await deps.requireUnended();
    const bookings = await mirror.bookings.readSlice(source, sliceOf(slice));
    // Reservations that last into a slice were matched in the one before.
    const reservations = results.filter(
      ({ begin }) => slice.from === window.from || begin >= slice.from * 1000,
    );
    const readNewCancellations = async () =>
      (await destination.findCancellations({ window: slice }, { lane, signal })).results;
    await matchBookings(deps, { bookings, reservations, readNewCancellations }, signal);
    onProgress?.(slice.to - window.from, window.to - window.from);
  }
}

/** Reads the bookings that were known in the window and that no slice has met: moved out of it, or gone, on either side. */
async function readUnmet(deps: MatchDeps, window: Period, signal: AbortSignal | undefined): Promise<void> {
  const { mirror, destination, verdicts, lane } = deps;
  const source = deps.reservations.bookings;
  for (let after = ''; ;) {
    const known = await verdicts.readUnmet(window, { after, limit: UNMET_AT_ONCE });
    const last = known.at(-1);
    if (!last) break;
    after = last.key;
    const keys = known.map(({ key }) => key);
    const ids = known.flatMap(({ destinationId }) => destinationId ?? []);
    const bookings = await mirror.bookings.readByKeys(source, keys);
    const { results: reservations } = await destination.findReservations({ ids }, { lane, signal });
    await matchBookings(deps, { bookings, reservations, known: keys }, signal);
  }
  for (let after = ''; ;) {
    const ids = await verdicts.readUnmetCancellations(window, { after, limit: UNMET_AT_ONCE });
    const last = ids.at(-1);
    if (last === undefined) break;
    after = last;
    const { results: found } = await destination.findCancellations({ ids }, { lane, signal });
    const standing = new Set(found.map(({ id }) => id));
    await verdicts.keep({ seen: found, goneIds: ids.filter((id) => !standing.has(id)) });
  }
}

/** Matches what was changed at the service in the period (Unix seconds), whenever it takes place. Returns how many changes there were. */
export async function readChanges(
  deps: MatchDeps,
  period: Period,
  { sliceSize, signal }: ReadOptions,
): Promise<number> {
  const { mirror, destination, verdicts, lane } = deps;
  const source = deps.reservations.bookings;
  const context = { lane, signal };
  const size = { most: sliceSize, least: 1 };
  let changes = 0;
  // The end of `modified` is included: in slices that follow each other a second is read twice, and none is missed.
  const cancellations = readSlices(period, size, (modified, most) =>
    destination.findCancellations({ modified, most }, context),
  );
  for await (const { results } of cancellations) {
    changes += results.length;
    await verdicts.keep({ seen: results });
    const ids = results.flatMap(({ reservationId }) => reservationId ?? []);
    const known = await verdicts.readKnown({ keys: [], destinationIds: ids });
    const keys = known.map(({ key }) => key);
    const extIds = results.flatMap(({ extId }) => extId ?? []);
    const bookings = [
      ...(await mirror.bookings.readByKeys(source, keys)),
      ...(await mirror.bookings.readByExternalIds(source, extIds)),
    ];
    const { results: reservations } = await destination.findReservations({ ids }, context);
    await matchBookings(deps, { bookings, reservations, known: keys }, signal);
  }
  const changed = readSlices(period, size, (modified, most) =>
    destination.findReservations({ modified, most }, context),
  );
  for await (const { results } of changed) {
    changes += results.length;
    await deps.requireUnended();
    await matchBookings(deps, { bookings: [], reservations: results }, signal);
  }
  return changes;
}

// A stretch of time in slices that hold about as much as one wants in memory. How long a slice may be is learned from
// what the last one held, so that neither a quiet summer nor the first week of term costs more requests than it must.

/** Aims below `most`, since the next slice may be fuller than the last. */
const AIM = 0.8;
const MOST_GROWTH = 8;

/**
 * Reads a period slice by slice, in order of time, at most `most` results in each; a slice is not cut below `least`
 * seconds, whatever it holds. `read` answers with how much there is when it is more than `most`;
 * without `most` it reads whatever there is.
 */
export async function* readSlices<B>(
  { from, to }: Period,
  { most, least }: { most: number; least: number },
  read: (slice: Period, most: number | undefined) => Promise<Found<B>>,
): AsyncGenerator<{ slice: Period; results: B[] }> {
  let length = to - from;
  for (let at = from; at < to;) {
    const slice = { from: at, to: Math.min(to, at + Math.max(least, length)) };
    const taken = slice.to - slice.from;
    const found = await read(slice, taken <= least ? undefined : most);
    if (found.tooMany !== undefined) {
      length = fit(taken, found.tooMany, most);
      continue;
    }
    yield { slice, results: found.results };
    length = Math.min(fit(taken, found.results.length, most), taken * MOST_GROWTH);
    at = slice.to;
  }
}

/** The length in which `most` are expected, when this one held so many. Seconds. */
function fit(seconds: number, held: number, most: number): number {
  return Math.floor(seconds * Math.min(MOST_GROWTH, (AIM * most) / Math.max(1, held)));
}
