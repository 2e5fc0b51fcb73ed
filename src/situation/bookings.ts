// Bookings on which the mirror and the service do not agree, as the last comparison saw them.
import { UNREMARKABLE, type countBookings } from '../state/bookings/read-reservations.js';

type Counted = Awaited<ReturnType<typeof countBookings>>[number];

/** By verdict, those that do not agree; where both sides agree, those with a problem in the mirror. */
export function findDiscrepancies(counted: readonly Counted[]) {
  return counted.flatMap(({ verdict, count, problems }) => {
    const agrees = verdict === 'restored_there' || UNREMARKABLE.includes(verdict);
    const bookings = agrees ? problems : count;
    return bookings === 0 ? [] : [{ verdict, bookings, problems }];
  });
}
