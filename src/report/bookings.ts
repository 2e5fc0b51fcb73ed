// Bookings: what each side says of one, its verdict, and what an operator does about it.
import { nameOfZone } from '../format.js';
import type { ReservationRow } from '../state/bookings/read-reservations.js';
import type { Verdict } from '../state/schema.js';
import { describeProblem } from '../streams/bookings.js';
import { lines } from './print.js';
import { formatValues } from './values.js';

/** What each verdict means, in the order they are printed. */
export const VERDICT_MEANINGS: Record<Verdict, string> = {
  agrees: 'both sides are equal',
  agrees_cancelled: 'cancelled in the mirror, and not at the service',
  restored_there: 'was cancelled at the service, and restored: both sides are equal',
  differs: 'on both sides, with different content',
  missing_there: 'in the mirror, and not at the service',
  cancelled_there: 'in the mirror, and cancelled at the service',
  cancelled_here: 'cancelled in the mirror, and still at the service',
  unknown_here: 'at the service, and not in the mirror',
  not_compared: 'at the service; no bookings are configured',
};

/** What an operator does about a verdict. */
export function nextOfVerdict(verdict: Verdict): string {
  switch (verdict) {
    case 'agrees':
    case 'agrees_cancelled':
    case 'restored_there':
    case 'not_compared':
      return 'no action: every reconcile run compares it again';
    case 'unknown_here':
      return 'an operator adds it to the mirror or removes it at the service, then: slotsync reconcile';
    case 'missing_there':
    case 'cancelled_here':
      return 'an operator corrects it at the service (bookings are only read), then: slotsync reconcile';
    case 'differs':
    case 'cancelled_there':
      return 'an operator decides which side is right; once both are equal: slotsync reconcile';
  }
}

/** One booking that does not agree. */
export function describeBooking(row: ReservationRow, timeZone: string): string {
  const problem = row.problem === null ? '' : `; ${describeProblem(row.problem)}`;
  return `booking ${row.key}: ${describeVerdict(row, timeZone)}${problem}`;
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
      return `cancelled in the mirror, and still at the service ${service}`;
    case 'unknown_here':
    case 'not_compared':
      return `at the service ${service}${row.externalId === null ? '' : ` as ${row.externalId}`}, and not in the mirror`;
    case 'differs':
      return describeDifferences(row, timeZone);
  }
}

/** `→` is from the mirror to the service. */
function describeDifferences({ differs, ...row }: ReservationRow, timeZone: string): string {
  const { here, there } = (differs?.fields ?? { here: {} }) as Record<string, Record<string, string[]>>;
  const mirror = describePeriod(row.beginHere, row.endHere, timeZone);
  return lines(
    differs?.begin
      ? `moved at the service from ${at(row.beginHere, timeZone)} to ${at(row.beginThere, timeZone)}`
      : differs?.end && `${mirror} ends at the service at ${at(row.endThere, timeZone)}`,
    differs?.objects && `objects ${describeLists(differs.objects)}`,
    Object.keys(here ?? {}).map(
      (field) => `${field} ${formatValues(here?.[field])} → ${formatValues(there?.[field])}`,
    ),
    differs?.status && `its status at the service is ${(differs.status.there as string[]).join(', ')}`,
  ).join(', ');
}

/** Only what is on one side. */
function describeLists({ here, there }: { here: unknown; there: unknown }): string {
  const [mirror, service] = [here as string[], there as string[]];
  const onlyMirror = mirror.filter((one) => !service.includes(one));
  const onlyService = service.filter((one) => !mirror.includes(one));
  return `${onlyMirror.join(', ') || '(nothing)'} → ${onlyService.join(', ') || '(nothing)'}`;
}

export function describePeriod(begin: string | null, end: string | null, timeZone: string): string {
  if (begin === null) return 'without a begin';
  if (end === null) return `from ${at(begin, timeZone)}, without an end`;
  if (day(begin, timeZone) !== day(end, timeZone)) return `${at(begin, timeZone)} to ${at(end, timeZone)}`;
  const [from, to] = [nameOfZone(new Date(begin), timeZone), nameOfZone(new Date(end), timeZone)];
  return `${day(begin, timeZone)} ${clock(begin, timeZone)}${from === to ? '' : ` ${from}`} to ${clock(end, timeZone)} ${to}`;
}

/** `Fri 20 Nov 2026 09:00 CET`. */
function at(time: string | null, timeZone: string): string {
  if (time === null) return 'no time';
  return `${day(time, timeZone)} ${clock(time, timeZone)} ${nameOfZone(new Date(time), timeZone)}`;
}

function day(time: string, timeZone: string): string {
  const parts = { weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' } as const;
  return new Date(time).toLocaleDateString('en-GB', { timeZone, ...parts }).replace(',', '');
}

function clock(time: string, timeZone: string): string {
  const seconds = new Date(time).getUTCSeconds();
  return new Intl.DateTimeFormat('en-GB', {
    timeZone,
    hour: '2-digit',
    minute: '2-digit',
    ...(seconds === 0 ? {} : { second: '2-digit' }),
    hourCycle: 'h23',
  }).format(new Date(time));
}
