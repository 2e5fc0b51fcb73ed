// Compares the mirror's bookings with reservations and cancellations at the service, and stores a verdict on each.
// Reads a whole period after each nightly sync, and every few minutes what was changed at the service.
import type { Period } from '../../destination/destination.js';
import { UsageError } from '../../errors/errors.js';
import type { Stoppable, Turns } from '../../process/lifecycle.js';
import { storeVerdicts } from '../../state/bookings/verdict-store.js';
import { pruneBookings } from '../../state/retention.js';
import { whileReadingAlone } from '../../state/runs/reconcile-and-verify-runs.js';
import {
  moveReservationsWatermark,
  readReservationsWatermark,
} from '../../state/bookings/read-reservations.js';
import { noteReconciledOccurrence, readUnreconciledOccurrence } from '../../state/schedules.js';
import type { StartedBy } from '../../state/schema.js';
import type { ReservationConfig } from '../../streams/bookings.js';
import { NIGHTLY } from '../../time/schedule.js';
import { readLookupTables, requireLookups } from '../run/current-streams.js';
import { readAlone, readPeriodically, workReading } from '../run/reading-run.js';
import { timeOf, type SyncDeps } from '../run/sync-deps.js';
import type { MatchDeps } from './match-bookings.js';
import { readChanges, readWindow, type ReadOptions } from './read-window.js';

export interface ReconcileDeps
  extends
    Pick<SyncDeps, 'mirror' | 'destination' | 'state' | 'log' | 'now'>,
    Partial<Pick<ReadOptions, 'sliceSize' | 'onProgress'>> {
  reservations: ReservationConfig;
  startedBy: StartedBy;
}

export interface ReconcileRange {
  /** Period in milliseconds since 1970. By default, the configured days before and after now. */
  from?: number | undefined;
  to?: number | undefined;
  /** Maximum number of discrepancies that the result names. */
  named?: number | undefined;
}

/** Result of a reconcile. Times in milliseconds since 1970. */
export type ReconcileResult = Awaited<ReturnType<typeof inRun>>;

const LANE = 'sync';
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY_MS = 24 * 60 * MINUTE;
/** Maximum number of bookings in a slice of the period: five full pages. */
const SLICE_SIZE = 5000;
/** Seconds. A reservation that is deleted within 5 minutes leaves no trace, so changes are read late, and twice. */
const LAG = 5 * 60;
const OVERLAP = 5 * 60;

/**
 * Reconciles periodically until stopped, in one worker at a time. `everyMinutes`: period for all workers together; 0:
 * only after nightly syncs. Waits for one of `turns`, because reconciling holds a database connection.
 */
export function reconcilePeriodically(
  deps: ReconcileDeps,
  { everyMinutes, turns }: { everyMinutes: number; turns: Turns },
): Stoppable {
  // Checks more often than every `everyMinutes`, because another worker may reconcile in between.
  const everyMs =
    everyMinutes === 0 ? MINUTE : Math.min(MINUTE, Math.max(SECOND, (everyMinutes * MINUTE) / 10));
  return readPeriodically('reconcile', deps.log, { everyMs }, (stopping) =>
    turns.take(async () => {
      await reconcileNightly(deps, stopping);
      if (everyMinutes > 0) await reconcileModified(deps, { everyMinutes }, stopping);
    }),
  );
}

/**
 * Reconciles a period. Throws SlotsyncError `reconcile_running` if another reconcile is running, UsageError if the
 * period ends before it begins, and the errors of the mirror and the service. Verdicts that were stored before an error
 * remain.
 */
export async function reconcile(
  deps: ReconcileDeps,
  range: ReconcileRange = {},
  signal?: AbortSignal,
): Promise<ReconcileResult> {
  return readAlone(deps.state, 'reconcile', () => reconcileWindow(deps, range, signal));
}

/**
 * Reconciles what was changed at the service since the last time. Reads the whole period if that time is unknown, or if
 * the service cannot select changes. Returns undefined if another process reconciles, or has done so less than
 * `everyMinutes` ago.
 */
export async function reconcileModified(
  deps: ReconcileDeps,
  { everyMinutes = 0 }: { everyMinutes?: number } = {},
  signal?: AbortSignal,
): Promise<ReconcileResult | undefined> {
  const { state, destination } = deps;
  const alone = await whileReadingAlone(state, 'reconcile', async () => {
    const now = await timeOf(deps);
    const noted = await readReservationsWatermark(state.db);
    // A time in the future comes from a wrong clock, and is ignored.
    const mark = noted && noted.readUpTo * 1000 <= now ? noted : undefined;
    if (mark && mark.ageSeconds < everyMinutes * 60) return undefined;
    if (!mark || !(await destination.honoursModified(now, { lane: LANE, signal })))
      return reconcileWindow(deps, {}, signal);
    const period = { from: mark.readUpTo - OVERLAP, to: Math.floor(now / 1000) - LAG };
    if (period.to <= mark.readUpTo) return undefined;
    return inRun(deps, period, { read: 'changes', signal }, async (matching, options) => {
      const changes = await readChanges(matching, period, options);
      await moveReservationsWatermark(matching.db, period.to);
      return changes > 0 ? 'done' : 'nothing';
    });
  });
  return alone?.result;
}

/**
 * Reconciles the configured period after a nightly sync has ended. Returns undefined if this was done already, or
 * another process is reconciling.
 */
export async function reconcileNightly(
  deps: ReconcileDeps,
  signal?: AbortSignal,
): Promise<ReconcileResult | undefined> {
  const { db } = deps.state;
  if (!(await readUnreconciledOccurrence(db, NIGHTLY))) return undefined;
  const alone = await whileReadingAlone(deps.state, 'reconcile', async () => {
    const due = await readUnreconciledOccurrence(db, NIGHTLY);
    if (!due) return undefined;
    const result = await reconcileWindow(deps, {}, signal);
    await noteReconciledOccurrence(db, NIGHTLY, due);
    return result;
  });
  return alone?.result;
}

async function reconcileWindow(
  deps: ReconcileDeps,
  range: ReconcileRange,
  signal: AbortSignal | undefined,
): Promise<ReconcileResult> {
  const now = await timeOf(deps);
  const { pastDays, futureDays } = deps.reservations.window;
  const { from = now - pastDays * DAY_MS, to = now + futureDays * DAY_MS } = range;
  const window = { from: Math.floor(from / 1000), to: Math.ceil(to / 1000) };
  if (window.from >= window.to) {
    throw new UsageError('the window ends before it begins', {
      remedy: 'Name an earlier --from or a later --to.',
    });
  }
  return inRun(deps, window, { ...range, read: 'window', signal }, async (matching, options) => {
    await readWindow(matching, window, options);
    await pruneBookings(matching.db);
    const isWhole = range.from === undefined && range.to === undefined;
    if (isWhole) await moveReservationsWatermark(matching.db, Math.floor(now / 1000) - LAG);
    return 'done';
  });
}

interface ReadRequest extends Pick<ReconcileRange, 'named'> {
  /** `window`: all bookings of a period. `changes`: only bookings changed at the service since the last time. */
  read: 'window' | 'changes';
  signal: AbortSignal | undefined;
}

type RunWork = (matching: MatchDeps, options: ReadOptions) => Promise<'done' | 'nothing'>;

/** Executes `work` as a run of kind `reconcile`, and returns the counts. */
async function inRun(
  { sliceSize = SLICE_SIZE, onProgress, ...deps }: ReconcileDeps,
  period: Period,
  { read, signal, named = 0 }: ReadRequest,
  work: RunWork,
) {
  const { mirror, destination, reservations, startedBy } = deps;
  const { db } = deps.state;
  const [from, to] = [period.from * 1000, period.to * 1000];
  const range = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
  const request = { kind: 'reconcile', lane: LANE, startedBy, streams: [], range } as const;
  const { runId, requests } = await workReading(deps, request, signal, async ({ id, requireUnended }) => {
    const [bookings] = await readLookupTables(mirror, reservations.bookings ? [reservations.bookings] : []);
    if (bookings) requireLookups(bookings);
    const shared = bookings ? await mirror.bookings.findShared(bookings) : new Set<string>();
    if (bookings && read === 'window')
      await mirror.bookings.requireKeys(bookings, { ...period, isFirst: true });
    const matching: MatchDeps = {
      mirror,
      destination,
      reservations: { ...reservations, bookings },
      db,
      verdicts: storeVerdicts(db, id),
      requireUnended,
      lane: LANE,
      shared,
    };
    return work(matching, { sliceSize, onProgress, signal });
  });
  const verdicts = storeVerdicts(db, runId);
  const counts = await verdicts.count();
  const facts = { runId, read, requests, events: counts.events, ...counts.verdicts };
  deps.log.info(facts, 'reservations reconciled');
  const discrepancies = named > 0 ? await verdicts.listDiscrepancies(named) : [];
  return { runId, read, from, to, ...counts, requests, discrepancies };
}
