import type { Command } from 'commander';
import type { App } from '../app.js';
import { UsageError } from '../errors.js';
import { reconcile, type ReconcileResult } from '../sync/reconcile/reconcile.js';
import type { Verdict } from '../state/schema.js';
import { describeBooking, VERDICT_WORDS } from '../report/booking-report.js';
import { common, EXIT, withApp, type CommonOptions } from './command.js';
import { formatDuration, plural, printJson, printLine, table } from '../report/format.js';
import { createProgress } from '../report/progress.js';

interface ReconcileOptions extends CommonOptions {
  from?: string;
  to?: string;
  dryRun?: boolean;
  strict?: boolean;
}

/** Discrepancies printed one by one. */
const NAMED = 20;
const NAMED_AS_JSON = 10_000;
const HOUR = 60 * 60;

export function addReconcile(program: Command): void {
  common(program.command('reconcile'))
    .description('compare the bookings here with reservations and cancellations there; writes neither')
    .option(
      '--from <time>',
      'a day or an ISO time (UTC unless it says otherwise), instead of the configured window',
    )
    .option('--to <time>', 'the same for its end')
    .option('--dry-run', 'compare and tell, and keep nothing of it')
    .option('--strict', 'exit with 1 when a booking is missing there or unknown here')
    .action((options: ReconcileOptions) =>
      withApp({ needs: ['mirror', 'state', 'api'], configPath: options.config }, (app) =>
        runReconcile(app, options),
      ),
    );
}

async function runReconcile(app: App, options: ReconcileOptions): Promise<number> {
  const from = readTime(options.from, '--from');
  const to = readTime(options.to, '--to');
  if (from !== undefined && to !== undefined && from >= to)
    throw new UsageError('--from is not before --to', { remedy: 'Name an earlier --from or a later --to.' });
  const deps = await app.reconciling();
  const { bookings } = deps.reservations;
  if (bookings) {
    const faults = await deps.mirror.bookings.check(bookings);
    if (faults.length > 0) {
      throw new UsageError('the mirror does not have what the configuration names', {
        faults: faults.map((fault) => `reservations.${fault}`),
        remedy: 'Correct the configuration; `slotsync check` shows everything at once.',
      });
    }
  }
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort(new Error('interrupted'));
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  const progress = createProgress('hours read');
  const startedAt = performance.now();
  let result: ReconcileResult;
  try {
    result = await reconcile(
      {
        ...deps,
        onProgress: (done, total) => progress.update(Math.ceil(done / HOUR), Math.ceil(total / HOUR)),
      },
      { from, to, isDryRun: options.dryRun, named: options.json ? NAMED_AS_JSON : NAMED },
      interrupted.signal,
    );
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    process.stderr.write('Stopped. What was judged is kept; slotsync reconcile reads everything again.\n');
    return EXIT.failed;
  } finally {
    progress.stop();
    process.off('SIGINT', interrupt);
    process.off('SIGTERM', interrupt);
  }
  const isStrictFailure =
    options.strict === true && (result.verdicts.missing_there ?? 0) + (result.verdicts.unknown_here ?? 0) > 0;
  if (options.json) printJson({ dryRun: options.dryRun ?? false, ...toJson(result) });
  else
    printResult(result, bookings?.timezone ?? 'UTC', {
      ...options,
      seconds: (performance.now() - startedAt) / 1000,
    });
  return isStrictFailure ? EXIT.failed : EXIT.done;
}

function toJson(result: ReconcileResult) {
  return {
    ...result,
    from: new Date(result.from).toISOString(),
    to: new Date(result.to).toISOString(),
  };
}

function printResult(
  result: ReconcileResult,
  timezone: string,
  { dryRun, seconds }: { dryRun?: boolean; seconds: number },
): void {
  const { verdicts, discrepancies, problems } = result;
  const told = (Object.keys(VERDICT_WORDS) as Verdict[]).filter((verdict) => (verdicts[verdict] ?? 0) > 0);
  if (told.length === 0) printLine('No booking in this window, on either side.');
  else
    printLine(
      table(
        ['verdict', 'bookings', ''],
        told.map((verdict) => [verdict, verdicts[verdict] ?? 0, VERDICT_WORDS[verdict]]),
      ),
    );
  printLine();
  for (const row of discrepancies) printLine(describeBooking(row, timezone));
  if (discrepancies.length > 0) printLine();
  if (discrepancies.length === NAMED)
    printLine(`These are the first ${NAMED}; all of them: SELECT * FROM slotsync.discrepancies\n`);
  if (problems > 0)
    printLine(`${plural(problems, 'booking')} with something wrong here; see the lines above.\n`);
  const day = (time: number) => new Date(time).toISOString().slice(0, 10);
  const changed = plural(result.events, 'verdict');
  printLine(
    `${dryRun ? 'Dry run, nothing kept' : `Run ${result.runId}`}: ${day(result.from)} to ${day(result.to)} in ${formatDuration(seconds)}, ` +
      `${plural(result.requests, 'request')}; ${changed} changed.`,
  );
  if (discrepancies.length > 0) printLine('What became of one booking: slotsync explain reservations <key>');
}

/** Milliseconds since 1970. A day means its first moment, in UTC. */
function readTime(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const isDay = /^\d{4}-\d{2}-\d{2}$/.test(text);
  const isTime = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$/.test(text);
  const hasZone = /(Z|[+-]\d{2}:?\d{2})$/.test(text.slice(10));
  const at =
    isDay || isTime ? Date.parse(isDay || hasZone ? text : `${text.replace(' ', 'T')}Z`) : Number.NaN;
  if (!Number.isNaN(at) && at >= 0) return at;
  throw new UsageError(`${option} takes a day such as 2026-09-01, or an ISO time, not '${text}'`);
}
