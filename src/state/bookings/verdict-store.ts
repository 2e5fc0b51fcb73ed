// What a reconcile reads of earlier verdicts and cancellations, and where it puts its own: into the tables, slice by slice.
// A dry run keeps its own apart (dry-verdicts.ts), and reads the same.
import type { Queries } from '../database.js';
import {
  forgetCancellations,
  readCancellations,
  readUnmetCancellations,
  writeCancellations,
  type KnownCancellation,
  type SeenCancellation,
} from './cancellations.js';
import {
  countVerdicts,
  listDiscrepancies,
  readKnownBookings,
  readUnmetBookings,
  type KnownBooking,
  type ReservationRow,
  type VerdictCounts,
} from './read-reservations.js';
import { forgetBookings, writeBookings, type MatchedBooking } from './write-reservations.js';

/** Unix seconds. */
interface Window {
  from: number;
  to: number;
}

/** What a slice has found. */
export interface FoundInSlice {
  /** Cancellations the service has. */
  seen?: readonly SeenCancellation[];
  /** Those it has no more. */
  goneIds?: readonly number[];
  /** Keys of bookings that neither side has any more. */
  forgotten?: readonly string[];
  matched?: readonly MatchedBooking[];
}

/** Every reading has what was kept before. */
export interface VerdictStore {
  readKnown(wanted: {
    keys: readonly string[];
    destinationIds: readonly number[];
  }): Promise<readonly KnownBooking[]>;
  /** Bookings of a window that no slice has met, in the order of their keys. */
  readUnmet(window: Window, page: { after: string; limit: number }): Promise<readonly KnownBooking[]>;
  readCancellations(wanted: {
    reservationIds: readonly number[];
    extIds: readonly string[];
  }): Promise<readonly KnownCancellation[]>;
  /** Cancellations of a window that no slice has met, in the order of their ids. */
  readUnmetCancellations(window: Window, page: { after: number; limit: number }): Promise<readonly number[]>;
  /** All of it, or nothing. */
  keep(found: FoundInSlice): Promise<void>;
  count(): Promise<VerdictCounts>;
  /** What does not agree, earliest first. */
  listDiscrepancies(limit: number): Promise<readonly ReservationRow[]>;
}

/** Keeps verdicts in the tables, as those of this run. */
export function storeVerdicts(db: Queries, runId: number): VerdictStore {
  return {
    readKnown: (wanted) => readKnownBookings(db, wanted),
    readUnmet: (window, page) => readUnmetBookings(db, runId, window, page),
    readCancellations: (wanted) => readCancellations(db, runId, wanted),
    readUnmetCancellations: (window, page) => readUnmetCancellations(db, runId, window, page),
    keep: ({ seen = [], goneIds = [], forgotten = [], matched = [] }) =>
      db.transaction(async (tx) => {
        await writeCancellations(tx, runId, seen);
        await forgetCancellations(tx, goneIds);
        await forgetBookings(tx, runId, forgotten);
        await writeBookings(tx, runId, matched);
      }),
    count: () => countVerdicts(db, runId),
    listDiscrepancies: (limit) => listDiscrepancies(db, runId, limit),
  };
}
