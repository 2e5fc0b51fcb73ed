// Queries of the table `reservations` and of the history of verdicts.
import { sql } from 'drizzle-orm';
import { query, queryFirst, queryValue, type Queries, type RowOf } from '../database.js';
import { columnList, reservations, type reservationEvents, type Verdict } from '../schema.js';

export type ReservationRow = RowOf<typeof reservations>;

type EventRow = RowOf<typeof reservationEvents>;
export interface ReservationEvent extends Pick<EventRow, 'key' | 'differs' | 'at' | 'runId'> {
  from: Verdict | null;
  to: Verdict | null;
}

/** Verdicts that are no discrepancy. A new booking with such a verdict is not written to the history. */
const UNREMARKABLE: readonly Verdict[] = ['agrees', 'agrees_cancelled', 'not_compared'];
export const UNREMARKABLE_LIST = sql.raw(`(${UNREMARKABLE.map((verdict) => `'${verdict}'`).join(', ')})`);

const KNOWN_COLUMNS = ['key', 'externalId', 'destinationId', 'verdict'] as const;
export type KnownBooking = Pick<ReservationRow, (typeof KNOWN_COLUMNS)[number]>;
export const KNOWN = columnList(reservations, undefined, KNOWN_COLUMNS);
const ALL = columnList(reservations);

/** Counts the bookings and events of a run. `problems` is the number of bookings with a problem in the mirror. */
export async function countVerdicts(db: Queries, runId: number) {
  const rows = await query<VerdictCount>(db)`
    SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
    FROM slotsync.reservations WHERE run_id = ${runId}::bigint GROUP BY verdict`;
  const verdicts: Partial<Record<Verdict, number>> = Object.fromEntries(
    rows.map(({ verdict, count }) => [verdict, count]),
  );
  const problems = rows.reduce((sum, row) => sum + row.problems, 0);
  const events = await queryValue<number>(db)`
    SELECT count(*)::int FROM slotsync.reservation_events WHERE run_id = ${runId}::bigint`;
  // The two most frequent times by which bookings are earlier or later at the service, as a wrong zone shifts them.
  const shifts = await query<{ seconds: number; bookings: number }>(db)`
    SELECT extract(epoch FROM begin_there - begin_here)::int AS seconds, count(*)::int AS bookings
    FROM slotsync.reservations WHERE run_id = ${runId}::bigint AND verdict = 'differs' AND begin_there <> begin_here
      AND begin_there - begin_here = end_there - end_here AND extract(epoch FROM begin_there - begin_here) % 900 = 0
    GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 2`;
  return { verdicts, problems, events, shifts };
}

/** Bookings with one verdict: `count` is their number, `problems` how many have a problem in the mirror. */
export interface VerdictCount {
  verdict: Verdict;
  count: number;
  problems: number;
}

/** Counts all bookings by verdict, whichever run compared them. */
export const countBookings = (db: Queries) => query<VerdictCount>(db)`
  SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
  FROM slotsync.reservations GROUP BY verdict ORDER BY verdict`;

/** Returns bookings that disagree in this run, or that it found restored, earliest first. */
export const listDiscrepancies = (db: Queries, runId: number, limit: number) => query<ReservationRow>(db)`
  SELECT ${ALL} FROM slotsync.reservations AS r
  WHERE run_id = ${runId}::bigint AND (verdict NOT IN ${UNREMARKABLE_LIST} OR problem IS NOT NULL)
    AND (verdict <> 'restored_there' OR EXISTS (
      SELECT FROM slotsync.reservation_events AS e WHERE e.key = r.key AND e.run_id = ${runId}::bigint))
  ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`;

/** Returns bookings that disagree, from any run, earliest first. */
export const listAllDiscrepancies = (db: Queries, limit: number) => query<ReservationRow>(db)`
  SELECT ${ALL} FROM slotsync.discrepancies ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`;

/** Returns one week's bookings that disagree. Default week: of the next booking that disagrees, or of the last. */
export async function listDiscrepantWeek(
  db: Queries,
  { day, timeZone, limit }: { day: string | undefined; timeZone: string; limit: number },
) {
  const monday = await queryValue<string>(db)`
    SELECT date_trunc('week', coalesce(${day ?? null}::text::date::timestamp,
      min(begins) FILTER (WHERE begins > now() AT TIME ZONE ${timeZone}), max(begins), now() AT TIME ZONE ${timeZone}))::date::text AS monday
    FROM (SELECT coalesce(begin_here, begin_there) AT TIME ZONE ${timeZone} AS begins FROM slotsync.discrepancies) AS d`;
  const rows = await query<ReservationRow>(db)`
    SELECT ${ALL} FROM slotsync.discrepancies
    WHERE coalesce(begin_here, begin_there) >= ${monday}::text::timestamp AT TIME ZONE ${timeZone}
      AND coalesce(begin_here, begin_there) < (${monday}::text::timestamp + interval '7 days') AT TIME ZONE ${timeZone}
    ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`;
  return { monday, rows };
}

export const countDiscrepancies = (db: Queries) => query<VerdictCount>(db)`
  SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
  FROM slotsync.discrepancies GROUP BY verdict ORDER BY count DESC, verdict`;

/** Returns the booking with this key, external id, or number of the service. */
export const readBooking = (db: Queries, name: string) => queryFirst<ReservationRow>(db)`
  SELECT ${ALL} FROM slotsync.reservations
  WHERE key = ${name} OR external_id = ${name} OR destination_id = ${name}
  ORDER BY key = ${name} DESC LIMIT 1`;

export const readBookingEvents = (db: Queries, key: string, limit: number) => query<ReservationEvent>(db)`
  SELECT key, from_verdict AS "from", to_verdict AS "to", differs, at, run_id::float8 AS "runId"
  FROM slotsync.reservation_events WHERE key = ${key} ORDER BY id DESC LIMIT ${limit}`;

export const countVerdictChanges = (db: Queries, from: Date, to: Date) => queryValue<number>(db)`
  SELECT count(*)::int AS count FROM slotsync.reservation_events
  WHERE at BETWEEN ${from.toISOString()}::text::timestamptz AND ${to.toISOString()}::text::timestamptz`;

export interface ReservationsWatermark {
  /** Time in Unix seconds. */
  readUpTo: number;
  /** Seconds since this watermark was stored. */
  ageSeconds: number;
}

/** Returns the time up to which all changes at the service were read. Undefined if they were never read. */
export const readReservationsWatermark = (db: Queries) => queryFirst<ReservationsWatermark>(db)`
  SELECT extract(epoch FROM read_up_to)::float8 AS "readUpTo",
    extract(epoch FROM now() - moved_at)::float8 AS "ageSeconds"
  FROM slotsync.reservations_watermark`;

export async function moveReservationsWatermark(db: Queries, readUpTo: number): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.reservations_watermark (read_up_to) VALUES (to_timestamp(${readUpTo}::float8))
    ON CONFLICT (single_row) DO UPDATE SET read_up_to = excluded.read_up_to, moved_at = now()`;
}
