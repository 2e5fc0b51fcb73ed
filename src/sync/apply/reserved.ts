// An object with bookings yet to come is not retired: whoever booked it would stand before a room that is none any
// more. The service is asked right before the write, once for all retirements of a batch.
import type { UpcomingReservation, Destination } from '../../destination/destination.js';
import type { Context } from '../../destination/client.js';
import { STILL_RESERVED } from '../../state/records/outcomes.js';
import type { DestinationObject } from '../../streams/destination-object.js';
import type { Stream } from '../../streams/stream.js';
import type { Candidate, Settle } from './prepare.js';

interface Write {
  candidate: Candidate;
  object: DestinationObject;
}

/** Bookings named in a record's message. */
const NAMED = 3;

/** Defers the retirements of objects that are still booked; returns the other writes. At least one request when there is a retirement. */
export async function deferReserved(
  { destination, now = Date.now }: { destination: Destination; now?: (() => number) | undefined },
  stream: Stream,
  writes: readonly Write[],
  context: Context,
  settle: Settle,
): Promise<readonly Write[]> {
  const retiring = writes.filter(({ candidate }) => candidate.retires);
  if (!stream.unlessReserved || retiring.length === 0) return writes;
  const extIds = retiring.map(({ object }) => object.extId);
  const seconds = Math.floor(now() / 1000);
  const bookings = await destination.findUpcomingReservations(stream.type, extIds, seconds, context);
  return writes.filter(({ candidate, object }) => {
    const booked = candidate.retires ? bookings.get(object.extId) : undefined;
    if (!booked) return true;
    settle({
      localKey: candidate.localKey,
      externalId: object.extId,
      outcome: 'deferred',
      code: STILL_RESERVED,
      message: `its row is gone, but it is booked: ${describe(booked)}`,
    });
    return false;
  });
}

function describe(bookings: readonly UpcomingReservation[]): string {
  const named = bookings.slice(0, NAMED).map(({ name, begin }) => {
    const at = new Date(begin * 1000).toISOString().slice(0, 16).replace('T', ' ');
    return `${name} at ${at} UTC`;
  });
  const more = bookings.length - named.length;
  return `${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
