// Bookings on which the mirror and the service do not agree, as the last reconcile found them.
import { formatNumber } from '../format.js';
import { html } from '../html.js';
import { describeBooking, nextOfVerdict, VERDICT_MEANINGS } from '../report/bookings.js';
import { countDiscrepancies, listAllDiscrepancies } from '../state/bookings/read-reservations.js';
import { command, minute, status, table } from './parts.js';
import type { Page } from './view.js';

const MOST = 100;

export const bookingsPage: Page = async (sources, { address }) => {
  const { counts, listed } = await sources.read(address, async (db) => ({
    counts: await countDiscrepancies(db),
    listed: await listAllDiscrepancies(db, MOST),
  }));
  const total = counts.reduce((sum, { count }) => sum + count, 0);
  return (view) => {
    const rows = listed.map((row) => [
      row.key,
      status(row.verdict),
      describeBooking(row, view.timeZone).replace(`booking ${row.key}: `, ''),
      nextOfVerdict(row.verdict),
      minute(new Date(row.seenAt), view),
    ]);
    return {
      title: 'Bookings that disagree',
      lead: html`<p>${total === 0 ? 'None, as far as bookings were compared.' : html`<b>${formatNumber(total)}</b>, as the last reconcile saw them.`} To compare again: ${command('slotsync reconcile')}</p>`,
      sections: [
        {
          id: 'verdicts',
          title: 'By verdict',
          isEmpty: counts.length === 0,
          body: table(
            'Bookings by verdict',
            ['verdict', '#bookings', 'meaning'],
            counts.map(({ verdict, count }) => [status(verdict), count, VERDICT_MEANINGS[verdict]]),
          ),
        },
        {
          id: 'bookings',
          title:
            total > listed.length ? `The first ${listed.length}, earliest first` : 'Bookings, earliest first',
          isEmpty: rows.length === 0,
          body: table('Bookings that disagree', ['booking', 'verdict', 'what differs', 'next', 'seen'], rows),
        },
      ],
    };
  };
};
