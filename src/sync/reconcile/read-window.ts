// Reads a time window on both sides, or the service's changes of a period, slice by slice, and matches the bookings.
// Reads the window's cancellations first, because a booking that was moved and then cancelled lies in different slices
// on the two sides. Finally searches by name for known bookings that no slice contained.
import type { Found, Period, Reservation } from '../../destination/destination.js';
import { matchBookings, type MatchDeps } from './match-bookings.js';

export interface ReadOptions {
  /** Maximum number of bookings in a slice. It determines the memory use. */
  sliceSize: number;
  /** Called with the seconds of the window that are done, and its total seconds. */
  onProgress?: ((done: number, total: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** Minimum length of a slice, in seconds. */
const SHORTEST_SLICE = 60 * 60;
const UNMET_AT_ONCE = 1000;

/** Matches all bookings of the window (Unix seconds), and bookings without a time. */
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

  /** Reads a slice if it is small enough on both sides. Counts in the mirror first, which needs no request. */
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
    // A reservation that begins before the slice was matched in the previous slice.
    const reservations = results.filter(
      ({ begin }) => slice.from === window.from || begin >= slice.from * 1000,
    );
    const readNewCancellations = async () =>
      (await destination.findCancellations({ window: slice }, { lane, signal })).results;
    await matchBookings(deps, { bookings, reservations, readNewCancellations }, signal);
    onProgress?.(slice.to - window.from, window.to - window.from);
  }
}

/** Matches known bookings of the window that no slice contained, because they were moved or deleted on one side. */
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

/** Matches bookings changed at the service in the period (Unix seconds). Returns the number of changes. */
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
  // `modified` includes its end, so consecutive slices share a second. It is read twice, and no change is missed.
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

// A period is read in slices of limited size. The length of a slice is derived from the number of bookings in the
// previous one, so quiet periods need few requests, and busy periods fit in memory.

/** Share of `most` to aim for, because the next slice may be fuller than the last. */
const AIM = 0.8;
const MOST_GROWTH = 8;

/**
 * Yields a period in consecutive slices with at most `most` results. A slice of `least` seconds may have more. `read`:
 * reads a slice, or returns only the count if it exceeds `most`; without `most` it reads everything.
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

/** Returns the slice length in seconds that should contain about `most` results. `held`: results of the last slice. */
function fit(seconds: number, held: number, most: number): number {
  return Math.floor(seconds * Math.min(MOST_GROWTH, (AIM * most) / Math.max(1, held)));
}
