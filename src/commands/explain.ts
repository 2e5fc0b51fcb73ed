import type { App } from '../app.js';
import { selectStream } from '../config-file.js';
import { SlotsyncError } from '../errors.js';
import {
  describeBookingExplained,
  describeRecordExplained,
  describeUnowned,
  nextOfRecord,
} from '../report/explain.js';
import { readChainOf } from '../readings/chains.js';
import { print } from '../report/print.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { joinKey } from '../streams/local-key.js';
import { explainBooking } from '../sync/explain-booking.js';
import { explainRecord } from '../sync/explain-record.js';
import { findNamed } from '../sync/find-named.js';
import type { CommonOptions } from './command.js';

/** The name of the bookings where a stream is expected, unless a stream has it. */
export const BOOKINGS = 'reservations';

export async function explain(
  app: App,
  name: string,
  parts: string[],
  options: CommonOptions,
): Promise<void> {
  const configuration = await app.configuration();
  const deps = {
    mirror: await app.mirror(),
    destination: await app.destination(),
    state: await app.confirmedState(),
  };
  const timeZone = await app.timeZone();
  const { streams, reservations = NO_RESERVATIONS } = configuration;
  if (name === BOOKINGS && !streams.some((stream) => stream.name === name)) {
    const key = joinKey(parts);
    const explained = await explainBooking(deps, reservations, key);
    const { here, known, reservations: found, events } = explained;
    if (!here && !known && found.length === 0 && events.length === 0)
      throw new SlotsyncError(
        'not_found',
        `no booking '${key}' is in the mirror, at the service or in the state`,
      );
    print(options, explained, describeBookingExplained(explained, timeZone));
    return;
  }
  const stream = selectStream(configuration, name);
  const all = new Map(streams.map((one) => [one.name, one]));
  const named = await findNamed({ ...deps, streams: all }, stream, parts);
  if (!named) {
    const message = `no row and no record of ${name} has the key, and no object the external id or number, '${parts.join(' ')}'`;
    throw new SlotsyncError('not_found', message);
  }
  if ('object' in named) {
    print(options, { stream: name, there: named.object }, describeUnowned(stream, named.object));
    return;
  }
  const found = await explainRecord(deps, stream, named.key);
  const explained = { ...found, chain: await readChainOf(deps.state.db, found.record) };
  print(
    options,
    { ...explained, next: nextOfRecord(explained) },
    describeRecordExplained(explained, timeZone),
  );
}
