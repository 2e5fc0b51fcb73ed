// What became of the bookings: reservations and cancellations there, compared with the bookings here, slice by slice.
// It reads at both sides and writes verdicts; an interrupted run is simply run again, so its slices are no batches and
// need no queue.
import type { Destination, Found, Period, ReservationThere } from '../../destination/destination.js';
import { codeOf, messageWithDetail, SlotsyncError, UsageError } from '../../errors.js';
import type { Logger } from '../../logger.js';
import type { Mirror } from '../../mirror/mirror.js';
import {
  forgetCancellations,
  readUnmetCancellations,
  writeCancellations,
} from '../../state/bookings/cancellations.js';
import type { Queries, State } from '../../state/database.js';
import {
  dropReconciliation,
  endReconciliation,
  moveReservationsWatermark,
  readReservationsWatermark,
  startReconciliation,
  whileReconcilingAlone,
} from '../../state/runs/reconcile-runs.js';
import {
  countVerdicts,
  listDiscrepancies,
  pruneBookings,
  readKnownBookings,
  readUnmetBookings,
  type ReservationRow,
} from '../../state/bookings/reservations.js';
import { readRun } from '../../state/runs/runs.js';
import { noteReconciledOccurrence, readUnreconciledOccurrence } from '../../state/runs/occurrences.js';
import type { Verdict } from '../../state/schema.js';
import type { ReservationConfig } from '../../streams/bookings.js';
import { matchBookings, resultsOf, type MatchDeps } from './match-bookings.js';
import { NIGHTLY } from '../../state/runs/schedule-names.js';
import { readSlices } from './time-slices.js';

export interface ReconcileDeps {
  mirror: Mirror;
  destination: Destination;
  state: State;
  reservations: ReservationConfig;
  log: Logger;
  /** Milliseconds since 1970. */
  now?: () => number;
  /** Told how much of the window is done, in seconds of it. */
  onProgress?: (done: number, total: number) => void;
  /** Bookings of a slice at most; memory goes with it. */
  sliceSize?: number;
}

export interface ReconcileRange {
  /** Milliseconds since 1970; by default the configured window around now. */
  from?: number | undefined;
  to?: number | undefined;
  /** Judges everything and leaves no trace of it. */
  isDryRun?: boolean | undefined;
  /** Discrepancies named in the result. */
  named?: number | undefined;
}

export interface ReconcileResult {
  runId: number;
  /** `changes`: only what was changed there since the last reading. */
  read: 'window' | 'changes';
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  verdicts: Partial<Record<Verdict, number>>;
  /** Bookings with something wrong here. */
  problems: number;
  /** Verdicts that changed. */
  events: number;
  requests: number;
  discrepancies: ReservationRow[];
}

const LANE = 'sync';
const DAY_MS = 24 * 60 * 60 * 1000;
/** Bookings of a slice: five full pages. */
const SLICE_SIZE = 5000;
const SHORTEST_SLICE = 60 * 60;
const UNMET_AT_ONCE = 1000;
/** What is made and removed within five minutes leaves no trace there: it is read later, and twice. Seconds. */
const LAG = 5 * 60;
const OVERLAP = 5 * 60;

/**
 * Reconciles a window. One at a time: throws SlotsyncError `reconcile_running` when another is under way, else what
 * the sides throw; what was judged until then stays written. UsageError: the window ends before it begins.
 */
export async function reconcile(
  deps: ReconcileDeps,
  range: ReconcileRange = {},
  signal?: AbortSignal,
): Promise<ReconcileResult> {
  const alone = await whileReconcilingAlone(deps.state, () => reconcileWindow(deps, range, signal));
  if (alone) return alone.result;
  throw new SlotsyncError('reconcile_running', 'another reconcile is under way', {});
}

/**
 * Reconciles what was changed at the service since the last complete reading; the whole window where nothing was read
 * yet, or where the service does not tell changes. Undefined when another process is at it, or has been less than
 * `everyMinutes` ago.
 */
export async function reconcileModified(
  deps: ReconcileDeps,
  { everyMinutes = 0 }: { everyMinutes?: number } = {},
  signal?: AbortSignal,
): Promise<ReconcileResult | undefined> {
  const { state, destination } = deps;
  const alone = await whileReconcilingAlone(state, async () => {
    const mark = await readReservationsWatermark(state.db);
    if (mark && mark.ageSeconds < everyMinutes * 60) return undefined;
    const now = deps.now?.() ?? Date.now();
    if (!mark || !(await destination.honoursModified(now, { lane: LANE, signal })))
      return reconcileWindow(deps, {}, signal);
    const period = { from: mark.readUpTo - OVERLAP, to: Math.floor(now / 1000) - LAG };
    if (period.to <= mark.readUpTo) return undefined;
    return inRun(deps, period, { read: 'changes', signal }, async (judging) => {
      const found = await readChanges(deps, judging, period, signal);
      await moveReservationsWatermark(judging.db, period.to);
      return found > 0;
    });
  });
  return alone?.result;
}

/**
 * Reconciles the window once for each night, when the night's run has ended. Undefined when there is nothing owed, or
 * another process is at it.
 */
export async function reconcileNightly(
  deps: ReconcileDeps,
  signal?: AbortSignal,
): Promise<ReconcileResult | undefined> {
  const { db } = deps.state;
  if (!(await readUnreconciledOccurrence(db, NIGHTLY))) return undefined;
  const alone = await whileReconcilingAlone(deps.state, async () => {
    const due = await readUnreconciledOccurrence(db, NIGHTLY);
    if (!due) return undefined;
    const result = await reconcileWindow(deps, {}, signal);
    await noteReconciledOccurrence(db, NIGHTLY, due);
    return result;
  });
  return alone?.result;
}

/** The window to read, in Unix seconds. */
function windowOf({ reservations, now }: ReconcileDeps, range: ReconcileRange): Period {
  const at = now?.() ?? Date.now();
  const { pastDays, futureDays } = reservations.window;
  return {
    from: Math.floor((range.from ?? at - pastDays * DAY_MS) / 1000),
    to: Math.ceil((range.to ?? at + futureDays * DAY_MS) / 1000),
  };
}

async function reconcileWindow(
  deps: ReconcileDeps,
  range: ReconcileRange,
  signal: AbortSignal | undefined,
): Promise<ReconcileResult> {
  const window = windowOf(deps, range);
  if (window.from >= window.to) {
    throw new UsageError('the window ends before it begins', {
      remedy: 'Name an earlier --from or a later --to.',
    });
  }
  const startedAt = Math.floor((deps.now?.() ?? Date.now()) / 1000);
  return inRun(deps, window, { ...range, read: 'window', signal }, async (judging) => {
    await readCancellationsThere(deps, judging, window, signal);
    await readWindow(deps, judging, window, signal);
    await readUndated(deps, judging, signal);
    await readUnmet(deps, judging, window, signal);
    await pruneBookings(judging.db);
    const isWhole = range.from === undefined && range.to === undefined;
    if (isWhole) await moveReservationsWatermark(judging.db, startedAt - LAG);
    return true;
  });
}

/** What is written in a dry run goes with its transaction. */
class DryRunEnd extends Error {
  override readonly name = 'DryRunEnd';
}

/** Does the work as a run with a row, and tells what came of it. Work that says false leaves no row. */
async function inRun(
  deps: ReconcileDeps,
  period: Period,
  {
    read,
    signal,
    isDryRun = false,
    named = 0,
  }: ReconcileRange & Pick<ReconcileResult, 'read'> & { signal: AbortSignal | undefined },
  work: (judging: MatchDeps) => Promise<boolean>,
): Promise<ReconcileResult> {
  const { state, destination, mirror, reservations } = deps;
  const requestsBefore = destination.requests();
  const inDatabase = async (db: Queries): Promise<ReconcileResult> => {
    const text = (seconds: number) => new Date(seconds * 1000).toISOString();
    const runId = await startReconciliation(db, { from: text(period.from), to: text(period.to) });
    const log = deps.log.child({ runId });
    try {
      const { bookings } = reservations;
      const shared = bookings ? await mirror.bookings.findShared(bookings) : new Set<string>();
      if (bookings && read === 'window')
        await mirror.bookings.requireKeys(bookings, { ...period, isFirst: true });
      const hadWork = await work({ mirror, destination, reservations, db, runId, lane: LANE, shared });
      if (hadWork) await endReconciliation(db, runId);
      else await dropReconciliation(db, runId);
    } catch (error) {
      const reason = signal?.aborted
        ? { code: 'interrupted', message: 'it was told to stop' }
        : { code: codeOf(error), message: messageWithDetail(error) };
      if (!isDryRun) await endReconciliation(db, runId, reason);
      throw error;
    }
    const counts = await countVerdicts(db, runId);
    const requests = destination.requests() - requestsBefore;
    log.info({ read, requests, events: counts.events, ...counts.verdicts }, 'reservations reconciled');
    const discrepancies = named > 0 ? await listDiscrepancies(db, runId, named) : [];
    return {
      runId,
      read,
      from: period.from * 1000,
      to: period.to * 1000,
      ...counts,
      requests,
      discrepancies,
    };
  };
  if (!isDryRun) return inDatabase(state.db);
  let result: ReconcileResult | undefined;
  await state.db
    .transaction(async (tx) => {
      result = await inDatabase(tx);
      throw new DryRunEnd();
    })
    .catch((error: unknown) => {
      if (!(error instanceof DryRunEnd)) throw error;
    });
  if (!result) throw new Error('the dry run has no result');
  return result;
}

/** First of all: a booking that was moved and then cancelled lies in another slice than ours. */
async function readCancellationsThere(
  { destination, sliceSize = SLICE_SIZE }: ReconcileDeps,
  { db, runId }: MatchDeps,
  window: Period,
  signal: AbortSignal | undefined,
): Promise<void> {
  const slices = readSlices(window, { most: sliceSize, least: SHORTEST_SLICE }, (slice, most) =>
    destination.findCancellations(most === undefined ? { window: slice } : { window: slice, most }, {
      lane: LANE,
      signal,
    }),
  );
  for await (const { results } of slices) await writeCancellations(db, runId, results);
}

async function readWindow(
  deps: ReconcileDeps,
  judging: MatchDeps,
  window: Period,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { mirror, destination, sliceSize = SLICE_SIZE } = deps;
  const { bookings } = judging.reservations;
  const sliceOf = (slice: Period) => ({ ...slice, isFirst: slice.from === window.from });

  /** Both sides have to fit; ours is asked first, since that costs no request. */
  const read = async (slice: Period, most: number | undefined): Promise<Found<ReservationThere>> => {
    const here = bookings && most ? await mirror.bookings.count(bookings, sliceOf(slice)) : 0;
    if (most !== undefined && here > most) return { tooMany: here };
    return destination.findReservations(most === undefined ? { window: slice } : { window: slice, most }, {
      lane: LANE,
      signal,
    });
  };

  for await (const { slice, results } of readSlices(
    window,
    { most: sliceSize, least: SHORTEST_SLICE },
    read,
  )) {
    signal?.throwIfAborted();
    await requireUnended(judging);
    const here = bookings ? await mirror.bookings.readSlice(bookings, sliceOf(slice)) : [];
    // What lasts into a slice has been met in the one before.
    const there = results.filter(({ begin }) => slice.from === window.from || begin >= slice.from * 1000);
    const lookAgain = async () =>
      resultsOf(await destination.findCancellations({ window: slice }, { lane: LANE, signal }));
    await matchBookings(judging, { here, there, lookAgain }, signal);
    deps.onProgress?.(slice.to - window.from, window.to - window.from);
  }
}

/** Bookings here that belong to no time. */
async function readUndated(
  { mirror }: ReconcileDeps,
  judging: MatchDeps,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { bookings } = judging.reservations;
  if (!bookings) return;
  for await (const here of mirror.bookings.readUndated(bookings))
    await matchBookings(judging, { here, there: [] }, signal);
}

/** What was known in the window and met by no slice: moved out of it, or gone, on either side. */
async function readUnmet(
  { mirror, destination }: ReconcileDeps,
  judging: MatchDeps,
  window: Period,
  signal: AbortSignal | undefined,
): Promise<void> {
  const { db, runId } = judging;
  for (let after = ''; ;) {
    const known = await readUnmetBookings(db, runId, window, { after, limit: UNMET_AT_ONCE });
    const last = known.at(-1);
    if (!last) break;
    after = last.key;
    const { bookings } = judging.reservations;
    const keys = known.map(({ key }) => key);
    const ids = known.flatMap(({ destinationId }) => destinationId ?? []);
    const here = bookings ? await mirror.bookings.readByKeys(bookings, keys) : [];
    const there = resultsOf(await destination.findReservations({ ids }, { lane: LANE, signal }));
    await matchBookings(judging, { here, there, known: keys }, signal);
  }
  for (let after = 0; ;) {
    const ids = await readUnmetCancellations(db, runId, window, { after, limit: UNMET_AT_ONCE });
    const last = ids.at(-1);
    if (last === undefined) break;
    after = last;
    const found = resultsOf(await destination.findCancellations({ ids }, { lane: LANE, signal }));
    await writeCancellations(db, runId, found);
    const there = new Set(found.map(({ id }) => id));
    await forgetCancellations(
      db,
      ids.filter((id) => !there.has(id)),
    );
  }
}

/** What was changed there in a period, whenever it takes place. Returns how much it was. */
async function readChanges(
  deps: ReconcileDeps,
  judging: MatchDeps,
  period: Period,
  signal: AbortSignal | undefined,
): Promise<number> {
  let changes = 0;
  const { mirror, destination, sliceSize = SLICE_SIZE } = deps;
  const { db, runId } = judging;
  const { bookings } = judging.reservations;
  const context = { lane: LANE, signal } as const;
  const size = { most: sliceSize, least: 1 };
  // The end of `modified` counts as in it: with slices that follow each other a second is read twice, and none missed.
  const cancellations = readSlices(period, size, (slice, most) =>
    destination.findCancellations(
      most === undefined ? { modified: slice } : { modified: slice, most },
      context,
    ),
  );
  for await (const { results } of cancellations) {
    changes += results.length;
    await writeCancellations(db, runId, results);
    const destinationIds = results.flatMap(({ reservationId }) => reservationId ?? []);
    const known = await readKnownBookings(db, { keys: [], destinationIds });
    const keys = known.map(({ key }) => key);
    const extIds = results.flatMap(({ extId }) => extId ?? []);
    const here = bookings
      ? [
          ...(await mirror.bookings.readByKeys(bookings, keys)),
          ...(await mirror.bookings.readByExternalIds(bookings, extIds)),
        ]
      : [];
    const there = resultsOf(await destination.findReservations({ ids: destinationIds }, context));
    await matchBookings(judging, { here, there, known: keys }, signal);
  }
  const reservations = readSlices(period, size, (slice, most) =>
    destination.findReservations(
      most === undefined ? { modified: slice } : { modified: slice, most },
      context,
    ),
  );
  for await (const { results } of reservations) {
    changes += results.length;
    await requireUnended(judging);
    await matchBookings(judging, { here: [], there: results }, signal);
  }
  return changes;
}

/** A run that somebody has cancelled goes no further. */
async function requireUnended({ db, runId }: MatchDeps): Promise<void> {
  const run = await readRun(db, runId);
  if (run?.finishedAt) throw new SlotsyncError('run_cancelled', 'the run was cancelled');
}
