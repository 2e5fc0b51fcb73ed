// Verdicts and cancellations of earlier reconciles. A reconcile reads them and writes its own, slice by slice. A
// cancellation has its own ids, so slotsync knows what was cancelled only if it has seen the reservation before. If a
// cancellation disappears, its reservation is back.
import { anyOf, query, queryColumn, type Queries, type RowOf } from '../database.js';
import {
  countVerdicts,
  listDiscrepancies,
  readKnownBookings,
  readUnmetBookings,
  UNREMARKABLE_LIST,
} from './read-reservations.js';
import type { cancellations, Differences, Verdict } from '../schema.js';
import { toStorableJson } from '../records/outcome-types.js';

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

/** A cancellation as read from the service. Times are in milliseconds since 1970. */
export interface SeenCancellation {
  id: string;
  extId: string | undefined;
  reservationId: string | undefined;
  cancelledAt: number | undefined;
  begin: number;
  end: number;
}

export interface KnownCancellation extends Pick<RowOf<typeof cancellations>, 'externalId'> {
  id: string;
  reservationId: string | null;
  /** True if this run has seen the cancellation at the service. */
  isMet: boolean;
}

/** Properties of a cancellation that the state stores. The service returns more. */
const SEEN = [
  'id',
  'extId',
  'reservationId',
  'cancelledAt',
  'begin',
  'end',
] satisfies (keyof SeenCancellation)[];

export async function writeCancellations(db: Queries, runId: number, seen: readonly SeenCancellation[]) {
  if (seen.length === 0) return;
  await query(db)`
    INSERT INTO slotsync.cancellations
      (destination_id, external_id, reservation, cancelled_at, begin, "end", seen_at, run_id)
    SELECT id, "extId", "reservationId", to_timestamp("cancelledAt" / 1000), to_timestamp(begin / 1000),
      to_timestamp("end" / 1000), now(), ${runId}::bigint
    FROM jsonb_to_recordset(${JSON.stringify(seen, SEEN)}::jsonb) AS c(
      id text, "extId" text, "reservationId" text, "cancelledAt" float8, begin float8, "end" float8)
    ON CONFLICT (destination_id) DO UPDATE SET
      external_id = excluded.external_id, reservation = excluded.reservation, cancelled_at = excluded.cancelled_at,
      begin = excluded.begin, "end" = excluded."end", seen_at = excluded.seen_at, run_id = excluded.run_id`;
}

/** Returns stored cancellations of these reservations (ids of the service), or with these external ids. */
export async function readCancellations(
  db: Queries,
  runId: number,
  wanted: { reservationIds: readonly string[]; extIds: readonly string[] },
): Promise<KnownCancellation[]> {
  if (wanted.reservationIds.length + wanted.extIds.length === 0) return [];
  return query<KnownCancellation>(db)`
    SELECT destination_id AS id, external_id AS "externalId", reservation AS "reservationId",
      coalesce(run_id = ${runId}::bigint, false) AS "isMet"
    FROM slotsync.cancellations
    WHERE reservation = ${anyOf(wanted.reservationIds)} OR external_id = ${anyOf(wanted.extIds)}`;
}

/** Returns ids of stored cancellations in a window (Unix seconds) that the run has not seen, in order of the ids. */
export const readUnmetCancellations = (
  db: Queries,
  runId: number,
  window: { from: number; to: number },
  page: { after: string; limit: number },
) =>
  queryColumn<string>(db)`
    SELECT destination_id AS id FROM slotsync.cancellations
    WHERE run_id IS DISTINCT FROM ${runId}::bigint AND destination_id > ${page.after}
      AND begin < to_timestamp(${window.to}::float8) AND "end" > to_timestamp(${window.from}::float8)
    ORDER BY destination_id LIMIT ${page.limit}`;

export async function forgetCancellations(db: Queries, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await query(db)`DELETE FROM slotsync.cancellations WHERE destination_id = ${anyOf(ids)}`;
}

/**
 * NOTIFY channel to which the key of each change is sent. PostgreSQL limits a notification to less than 8000 bytes.
 */
const CHANNEL = 'slotsync_reservations';
const MOST_CHARACTERS = 1900;

/** A booking as it was compared. Times are in milliseconds since 1970. */
export interface MatchedBooking {
  key: string;
  externalId: string | undefined;
  destinationId: string | undefined;
  verdict: Verdict;
  differs: Differences | undefined;
  problem: string | undefined;
  beginHere: number | undefined;
  endHere: number | undefined;
  beginThere: number | undefined;
  endThere: number | undefined;
  here: unknown;
  there: unknown;
}

/**
 * Writes compared bookings, and each change of a verdict to the history. Call it in the transaction of the slice. The
 * join in `changed` sees the table as it was before the statement.
 */
export async function writeBookings(tx: Queries, runId: number, bookings: readonly MatchedBooking[]) {
  if (bookings.length === 0) return;
  await query(tx)`
    WITH given AS (
      SELECT key COLLATE "C" AS key, "externalId" AS external_id, "destinationId" AS destination_id, verdict, differs, problem,
        to_timestamp("beginHere" / 1000) AS begin_here, to_timestamp("endHere" / 1000) AS end_here,
        to_timestamp("beginThere" / 1000) AS begin_there, to_timestamp("endThere" / 1000) AS end_there, here, there
      FROM jsonb_to_recordset(${toStorableJson(bookings)}::jsonb) AS given(
        key text, "externalId" text, "destinationId" text, verdict text, differs jsonb, problem text,
        "beginHere" float8, "endHere" float8, "beginThere" float8, "endThere" float8, here jsonb, there jsonb)
    ), written AS (
      INSERT INTO slotsync.reservations (key, external_id, destination_id, verdict, differs, problem,
        begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id)
      SELECT g.*, now(), ${runId}::bigint FROM given AS g
      ON CONFLICT (key) DO UPDATE SET
        external_id = excluded.external_id, destination_id = excluded.destination_id, verdict = excluded.verdict,
        differs = excluded.differs, problem = excluded.problem, begin_here = excluded.begin_here,
        end_here = excluded.end_here, begin_there = excluded.begin_there, end_there = excluded.end_there,
        here = excluded.here, there = excluded.there, seen_at = excluded.seen_at, run_id = excluded.run_id
    ), changed AS (
      INSERT INTO slotsync.reservation_events (key, from_verdict, to_verdict, differs, run_id)
      SELECT g.key, b.verdict, g.verdict, g.differs, ${runId}::bigint
      FROM given AS g LEFT JOIN slotsync.reservations AS b ON b.key = g.key
      WHERE CASE WHEN b.key IS NULL THEN g.verdict NOT IN ${UNREMARKABLE_LIST}
        ELSE b.verdict <> g.verdict OR b.differs IS DISTINCT FROM g.differs END
      RETURNING key
    )
    SELECT pg_notify(${CHANNEL}, left(key, ${MOST_CHARACTERS})) FROM changed`;
}

/** Deletes bookings that neither side has any more, and notes this in the history. */
export async function forgetBookings(tx: Queries, runId: number, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  await query(tx)`
    WITH gone AS (
      DELETE FROM slotsync.reservations WHERE key = ${anyOf(keys)} RETURNING key, verdict
    ), changed AS (
      INSERT INTO slotsync.reservation_events (key, from_verdict, run_id)
      SELECT key, verdict, ${runId}::bigint FROM gone RETURNING key
    )
    SELECT pg_notify(${CHANNEL}, left(key, ${MOST_CHARACTERS})) FROM changed`;
}
