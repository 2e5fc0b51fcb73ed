// Reads a window at both sides, slice by slice, and matches what it finds. A booking that was moved and then cancelled
// lies in another slice at the service than in the mirror, so cancellations are read first, for the whole window; and
// what was known in the window and met by no slice is asked for by name at the end.
import type { Found, Period, Reservation } from '../../destination/destination.js';
import { matchBookings, requireUnended, type MatchDeps } from './match-bookings.js';
import { readSlices } from './time-slices.js';

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
    await requireUnended(deps);
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
