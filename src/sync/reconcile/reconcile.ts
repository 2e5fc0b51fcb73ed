// Compares bookings: the service's reservations and cancellations compared with the bookings of the mirror.
// A reconcile reads at both sides and writes verdicts: the whole window after each nightly sync, and in between every few
// minutes what was changed at the service.
import type { Period } from '../../destination/destination.js';
import { UsageError } from '../../errors/errors.js';
import type { Stoppable, Turns } from '../../process/lifecycle.js';
import { storeVerdicts } from '../../state/bookings/verdict-store.js';
import { pruneBookings } from '../../state/retention.js';
import { whileReadingAlone } from '../../state/runs/reconcile-and-verify-runs.js';
import {
  moveReservationsWatermark,
  readReservationsWatermark,
} from '../../state/bookings/reservations-watermark.js';
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
  /** Milliseconds since 1970; by default the configured window around now. */
  from?: number | undefined;
  to?: number | undefined;
  /** Discrepancies named in the result. */
  named?: number | undefined;
}

/** Times in milliseconds since 1970. */
export type ReconcileResult = Awaited<ReturnType<typeof inRun>>;

const LANE = 'sync';
const SECOND = 1000;
const MINUTE = 60 * SECOND;
const DAY_MS = 24 * 60 * MINUTE;
/** Bookings of a slice: five full pages. */
const SLICE_SIZE = 5000;
/** A reservation that ends within five minutes leaves no trace at the service: changes are read later, and twice. Seconds. */
const LAG = 5 * 60;
const OVERLAP = 5 * 60;

/**
 * Runs until stopped. `everyMinutes` counts over all processes; 0: only after nightly syncs. All workers run this; the state
 * lets one of them read at a time. One of `turns` is taken for a reading, which keeps one of the few connections of the state.
 */
export function reconcilePeriodically(
  deps: ReconcileDeps,
  { everyMinutes, turns }: { everyMinutes: number; turns: Turns },
): Stoppable {
  // Another process may have read meanwhile: asked more often than read.
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
 * Reconciles a window. One at a time: throws SlotsyncError `reconcile_running` when another is under way, else what
 * the sides throw; verdicts written until then stay. UsageError: the window ends before it begins.
 */
export async function reconcile(
  deps: ReconcileDeps,
  range: ReconcileRange = {},
  signal?: AbortSignal,
): Promise<ReconcileResult> {
  return readAlone(deps.state, 'reconcile', () => reconcileWindow(deps, range, signal));
}

/**
 * Reconciles what was changed at the service since the last complete reading; the whole window where nothing was read
 * yet, or it is not known when, or where the service does not tell changes. Undefined when another process is at it, or has been less than
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
    // A clock that was ahead has noted a time that is to come.
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
 * Reconciles the window once for each nightly sync, when that has ended. Undefined when nothing is due, or
 * another process is at it.
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
  /** `changes`: only what was changed at the service since the last reading. */
  read: 'window' | 'changes';
  signal: AbortSignal | undefined;
}

type RunWork = (matching: MatchDeps, options: ReadOptions) => Promise<'done' | 'nothing'>;

/** Does the work as a run, and returns its result. */
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
