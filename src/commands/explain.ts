import type { App } from '../app.js';
import { selectStream } from '../config-file.js';
import { SlotsyncError } from '../errors.js';
import { describeBookingExplained, describeRecordExplained, nextOfRecord } from '../report/explain.js';
import { print } from '../report/print.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { explainBooking } from '../sync/explain-booking.js';
import { explainRecord } from '../sync/explain-record.js';
import type { CommonOptions } from './command.js';

/** The name of the bookings where a stream is expected, unless a stream has it. */
export const BOOKINGS = 'reservations';

export async function explain(app: App, name: string, key: string, options: CommonOptions): Promise<void> {
  const configuration = await app.configuration();
  const deps = {
    mirror: await app.mirror(),
    destination: await app.destination(),
    state: await app.confirmedState(),
  };
  const { streams, reservations = NO_RESERVATIONS } = configuration;
  if (name === BOOKINGS && !streams.some((stream) => stream.name === name)) {
    const explained = await explainBooking(deps, reservations, key);
    const { here, known, reservations: found, events } = explained;
    if (!here && !known && found.length === 0 && events.length === 0)
      throw new SlotsyncError(
        'not_found',
        `no booking '${key}' is in the mirror, at the service or in the state`,
      );
    const timezone = reservations.bookings?.timezone ?? 'UTC';
    print(options, explained, describeBookingExplained(explained, timezone));
    return;
  }
  const explained = await explainRecord(deps, selectStream(configuration, name), key);
  if (!explained.row && !explained.record)
    throw new SlotsyncError('not_found', `no row and no record of ${name} has the key '${key}'`);
  print(options, { ...explained, next: nextOfRecord(explained) }, describeRecordExplained(explained));
}
