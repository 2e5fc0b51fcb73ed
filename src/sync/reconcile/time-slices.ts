// A stretch of time in slices that hold about as much as one wants in memory. How long a slice may be is learned from
// what the last one held, so that neither a quiet summer nor the first week of term costs more requests than it must.
import type { Found, Period } from '../../destination/destination.js';

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
