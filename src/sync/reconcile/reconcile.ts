// Compares bookings: the service's reservations and cancellations compared with the bookings of the mirror.
// A reconcile reads at both sides and writes verdicts. An interrupted one is started again from the beginning, so it has
// no batches and needs no queue. One at a time, worked by the process that started it.
import type { Period } from '../../destination/destination.js';
import { codeOf, messageWithDetail, UsageError } from '../../errors/errors.js';
import { storeVerdicts } from '../../state/bookings/verdict-store.js';
import { pruneBookings } from '../../state/retention.js';
import { failRun, finishRun } from '../../state/runs/end-run.js';
import {
  alreadyRunning,
  dropReading,
  startReading,
  whileReadingAlone,
} from '../../state/runs/reconcile-and-verify-runs.js';
import {
  moveReservationsWatermark,
  readReservationsWatermark,
} from '../../state/bookings/reservations-watermark.js';
import { noteReconciledOccurrence, readUnreconciledOccurrence } from '../../state/schedules.js';
import type { StartedBy } from '../../state/schema.js';
import type { ReservationConfig } from '../../streams/bookings.js';
import { NIGHTLY } from '../../time/schedule.js';
import { inSpan } from '../../process/tracing.js';
import { readLookupTables, requireLookups } from '../run/current-streams.js';
import { timeOf, type SyncDeps } from '../run/sync-deps.js';
import { matchBookings, requireUnended, type MatchDeps } from './match-bookings.js';
import { readWindow, type ReadOptions } from './read-window.js';
import { readSlices } from './time-slices.js';

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
const DAY_MS = 24 * 60 * 60 * 1000;
/** Bookings of a slice: five full pages. */
const SLICE_SIZE = 5000;
/** A reservation that ends within five minutes leaves no trace at the service: changes are read later, and twice. Seconds. */
const LAG = 5 * 60;
const OVERLAP = 5 * 60;

/**
 * Reconciles a window. One at a time: throws SlotsyncError `reconcile_running` when another is under way, else what
 * the sides throw; verdicts written until then stay. UsageError: the window ends before it begins.
 */
export async function reconcile(
  deps: ReconcileDeps,
  range: ReconcileRange = {},
  signal?: AbortSignal,
): Promise<ReconcileResult> {
  const alone = await whileReadingAlone(deps.state, 'reconcile', () => reconcileWindow(deps, range, signal));
  if (alone) return alone.result;
  throw await alreadyRunning(deps.state, 'reconcile');
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
      return changes > 0;
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
    return true;
  });
}

interface ReadRequest extends Pick<ReconcileRange, 'named'> {
  /** `changes`: only what was changed at the service since the last reading. */
  read: 'window' | 'changes';
  signal: AbortSignal | undefined;
}

type RunWork = (matching: MatchDeps, options: ReadOptions) => Promise<boolean>;

/** Does the work as a run with a row, and returns its result. Work that returns false leaves no row. */
async function inRun(
  {
    destination,
    mirror,
    reservations,
    sliceSize = SLICE_SIZE,
    onProgress,
    state: { db },
    ...deps
  }: ReconcileDeps,
  period: Period,
  { read, signal, named = 0 }: ReadRequest,
  work: RunWork,
) {
  const requestsBefore = destination.requests();
  const [from, to] = [period.from * 1000, period.to * 1000];
  const range = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
  const { startedBy } = deps;
  const request = { kind: 'reconcile', lane: LANE, startedBy, streams: [], range } as const;
  const runId = await startReading(db, request);
  const verdicts = storeVerdicts(db, runId);
  try {
    const [bookings] = await readLookupTables(mirror, reservations.bookings ? [reservations.bookings] : []);
    if (bookings) requireLookups(bookings);
    const shared = bookings ? await mirror.bookings.findShared(bookings) : new Set<string>();
    if (bookings && read === 'window')
      await mirror.bookings.requireKeys(bookings, { ...period, isFirst: true });
    const current = { ...reservations, bookings };
    const matching: MatchDeps = {
      mirror,
      destination,
      reservations: current,
      db,
      verdicts,
      runId,
      lane: LANE,
      shared,
    };
    const attributes = {
      'slotsync.run.id': runId,
      'slotsync.run.kind': 'reconcile',
      'slotsync.run.started_by': startedBy,
      'slotsync.lane': LANE,
    };
    const hadWork = await inSpan('run', attributes, () => work(matching, { sliceSize, onProgress, signal }));
    await (hadWork ? finishRun : dropReading)(db, runId);
  } catch (error) {
    const reason = signal?.aborted
      ? { code: 'interrupted', message: 'the process was stopped' }
      : { code: codeOf(error), message: messageWithDetail(error) };
    await failRun(db, runId, reason);
    throw error;
  }
  const counts = await verdicts.count();
  const requests = destination.requests() - requestsBefore;
  const facts = { runId, read, requests, events: counts.events, ...counts.verdicts };
  deps.log.info(facts, 'reservations reconciled');
  const discrepancies = named > 0 ? await verdicts.listDiscrepancies(named) : [];
  return { runId, read, from, to, ...counts, requests, discrepancies };
}

/** Matches what was changed at the service in the period (Unix seconds), whenever it takes place. Returns how many changes there were. */
async function readChanges(
  deps: MatchDeps,
  period: Period,
  { sliceSize, signal }: ReadOptions,
): Promise<number> {
  const { mirror, destination, verdicts, lane } = deps;
  const source = deps.reservations.bookings;
  const context = { lane, signal };
  const size = { most: sliceSize, least: 1 };
  let changes = 0;
  // The end of `modified` is included: in slices that follow each other a second is read twice, and none is missed.
  const cancellations = readSlices(period, size, (modified, most) =>
    destination.findCancellations({ modified, most }, context),
  );
  for await (const { results } of cancellations) {
    changes += results.length;
    await verdicts.keep({ seen: results });
    const ids = results.flatMap(({ reservationId }) => reservationId ?? []);
    const known = await verdicts.readKnown({ keys: [], destinationIds: ids });
    const keys = known.map(({ key }) => key);
    const extIds = results.flatMap(({ extId }) => extId ?? []);
    const bookings = [
      ...(await mirror.bookings.readByKeys(source, keys)),
      ...(await mirror.bookings.readByExternalIds(source, extIds)),
    ];
    const { results: reservations } = await destination.findReservations({ ids }, context);
    await matchBookings(deps, { bookings, reservations, known: keys }, signal);
  }
  const changed = readSlices(period, size, (modified, most) =>
    destination.findReservations({ modified, most }, context),
  );
  for await (const { results } of changed) {
    changes += results.length;
    await requireUnended(deps);
    await matchBookings(deps, { bookings: [], reservations: results }, signal);
  }
  return changes;
}
