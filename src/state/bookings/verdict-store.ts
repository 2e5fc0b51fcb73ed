// Verdicts and cancellations of earlier reconciles. A reconcile reads them and writes its own, slice by slice.
import type { Queries } from '../database.js';
import {
  forgetCancellations,
  readCancellations,
  readUnmetCancellations,
  writeCancellations,
  type SeenCancellation,
} from './cancellations.js';
import {
  countVerdicts,
  listDiscrepancies,
  readKnownBookings,
  readUnmetBookings,
} from './read-reservations.js';
import { forgetBookings, writeBookings, type MatchedBooking } from './write-reservations.js';

/** Period of time in Unix seconds. */
interface Window {
  from: number;
  to: number;
}

/** Results of comparing one slice, a period whose bookings fit in memory. */
export interface FoundInSlice {
  seen?: readonly SeenCancellation[];
  /** Ids of cancellations that the service no longer has. */
  goneIds?: readonly string[];
  /** Keys of bookings that neither side has any more. */
  forgotten?: readonly string[];
  matched?: readonly MatchedBooking[];
}

export type VerdictStore = ReturnType<typeof storeVerdicts>;

/** Reads and writes verdicts in the state on behalf of one run. */
export function storeVerdicts(db: Queries, runId: number) {
  return {
    readKnown: (wanted: Parameters<typeof readKnownBookings>[1]) => readKnownBookings(db, wanted),
    /** Returns bookings of a window that no slice of the run has compared, ordered by key. */
    readUnmet: (window: Window, page: { after: string; limit: number }) =>
      readUnmetBookings(db, runId, window, page),
    readCancellations: (wanted: Parameters<typeof readCancellations>[2]) =>
      readCancellations(db, runId, wanted),
    /** Returns cancellations of a window that no slice of the run has seen, ordered by id. */
    readUnmetCancellations: (window: Window, page: { after: string; limit: number }) =>
      readUnmetCancellations(db, runId, window, page),
    /** Writes all results of a slice in one transaction. */
    keep: ({ seen = [], goneIds = [], forgotten = [], matched = [] }: FoundInSlice) =>
      db.transaction(async (tx) => {
        await writeCancellations(tx, runId, seen);
        await forgetCancellations(tx, goneIds);
        await forgetBookings(tx, runId, forgotten);
        await writeBookings(tx, runId, matched);
      }),
    count: () => countVerdicts(db, runId),
    /** Returns the bookings that disagree, earliest first. */
    listDiscrepancies: (limit: number) => listDiscrepancies(db, runId, limit),
  };
}
