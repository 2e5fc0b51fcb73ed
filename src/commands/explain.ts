import type { App } from '../app/app.js';
import { selectStream } from '../config/config-file.js';
import { SlotsyncError } from '../errors/errors.js';
import { bookingDocument } from '../documents/bookings.js';
import { nextOfRecord, recordDocument, unownedDocument, writesSection } from '../documents/record.js';
import { readChainOf, readHoldingGate } from '../situation/chains.js';
import { printDocument } from '../render/print-document.js';
import { NO_RESERVATIONS } from '../streams/bookings.js';
import { BOOKINGS } from '../streams/config-schema.js';
import { joinKey, shortenKey } from '../streams/local-key.js';
import { explainBooking, explainRecord, findRecordByName } from '../sync/operator/explain.js';
import { shorten } from '../text/format.js';
import type { CommonOptions } from './command.js';
import { listWrites } from '../state/history.js';
import { requireKnownStream } from './require-known.js';

const NAME_SHOWN = 200;

export async function explain(
  app: App,
  name: string,
  parts: string[],
  options: CommonOptions & { all?: boolean },
): Promise<void> {
  const configuration = await app.configuration();
  const deps = {
    mirror: await app.mirror(),
    destination: await app.destination(),
    state: await app.confirmedState(),
  };
  const shown = { json: options.json, timeZone: await app.timeZone() };
  const { reservations = NO_RESERVATIONS } = configuration;
  if (name === BOOKINGS) {
    const key = joinKey(parts);
    const explained = await explainBooking(deps, reservations, key);
    const { here, known, reservations: found, events } = explained;
    if (!here && !known && found.length === 0 && events.length === 0)
      throw new SlotsyncError(
        'not_found',
        `no booking '${key}' is in the mirror, at the service or in the state`,
      );
    printDocument(bookingDocument(explained, shown.timeZone, explained), shown, explained);
    return;
  }
  const stream = selectStream(configuration, name);
  const named = await findRecordByName({ ...deps, streams: await app.streams() }, stream, parts);
  if (!named) {
    const message = `no row and no record of ${name} has the key, and no object the external id or number, '${shorten(parts.join(' '), NAME_SHOWN)}'`;
    throw new SlotsyncError('not_found', message);
  }
  if ('object' in named) {
    const facts = { stream: name, there: named.object };
    printDocument(unownedDocument(stream, named.object), shown, facts);
    return;
  }
  const found = await explainRecord(deps, stream, named.key, { isWhole: options.all === true });
  const { db } = deps.state;
  const held = await readHoldingGate(db, { stream: name, localKey: named.key });
  const explained = { ...found, held, chain: await readChainOf(db, found.record) };
  const facts = { ...explained, next: nextOfRecord(explained) };
  printDocument(recordDocument(explained, found), shown, facts);
}

type Options = CommonOptions & { limit: number };

export async function history(app: App, stream: string, parts: string[], options: Options): Promise<void> {
  const { db } = await app.state();
  await requireKnownStream(app, { db }, stream);
  const key = shortenKey(joinKey(parts));
  const writes = await listWrites(db, { stream, localKey: key }, options.limit);
  const lead =
    writes.length === 0
      ? ['No write is kept for this record. How long writes are kept: `history` in the configuration.']
      : [];
  const document = { title: `${stream} '${key}'`, lead, sections: [writesSection(writes)] };
  printDocument(document, { json: options.json, timeZone: await app.timeZone() }, { stream, key, writes });
}
