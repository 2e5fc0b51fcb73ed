// Checks before a run begins that the mirror has every table and column of the configuration, and that the role may
// read them.
import { UsageError } from '../errors/errors.js';
import type { BookingSource } from '../streams/bookings.js';
import type { Stream } from '../streams/stream.js';
import type { Mirror } from './mirror.js';

/** Throws a UsageError with every fault of every source. */
export async function requireSources(
  mirror: Mirror,
  { streams = [], bookings }: { streams?: readonly Stream[]; bookings?: BookingSource | undefined },
): Promise<void> {
  const checks = streams.map(async (stream) =>
    (await mirror.checkStream(stream)).map((fault) => `streams.${stream.name}: ${fault}`),
  );
  const ofStreams = await Promise.all(checks);
  const ofBookings = bookings ? await mirror.bookings.check(bookings) : [];
  const faults = [...ofStreams.flat(), ...ofBookings.map((fault) => `reservations.${fault}`)];
  if (faults.length === 0) return;
  throw new UsageError('the mirror cannot be read as the configuration says', {
    faults,
    remedy: 'Correct the configuration, or grant what is missing; slotsync check shows everything at once.',
  });
}
