// Documents about bookings on which mirror and service disagree: the differences, and what an operator does about them.
import type { ReconcileResult } from '../sync/reconcile/reconcile.js';
import type { BookingExplained } from '../sync/operator/explain.js';
import {
  counted,
  dayOf,
  formatDuration,
  formatNumber,
  lines,
  mostOf,
  plural,
  present,
  sum,
} from '../text/format.js';
import type { ReservationRow } from '../state/bookings/read-reservations.js';
import type { Verdict } from '../state/schema.js';
import { commandFor, quote } from '../situation/commands.js';
import { describeProblem } from '../streams/bookings.js';
import {
  addressOfBooking,
  linkToBooking,
  linkToRecord,
  linkToRun,
  section,
  text,
  type Document,
  type Fact,
  type Section,
  type Sparse,
  type Text,
  formatValues,
  factsOfFields,
} from './document.js';

const DAY_MS = 24 * 60 * 60 * 1000;
export const MOST_BOOKINGS = 20;

/** Meaning of each verdict. Tables show the verdicts in this order. */
export const VERDICT_MEANINGS: Record<Verdict, string> = {
  agrees: 'both sides are equal',
  agrees_cancelled: 'cancelled in the mirror, and absent at the service',
  restored_there: 'cancelled at the service and restored: both sides are equal',
  differs: 'on both sides, with different content',
  missing_there: 'in the mirror, but not at the service',
  cancelled_there: 'in the mirror, but cancelled at the service',
  cancelled_here: 'cancelled in the mirror, but still at the service',
  unknown_here: 'at the service, but not in the mirror',
  not_compared: 'at the service; the configuration has no bookings to compare',
};

const CORRECT_THERE = 'correct the booking at the service (slotsync only reads bookings)';
const DECIDE = 'decide which side is right and correct the other';

/** Next step of an operator. Other verdicts need none. */
const STEP_OF_VERDICT: Partial<Record<Verdict, string>> = {
  unknown_here: 'add the booking to the mirror or remove it at the service',
  missing_there: CORRECT_THERE,
  cancelled_here: CORRECT_THERE,
  differs: DECIDE,
  cancelled_there: DECIDE,
};

/** Next step for a fault in the mirror. Other faults are corrected in the booking. */
const STEP_OF_PROBLEM: Record<string, string> = {
  object_unknown:
    'if the booked row was deleted from the mirror, restore the row or book another one; ' +
    'if the service does not have the object yet, see slotsync failures',
  reservation_shared: 'remove the other reservation at the service',
  ends_before_begin:
    'correct the booking in the mirror; whole days in `date` columns end on the day after the last day (`last_day + 1`)',
};

const RECONCILE = 'slotsync reconcile';

/** Returns the command that compares one booking again. It names the days, which may lie outside the usual window. */
function reconcileCommand({ beginHere, endHere, beginThere, endThere }: ReservationRow): string {
  const times = present<Date>(beginHere, endHere, beginThere, endThere).map((time) => time.getTime());
  const [from, to] = [times.toSorted((a, b) => a - b)[0], mostOf(times) + DAY_MS];
  if (from === undefined) return RECONCILE;
  return `${RECONCILE} --from ${dayOf(new Date(from), 'UTC')} --to ${dayOf(new Date(to), 'UTC')}`;
}

/** Returns the next step for a booking. A fault in the mirror comes first, because only an operator can correct it. */
function nextOfBooking(row: ReservationRow, command = reconcileCommand(row)): string {
  if (row.problem === null) return nextOfVerdict(row.verdict, command);
  return `${STEP_OF_PROBLEM[row.problem] ?? 'correct the booking in the mirror'}, then: ${command}`;
}

export function nextOfVerdict(verdict: Verdict, command = RECONCILE): string {
  const step = STEP_OF_VERDICT[verdict];
  return step ? `${step}, then: ${command}` : 'no action needed: every reconcile compares the booking again';
}

/** Minimum number of bookings that must be shifted by one time. People move a few bookings by an hour, too. */
const FEWEST_SHIFTED = 3;
const HOUR_SECONDS = 60 * 60;

/** Sentence about a wrong time zone, if most bookings that differ are shifted by one time. False otherwise. */
function describeShift(
  { verdicts: { differs = 0 }, shifts }: ReconcileResult,
  zone: string | undefined,
): string | false {
  const [first, second] = shifts;
  // A wrong zone may shift bookings in summer by one hour more or less than in winter.
  const isSeason = first && second && Math.abs(second.seconds - first.seconds) === HOUR_SECONDS;
  const common = isSeason ? shifts : shifts.slice(0, 1);
  const shifted = common.reduce((sum, { bookings }) => sum + bookings, 0);
  if (shifted < FEWEST_SHIFTED || shifted <= differs / 2) return false;
  const by = common.map(
    ({ seconds }) => `${Math.abs(seconds) / HOUR_SECONDS} h ${seconds > 0 ? 'later' : 'earlier'}`,
  );
  return `${formatNumber(shifted)} of ${plural(differs, 'booking')} that differ are ${by.join(' or ')} at the service than in the mirror. The likely cause is a wrong time zone. If the mirror's times have no zone, set reservations.timezone (now ${zone}) to the zone in which they are written, then: ${RECONCILE}`;
}

/** Document of the result of one reconcile, which took `seconds` and which `command` repeats. `zone`: of the mirror. */
export function reconcileDocument(
  result: ReconcileResult,
  request: { timeZone: string; seconds: number; command: string; zone: string | undefined },
): Document {
  const { runId, from, to, verdicts, discrepancies, problems, events, requests } = result;
  const { timeZone, seconds, command, zone } = request;
  const [first] = discrepancies;
  const counts = Object.entries(verdicts).map(([verdict, count]) => ({ verdict: verdict as Verdict, count }));
  return {
    title: `Run ${runId}`,
    lead: lines(
      `Run ${runId}: ${formatPeriod(new Date(from), new Date(to), timeZone)} in ${formatDuration(seconds)}, ${plural(requests, 'request')}; ${plural(events, 'verdict')} changed.`,
      counts.every(({ count }) => count === 0) &&
        'No bookings in this window, neither in the mirror nor at the service. For another window: --from, --to.',
      describeShift(result, zone),
      problems > 0 && `${plural(problems, 'booking')} with a fault in the mirror, listed below.`,
      first &&
        `To see the history of a booking, such as the first: ${commandFor('slotsync explain', 'reservations', first.key)}`,
    ),
    sections: [
      verdictsSection(counts),
      bookingsSection('Bookings, earliest first', discrepancies, timeZone, command, [
        discrepancies.length === MOST_BOOKINGS &&
          `These are the first ${MOST_BOOKINGS}; all of them: SELECT * FROM slotsync.discrepancies`,
      ]),
    ],
  };
}

/** Document of the bookings that disagree, as of the last reconcile. `week` adds a calendar of one week. */
export function bookingsDocument(
  counts: readonly { verdict: Verdict; count: number }[],
  listed: readonly ReservationRow[],
  timeZone: string,
  week?: { monday: string; rows: readonly ReservationRow[] },
): Document {
  const total = sum(counts.map(({ count }) => count));
  const number =
    total === 0 ? 'No compared booking disagrees.' : `${formatNumber(total)} as of the last reconcile.`;
  return {
    title: 'Bookings that disagree',
    lead: [text`${number} To compare again: ${{ command: 'slotsync reconcile' }}`],
    sections: [
      verdictsSection(counts),
      ...(week && total > 0 ? [weekSection(week, timeZone)] : []),
      bookingsSection(
        total > listed.length
          ? `The first ${listed.length} bookings, earliest first`
          : 'Bookings, earliest first',
        listed,
        timeZone,
      ),
    ],
  };
}

const ORDER = Object.keys(VERDICT_MEANINGS);

function verdictsSection(counts: readonly { verdict: Verdict; count: number }[]): Section {
  return section('verdicts', 'By verdict', {
    table: {
      headings: ['verdict', 'bookings', 'meaning'],
      rows: counts
        .filter(({ count }) => count > 0)
        .toSorted((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict))
        .map(({ verdict, count }) => [text`${{ status: verdict }}`, count, VERDICT_MEANINGS[verdict]]),
    },
  });
}

/** Calendar of a week. A booking whose times differ between mirror and service is drawn at both times. */
function weekSection(
  { monday, rows }: { monday: string; rows: readonly ReservationRow[] },
  timeZone: string,
): Section {
  return section('week', `Week of ${monday}`, {
    paragraphs: [counted`${rows.length} booking{|s} of this week {does|do} not agree.`],
    week: {
      days: Array.from({ length: 7 }, (_, at) =>
        new Date(Date.parse(monday) + at * DAY_MS).toISOString().slice(0, 10),
      ),
      bookings: rows.map((row) => {
        const { key, verdict, beginHere, endHere, beginThere, endThere } = row;
        const isMoved =
          beginHere?.getTime() !== beginThere?.getTime() || endHere?.getTime() !== endThere?.getTime();
        const periods = [
          { begin: beginHere, end: endHere },
          { begin: isMoved || !beginHere ? beginThere : null, end: endThere },
        ];
        return {
          key,
          href: addressOfBooking(key),
          status: verdict,
          label: `booking ${quote(key)}: ${describeVerdictAndProblem(row, timeZone)}`,
          periods: periods.flatMap(({ begin, end }) => (begin ? [{ begin, end: end ?? begin }] : [])),
        };
      }),
    },
  });
}

const bookingsSection = (
  title: string,
  listed: readonly ReservationRow[],
  timeZone: string,
  command?: string,
  paragraphs: Sparse<Text> = [],
): Section =>
  section('bookings', title, {
    paragraphs,
    points: listed.map((row) => ({
      status: row.verdict,
      text: text`${linkToBooking(row.key)}: ${describeVerdictAndProblem(row, timeZone)}`,
      next: nextOfBooking(row, command),
    })),
  });

function describeVerdictAndProblem(row: ReservationRow, timeZone: string): string {
  const problem = row.problem === null ? '' : `; ${describeProblem(row.problem)}`;
  return `${describeVerdict(row, timeZone)}${problem}`;
}

function describeVerdict(row: ReservationRow, timeZone: string): string {
  const mirror = describePeriod(row.beginHere, row.endHere, timeZone);
  const service = describePeriod(row.beginThere, row.endThere, timeZone);
  switch (row.verdict) {
    case 'agrees':
    case 'agrees_cancelled':
      return VERDICT_MEANINGS[row.verdict];
    case 'restored_there':
      return `restored at the service, ${service}`;
    case 'missing_there':
      return `not at the service; in the mirror ${mirror}`;
    case 'cancelled_there':
      return `cancelled at the service; in the mirror ${mirror}`;
    case 'cancelled_here':
      return `cancelled in the mirror, but still at the service ${service}`;
    case 'unknown_here':
    case 'not_compared':
      return `at the service ${service}${row.externalId === null ? '' : ` as ${row.externalId}`}, but not in the mirror`;
    case 'differs':
      return describeDifferences(row, mirror, service);
  }
}

/** Lists the differences of a booking. `room_R1 → room_R4` means room_R1 in the mirror and room_R4 at the service. */
function describeDifferences({ differs }: ReservationRow, mirror: string, service: string): string {
  const { here, there } = (differs?.fields ?? { here: {} }) as Record<string, Record<string, string[]>>;
  return lines(
    (differs?.begin ?? differs?.end) && `in the mirror ${mirror}, at the service ${service}`,
    differs?.objects && `objects ${describeLists(differs.objects)}`,
    Object.keys(here ?? {}).map(
      (field) => `${field} ${formatValues(here?.[field])} → ${formatValues(there?.[field])}`,
    ),
    differs?.status && `its status at the service is ${(differs.status.there as string[]).join(', ')}`,
  ).join(', ');
}

/** Returns text such as `room_R1 → room_R4`: values only in the mirror, and values only at the service. */
function describeLists({ here, there }: { here: unknown; there: unknown }): string {
  const [mirror, service] = [here as string[], there as string[]];
  const onlyMirror = mirror.filter((one) => !service.includes(one));
  const onlyService = service.filter((one) => !mirror.includes(one));
  return `${onlyMirror.join(', ') || '(nothing)'} → ${onlyService.join(', ') || '(nothing)'}`;
}

function describePeriod(begin: Date | null, end: Date | null, timeZone: string): string {
  if (begin === null) return 'without a begin';
  const period = formatPeriod(begin, end ?? begin, timeZone);
  return end === null ? `from ${period}, without an end` : period;
}

/** Formats a period as `Fri 20 Nov 2026 09:00–10:00 CET`. */
function formatPeriod(begin: Date, end: Date, timeZone: string): string {
  const hasSeconds = begin.getUTCSeconds() > 0 || end.getUTCSeconds() > 0;
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    ...({ weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' } as const),
    ...({ hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZoneName: 'short' } as const),
    second: hasSeconds ? '2-digit' : undefined,
  });
  return format.formatRange(begin, end).replaceAll(',', '').replaceAll('\u2009', ' ');
}

/** A booking as stored in the state. `events` are the changes of its verdict, latest first. */
export type KnownBooking = Pick<BookingExplained, 'key' | 'known' | 'events'>;

/**
 * `sides` is the booking as just read from the mirror and the service. Without `sides`, the last comparison is shown.
 */
export function bookingDocument(
  { key, known, events }: KnownBooking,
  timeZone: string,
  sides?: BookingExplained,
): Document {
  return {
    title: `Booking ${key}`,
    lead: present<Text>(
      known &&
        text`Verdict of ${known.runId === null ? 'run –' : linkToRun(known.runId)}: ${{ status: known.verdict }}, ${VERDICT_MEANINGS[known.verdict]}`,
      known && `booking ${quote(key)}: ${describeVerdictAndProblem(known, timeZone)}`,
      `Next: ${known ? nextOfBooking(known) : 'compare the booking: slotsync reconcile'}`,
    ),
    sections: [
      ...(sides ? bookingSides(sides, timeZone) : present(known && asCompared(known, timeZone))),
      section('verdicts', 'Verdicts, latest first', {
        paragraphs: events.map(
          ({ at: since, from, to, runId }) =>
            text`${new Date(since)}  ${from ?? 'not known'} → ${to ?? 'removed'}, ${runId === null ? 'run –' : linkToRun(runId)}`,
        ),
      }),
    ],
  };
}

function asCompared(row: ReservationRow, timeZone: string): Section {
  const { externalId, destinationId, beginHere, endHere, beginThere, endThere, seenAt } = row;
  return section('compared', 'As of the last comparison', {
    facts: [
      ['Compared', text`${seenAt}`],
      externalId !== null && ['External id', externalId],
      destinationId !== null && ['Number at the service', destinationId],
      beginHere && ['In the mirror', describePeriod(beginHere, endHere, timeZone)],
      beginThere && ['At the service', describePeriod(beginThere, endThere, timeZone)],
    ],
  });
}

/** Sections with the booking as just read from the mirror and from the service, and the requests that read it. */
function bookingSides(
  { here, reservations, cancellations, requests }: BookingExplained,
  timeZone: string,
): Section[] {
  const period = (begin: number | undefined, end: number | undefined) =>
    describePeriod(toDate(begin), toDate(end), timeZone);
  const there: Fact[] = reservations.flatMap(({ id, extId, begin, end, status, objects, fields }): Fact[] => [
    [
      'Reservation',
      `number ${id}, ${extId ?? 'no external id'}, ${period(begin, end)}, ${status.join(', ')}`,
    ],
    ...objects.map(({ typeId, objectId }): Fact => ['Object', `${typeId} ${objectId}`]),
    ...factsOfFields(fields),
  ]);
  const cancelled = cancellations.map(({ id, begin, end, cancelledAt, reservationId }): Fact => {
    const at = cancelledAt !== undefined && text` at ${new Date(cancelledAt)}`;
    return [
      'Cancellation',
      text`${id} of reservation ${reservationId ?? 'unknown'}${at}, ${period(begin, end)}`,
    ];
  });
  return [
    section('mirror', 'In the mirror', {
      paragraphs: [!here && 'No booking has this key.'],
      facts: here && [
        [
          'Booking',
          `${here.isCancelled ? 'cancelled, ' : ''}${period(here.begin, here.end)}, as ${here.externalId ?? 'nothing'}`,
        ],
        ...here.references.map(({ stream, localKey }): Fact => ['Object', linkToRecord(stream, localKey)]),
        ...factsOfFields(here.fields),
      ],
    }),
    section('there', 'At the service', {
      paragraphs: [reservations.length === 0 && 'No reservation.'],
      facts: [...there, ...cancelled],
    }),
    section('requests', 'Requests just now', {
      paragraphs: requests.map(({ asked, results }) => `${asked}: ${plural(results, 'result')}`),
    }),
  ];
}

const toDate = (time: number | undefined) => (time === undefined ? null : new Date(time));
