// Bookings on which the mirror and the service do not agree, as the last reconcile found them, and one booking.
import { bookingDocument, bookingsDocument } from '../documents/bookings.js';
import { addressOfBooking } from '../documents/document.js';
import { commandFor } from '../situation/commands.js';
import {
  countDiscrepancies,
  listAllDiscrepancies,
  readBooking,
  readBookingEvents,
} from '../state/bookings/read-reservations.js';
import { BOOKINGS } from '../streams/config-schema.js';
import type { BookingExplained } from '../sync/operator/explain-booking.js';
import { renderDocument } from './render-document.js';
import { sidesSection, type Shown } from './sides.js';
import { PageNotFound, type Page } from './view.js';

const MOST = 100;
const MOST_EVENTS = 20;

export const bookingsPage: Page = async (sources, { address }) => {
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDiscrepancies(db),
    listed: await listAllDiscrepancies(db, MOST),
  }));
  return (view) => renderDocument(bookingsDocument(counts, listed, view.timeZone), view);
};

export const bookingPage: Page = async (sources, { params, address }) => {
  const { key = '' } = params;
  const known = await sources.read(address, async (db) => ({
    key,
    known: await readBooking(db, key),
    events: await readBookingEvents(db, key, MOST_EVENTS),
  }));
  if (!known.known && known.events.length === 0) throw new PageNotFound(`The state has no booking '${key}'.`);
  const path = addressOfBooking(key);
  const offer = { path, command: commandFor('slotsync explain', BOOKINGS, key), about: `booking ${key}` };
  return (view) => {
    const shown = view.session?.shown.get(path) as Shown<BookingExplained> | undefined;
    const document = bookingDocument(known, view.timeZone, shown?.explained);
    const sections = [...document.sections, sidesSection(offer, shown, view)];
    return renderDocument({ ...document, sections }, view);
  };
};
