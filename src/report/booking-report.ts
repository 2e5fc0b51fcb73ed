// Bookings in words: what each side says, what became of them, and what that asks of whom.
import type { ReservationRow } from '../state/bookings/read-reservations.js';
import type { Verdict } from '../state/schema.js';
import { describeProblem } from '../streams/bookings.js';

/** What each verdict means, in the order they are told. */
export const VERDICT_WORDS: Record<Verdict, string> = {
  agrees: 'both sides say the same',
  agrees_cancelled: 'cancelled here, and it does not stand there',
  restored_there: 'cancelled there once, and back: both sides say the same',
  differs: 'stands on both sides, and they say different things',
  missing_there: 'stands here and is not there',
  cancelled_there: 'stands here and was cancelled there',
  cancelled_here: 'cancelled here and still stands there',
  unknown_here: 'stands there and is not here',
  not_compared: 'stands there; no bookings are configured here',
};

/** One booking that does not agree, as a person reads it. Times in the zone of the configuration. */
export function describeBooking(row: ReservationRow, timezone: string): string {
  const what = describeVerdict(row, timezone);
  const problem = row.problem === null ? [] : [describeProblem(row.problem)];
  return `booking ${row.key}: ${[...what, ...problem].join('; ')}`;
}

function describeVerdict(row: ReservationRow, timezone: string): string[] {
  const here = describePeriod(row.beginHere, row.endHere, timezone);
  const there = describePeriod(row.beginThere, row.endThere, timezone);
  switch (row.verdict) {
    case 'agrees':
    case 'agrees_cancelled':
      return [VERDICT_WORDS[row.verdict]];
    case 'restored_there':
      return [`restored there, ${there}`];
    case 'missing_there':
      return [`not there; here ${here}`];
    case 'cancelled_there':
      return [`cancelled there; here ${here}`];
    case 'cancelled_here':
      return [`cancelled here, and still stands there ${there}`];
    case 'unknown_here':
    case 'not_compared':
      return [`stands there ${there}${describeName(row)}, and not here`];
    case 'differs':
      return describeDifferences(row, timezone);
  }
}

function describeName({ externalId }: ReservationRow): string {
  return externalId === null ? '' : ` as ${externalId}`;
}

function describeDifferences({ differs, ...row }: ReservationRow, timezone: string): string[] {
  const said: string[] = [];
  if (differs?.begin)
    said.push(`moved there from ${at(row.beginHere, timezone)} to ${at(row.beginThere, timezone)}`);
  else if (differs?.end)
    said.push(
      `${describePeriod(row.beginHere, row.endHere, timezone)} ends there at ${at(row.endThere, timezone)}`,
    );
  if (differs?.objects) said.push(`objects ${describeLists(differs.objects)}`);
  if (differs?.fields) {
    const { here, there } = differs.fields as {
      here: Record<string, string[]>;
      there: Record<string, string[]>;
    };
    for (const field of Object.keys(here))
      said.push(`${field} ${quote(here[field])} → ${quote(there[field])}`);
  }
  if (differs?.status) said.push(`its status there is ${(differs.status.there as string[]).join(', ')}`);
  return [said.join(', ')];
}

/** Only what is on one side. */
function describeLists({ here, there }: { here: unknown; there: unknown }): string {
  const [ours, theirs] = [here as string[], there as string[]];
  const onlyHere = ours.filter((one) => !theirs.includes(one));
  const onlyThere = theirs.filter((one) => !ours.includes(one));
  return `${onlyHere.join(', ') || '(nothing)'} → ${onlyThere.join(', ') || '(nothing)'}`;
}

const quote = (values: readonly string[] = []) =>
  values.length === 0 ? '(nothing)' : values.map((value) => `"${value}"`).join(', ');

export function describePeriod(begin: string | null, end: string | null, timezone: string): string {
  if (begin === null) return 'without a begin';
  if (end === null) return `from ${at(begin, timezone)}, without an end`;
  const sameDay = day(begin, timezone) === day(end, timezone);
  return `${at(begin, timezone)} to ${sameDay ? clock(end, timezone) : at(end, timezone)}`;
}

/** `Fri 20 Nov 09:00`, in the zone. */
function at(time: string | null, timezone: string): string {
  return time === null ? 'no time' : `${day(time, timezone)} ${clock(time, timezone)}`;
}

function day(time: string, timeZone: string): string {
  const parts = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    weekday: 'short',
    day: 'numeric',
    month: 'short',
    year: 'numeric',
  }).formatToParts(new Date(time));
  const part = (type: string) => parts.find((one) => one.type === type)?.value ?? '';
  return `${part('weekday')} ${part('day')} ${part('month')} ${part('year')}`;
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
