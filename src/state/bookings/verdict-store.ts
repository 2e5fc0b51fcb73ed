// Verdicts and cancellations of earlier reconciles, as one run reads them and adds its own, slice by slice.
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

/** Unix seconds. */
interface Window {
  from: number;
  to: number;
}

/** The findings of a slice. */
export interface FoundInSlice {
  /** Cancellations the service has. */
  seen?: readonly SeenCancellation[];
  /** Bookings that the slice has no more. */
  goneIds?: readonly string[];
  /** Keys of bookings that neither side has any more. */
  forgotten?: readonly string[];
  matched?: readonly MatchedBooking[];
}

export type VerdictStore = ReturnType<typeof storeVerdicts>;

/** Keeps verdicts in the tables, as those of this run. */
export function storeVerdicts(db: Queries, runId: number) {
  return {
    readKnown: (wanted: Parameters<typeof readKnownBookings>[1]) => readKnownBookings(db, wanted),
    /** Bookings of a window that no slice has met, in the order of their keys. */
    readUnmet: (window: Window, page: { after: string; limit: number }) =>
      readUnmetBookings(db, runId, window, page),
    readCancellations: (wanted: Parameters<typeof readCancellations>[2]) =>
      readCancellations(db, runId, wanted),
    /** Cancellations of a window that no slice has met, in the order of their ids. */
    readUnmetCancellations: (window: Window, page: { after: string; limit: number }) =>
      readUnmetCancellations(db, runId, window, page),
    /** Writes all of it, or nothing. */
    keep: ({ seen = [], goneIds = [], forgotten = [], matched = [] }: FoundInSlice) =>
      db.transaction(async (tx) => {
        await writeCancellations(tx, runId, seen);
        await forgetCancellations(tx, goneIds);
        await forgetBookings(tx, runId, forgotten);
        await writeBookings(tx, runId, matched);
      }),
    count: () => countVerdicts(db, runId),
    /** Bookings that do not agree, earliest first. */
    listDiscrepancies: (limit: number) => listDiscrepancies(db, runId, limit),
  };
}
