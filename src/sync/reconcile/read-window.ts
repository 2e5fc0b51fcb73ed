// Reads bookings of a period from both sides in slices, and matches them. Cancellations of the whole period are read
// first: a booking that was moved and then cancelled lies in different slices on both sides. At the end, searches by id
// for known bookings that were in no slice.
import type { Found, Period, Reservation } from '../../destination/destination.js';
import { matchBookings, type MatchDeps } from './match-bookings.js';

export interface ReadOptions {
  /** Maximum number of bookings in a slice, to limit memory. */
  sliceSize: number;
  /** Called with the seconds of the period that are done, and with its total seconds. */
  onProgress?: ((done: number, total: number) => void) | undefined;
  signal: AbortSignal | undefined;
}

/** Minimum length of a slice in seconds. */
const SHORTEST_SLICE = 60 * 60;
const UNMET_AT_ONCE = 1000;

/** Matches all bookings of a period (Unix seconds), and also bookings without a time. */
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

  /** Reads a slice unless it has too many bookings. Counts in the mirror first, since this needs no request. */
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
    // A reservation that began earlier was matched in the slice before.
    const reservations = results.filter(
      ({ begin }) => slice.from === window.from || begin >= slice.from * 1000,
    );
    const readNewCancellations = async () =>
      (await destination.findCancellations({ window: slice }, { lane, signal })).results;
    await matchBookings(deps, { bookings, reservations, readNewCancellations }, signal);
    onProgress?.(slice.to - window.from, window.to - window.from);
  }
}

/** Matches known bookings of the period that were in no slice, because they were moved or deleted on one side. */
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

/** Matches bookings that were changed at the service in a period (Unix seconds). Returns how many were changed. */
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
  // A slice of changes includes its last second. This second is read twice, so that no change is missed.
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

// Periods are read in slices that fit in memory. The number of bookings in one slice determines the length of the next,
// so that quiet periods need few requests.

/** Share of the maximum number of results to aim for, since the next slice may be fuller. */
const AIM = 0.8;
const MOST_GROWTH = 8;

/**
 * Reads a period in consecutive slices of at most `most` results. A slice of `least` seconds may have more. `read`
 * returns the results, or only their number if there are more than `most`; without `most`, it returns all.
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

/** Returns the seconds that a slice may last to have about `most` results. `held`: results of the last slice. */
function fit(seconds: number, held: number, most: number): number {
  return Math.floor(seconds * Math.min(MOST_GROWTH, (AIM * most) / Math.max(1, held)));
}
