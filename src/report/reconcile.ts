// What `reconcile` prints: bookings by verdict, those that do not agree, and what was read.
import type { Verdict } from '../state/schema.js';
import type { ReconcileResult } from '../sync/reconcile/reconcile.js';
import { describeBooking, VERDICT_MEANINGS } from './bookings.js';
import { formatDuration, plural } from '../format.js';
import { table } from './table.js';
import { lines } from './print.js';

/** Bookings that are printed one by one. */
export const MAX_BOOKINGS = 20;

export function reconcileToJson(result: ReconcileResult, dryRun: boolean) {
  return {
    dryRun,
    ...result,
    from: new Date(result.from).toISOString(),
    to: new Date(result.to).toISOString(),
  };
}

export function describeReconcile(
  { runId, from, to, verdicts, discrepancies, problems, events, requests }: ReconcileResult,
  { timeZone, isDryRun, seconds }: { timeZone: string; isDryRun: boolean; seconds: number },
): string[] {
  const rows = Object.entries(VERDICT_MEANINGS)
    .map(([verdict, meaning]) => [verdict, verdicts[verdict as Verdict] ?? 0, meaning] as const)
    .filter(([, bookings]) => bookings > 0);
  const day = (time: number) => new Date(time).toISOString().slice(0, 10);
  const run = isDryRun ? 'Dry run, nothing kept' : `Run ${runId}`;
  return lines(
    rows.length === 0
      ? 'No booking in this window, in the mirror or at the service.'
      : table(['verdict', 'bookings', ''], rows),
    '',
    discrepancies.map((row) => describeBooking(row, timeZone)),
    discrepancies.length > 0 && '',
    discrepancies.length === MAX_BOOKINGS &&
      `These are the first ${MAX_BOOKINGS}; all of them: SELECT * FROM slotsync.discrepancies\n`,
    problems > 0 && `${plural(problems, 'booking')} with a fault in the mirror; see the lines above.\n`,
    `${run}: ${day(from)} to ${day(to)} (UTC) in ${formatDuration(seconds)}, ${plural(requests, 'request')}; ${plural(events, 'verdict')} changed.`,
    discrepancies.length > 0 && 'The history of one booking: slotsync explain reservations <key>',
  );
}
