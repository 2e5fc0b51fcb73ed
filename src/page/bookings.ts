// Bookings on which the mirror and the service do not agree, as the last reconcile found them.
import { bookingsDocument } from '../documents/bookings.js';
import { countDiscrepancies, listAllDiscrepancies } from '../state/bookings/read-reservations.js';
import { renderDocument } from './render-document.js';
import type { Page } from './view.js';

const MOST = 100;

export const bookingsPage: Page = async (sources, { address }) => {
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDiscrepancies(db),
    listed: await listAllDiscrepancies(db, MOST),
  }));
  return (view) => renderDocument(bookingsDocument(counts, listed, view.timeZone), view);
};
