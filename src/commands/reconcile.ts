import type { App } from '../app/app.js';
import { UsageError } from '../errors/errors.js';
import { MOST_BOOKINGS, reconcileDocument } from '../documents/bookings.js';
import { printDocument } from '../render/print-document.js';
import { createProgress } from '../render/progress.js';
import { reconcile } from '../sync/reconcile/reconcile.js';
import { lines } from '../text/format.js';
import { type CommonOptions, EXIT } from './command.js';
import { readTime } from './read-options.js';
import { untilInterrupted } from './signals.js';

interface ReconcileOptions extends CommonOptions {
  from?: string;
  to?: string;
  strict?: boolean;
}

const MAX_BOOKINGS_AS_JSON = 10_000;
const HOUR_SECONDS = 60 * 60;

export async function reconcileBookings(app: App, options: ReconcileOptions): Promise<number> {
  const from = readTime(options.from, '--from');
  const to = readTime(options.to, '--to');
  if (from !== undefined && to !== undefined && from >= to)
    throw new UsageError('--from is not before --to', { remedy: 'Name an earlier --from or a later --to.' });
  const deps = await app.reconciling('command');
  const { bookings } = deps.reservations;
  await deps.mirror.requireSources([], bookings);
  const progress = createProgress('hours');
  const onProgress = (done: number, total: number) =>
    progress.update(Math.ceil(done / HOUR_SECONDS), Math.ceil(total / HOUR_SECONDS));
  const startedAt = performance.now();
  const named = options.json ? MAX_BOOKINGS_AS_JSON : MOST_BOOKINGS;
  const result = await untilInterrupted(
    (signal) => reconcile({ ...deps, onProgress }, { from, to, named }, signal),
    'Stopped. Verdicts so far are kept; slotsync reconcile reads everything again.',
  ).finally(progress.stop);
  if (!result) return EXIT.failed;
  const seconds = (performance.now() - startedAt) / 1000;
  const timeZone = await app.timeZone();
  const facts = { ...result, from: new Date(result.from), to: new Date(result.to) };
  const window = lines(options.from && `--from ${options.from}`, options.to && `--to ${options.to}`);
  const command = ['slotsync reconcile', ...window].join(' ');
  const document = reconcileDocument(result, { timeZone, seconds, command, zone: bookings?.timezone });
  printDocument(document, { json: options.json, timeZone }, facts);
  const { missing_there: missing = 0, unknown_here: unknown = 0 } = result.verdicts;
  return options.strict && missing + unknown > 0 ? EXIT.failed : EXIT.done;
}
