// Reads what was changed at the service in a period, whenever it takes place, and matches it.
import { resultsOf, type Period } from '../../destination/destination.js';
import { matchBookings, requireUnended, type MatchDeps } from './match-bookings.js';
import type { ReadOptions } from './read-window.js';
import { readSlices } from './time-slices.js';

/** Matches what was changed in the period (Unix seconds). Returns how many changes there were. */
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
    const reservations = resultsOf(await destination.findReservations({ ids }, context));
    await matchBookings(deps, { bookings, reservations, known: keys }, signal);
  }
  const changed = readSlices(period, size, (modified, most) =>
    destination.findReservations({ modified, most }, context),
  );
  for await (const { results } of changed) {
    changes += results.length;
    await requireUnended(deps);
    await matchBookings(deps, { bookings: [], reservations: results }, signal);
  }
  return changes;
}
