// Sentences about one booking: both sides, its fault, and the next step of an operator.
import { expect, it } from 'vitest';
import { bookingDocument, bookingsDocument, reconcileDocument } from '../../src/documents/bookings.js';
import type { BookingProblem } from '../../src/streams/bookings.js';
import type { Verdict } from '../../src/state/schema.js';
import { answerToText } from '../../src/render/text.js';

const AT = new Date('2026-06-02T07:00:00Z');
const LATER = new Date('2026-06-02T09:00:00Z');
type Row = Parameters<typeof bookingsDocument>[1][number];
const booking = (verdict: Verdict, problem: BookingProblem | null, more: Partial<Row> = {}): Row => ({
  key: '7',
  externalId: 'res_7',
  destinationId: '1',
  verdict,
  differs: null,
  here: null,
  there: null,
  beginHere: AT,
  endHere: LATER,
  beginThere: AT,
  endThere: LATER,
  seenAt: AT,
  runId: 1,
  problem,
  ...more,
});
const OPTIONS = { timeZone: 'Europe/Stockholm', columns: 2000 };
const listed = (row: Row) =>
  answerToText(bookingsDocument([{ verdict: row.verdict, count: 1 }], [row], OPTIONS.timeZone), OPTIONS);
const shown = (row: Row) =>
  answerToText(
    bookingDocument({ key: '7', known: row, events: Object.assign([], { count: 0 }) }, OPTIONS.timeZone),
    OPTIONS,
  );

it.each<[Verdict, BookingProblem | null, RegExp]>([
  ['missing_there', 'no_begin_or_end', /correct the booking in the mirror, then: slotsync reconcile/],
  ['missing_there', 'external_id_empty', /correct the booking in the mirror, then: slotsync reconcile/],
  ['missing_there', 'ends_before_begin', /in the mirror; whole days .*`last_day \+ 1`/],
  ['differs', 'object_unknown', /deleted from the mirror, restore the row or book another one;/],
  ['differs', 'reservation_shared', /remove the other reservation at the service/],
  ['missing_there', null, /correct the booking at the service/],
  ['agrees_cancelled', 'no_begin_or_end', /correct the booking in the mirror/],
  ['agrees', null, /no action needed/],
])('a booking with verdict %s and problem %s names the step that corrects it', (verdict, problem, advice) => {
  for (const text of [listed(booking(verdict, problem)), shown(booking(verdict, problem))]) {
    expect(text).toMatch(advice);
    if (problem !== null) expect(text).not.toContain('correct the booking at the service');
  }
});

it('a booking with differing times shows the times of both sides', () => {
  const differs = { begin: { here: '1', there: '2' }, end: { here: '1', there: '2' } };
  const there = { beginThere: LATER, endThere: new Date('2026-06-02T11:00:00Z') };
  const row = booking('differs', null, { differs, ...there });
  expect(listed(row)).toContain(
    'booking 7: in the mirror Tue 2 Jun 2026 09:00–11:00 CEST, at the service Tue 2 Jun 2026 11:00–13:00 CEST',
  );
});

const AGAIN = 'slotsync reconcile --from 2026-01-05 --to 2026-02-01';
const reconciled = (changes: Partial<Parameters<typeof reconcileDocument>[0]>) =>
  answerToText(
    reconcileDocument(
      {
        runId: 1,
        read: 'window',
        from: AT.getTime(),
        to: LATER.getTime(),
        verdicts: {},
        problems: 0,
        events: 0,
        shifts: [],
        requests: 1,
        discrepancies: [],
        ...changes,
      },
      { timeZone: OPTIONS.timeZone, seconds: 1, command: AGAIN, zone: 'UTC' },
    ),
    OPTIONS,
  );

it('the advice about a booking names a window that has the booking', () => {
  const row = booking('differs', null, { beginThere: new Date('2026-06-05T22:00:00Z'), endThere: null });
  for (const text of [listed(row), shown(row)])
    expect(text).toContain('then: slotsync reconcile --from 2026-06-02 --to 2026-06-06');
  const undated = { beginHere: null, endHere: null, beginThere: null, endThere: null };
  expect(listed(booking('missing_there', 'no_begin_or_end', undated))).toMatch(/then: slotsync reconcile$/m);
  expect(reconciled({ discrepancies: [row] })).toContain(`correct the other, then: ${AGAIN}`);
});

it.each<[string, number, shifts: [seconds: number, bookings: number][], RegExp | undefined]>([
  ['one time', 4, [[3600, 3]], /3 of 4 bookings that differ are 1 h later at the service/],
  [
    'summer and winter time',
    5,
    [
      [-3600, 2],
      [-7200, 2],
    ],
    /4 of 5 .* 1 h earlier or 2 h earlier/,
  ],
  ['half an hour', 3, [[19_800, 3]], /3 of 3 .* 5.5 h later/],
  [
    'two times that no zone explains',
    5,
    [
      [3600, 2],
      [14_400, 2],
    ],
    undefined,
  ],
  ['few bookings', 2, [[3600, 2]], undefined],
  ['a minority', 6, [[3600, 3]], undefined],
])('a shift of bookings by %s is explained by the time zone, or not', (_, differs, shifts, said) => {
  const text = reconciled({
    verdicts: { differs },
    shifts: shifts.map(([seconds, bookings]) => ({ seconds, bookings })),
  });
  if (said) expect(text).toMatch(said);
  expect(text.includes('set reservations.timezone (now UTC)')).toBe(said !== undefined);
});
