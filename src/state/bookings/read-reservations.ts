// Queries of the reservations table and its history.
import { sql } from 'drizzle-orm';
import { anyOf, query, queryOne, type Queries, type RowOf } from '../database.js';
import type { reservationEvents, reservations, Verdict } from '../schema.js';

/** A row of `reservations`, for people and programs. */
export type ReservationRow = RowOf<typeof reservations>;

export type KnownBooking = Pick<ReservationRow, 'key' | 'externalId' | 'destinationId' | 'verdict'>;

type EventRow = RowOf<typeof reservationEvents>;
export interface ReservationEvent extends Pick<EventRow, 'key' | 'differs' | 'at' | 'runId'> {
  from: Verdict | null;
  to: Verdict | null;
}

/** Verdicts that are no discrepancy; a new booking with one of them has no row in the history. */
const UNREMARKABLE: readonly Verdict[] = ['agrees', 'agrees_cancelled', 'not_compared'];
export const UNREMARKABLE_LIST = sql.raw(`(${UNREMARKABLE.map((verdict) => `'${verdict}'`).join(', ')})`);

const KNOWN = sql.raw(`key, external_id AS "externalId", destination_id AS "destinationId", verdict`);
/** The columns of a ReservationRow. */
const ALL = sql`${KNOWN}, differs, problem, begin_here AS "beginHere", end_here AS "endHere",
  begin_there AS "beginThere", end_there AS "endThere", here, there, seen_at AS "seenAt", run_id::float8 AS "runId"`;

/** The facts of bookings: by key, or by the service's number. */
export async function readKnownBookings(
  db: Queries,
  wanted: { keys: readonly string[]; destinationIds: readonly string[] },
): Promise<KnownBooking[]> {
  if (wanted.keys.length + wanted.destinationIds.length === 0) return [];
  return query<KnownBooking>(db)`
    SELECT ${KNOWN} FROM slotsync.reservations
    WHERE key = ${anyOf(wanted.keys)} OR destination_id = ${anyOf(wanted.destinationIds)}`;
}

/**
 * Bookings of a window (Unix seconds) that a run has not met, in the order of their keys: either side may have moved or
 * removed them.
 */
export async function readUnmetBookings(
  db: Queries,
  runId: number,
  window: { from: number; to: number },
  page: { after: string; limit: number },
): Promise<KnownBooking[]> {
  return query<KnownBooking>(db)`
    SELECT ${KNOWN} FROM slotsync.reservations
    WHERE run_id IS DISTINCT FROM ${runId}::bigint AND key > ${page.after}
      AND ((begin_here < to_timestamp(${window.to}::float8) AND end_here > to_timestamp(${window.from}::float8))
        OR (begin_there < to_timestamp(${window.to}::float8) AND end_there > to_timestamp(${window.from}::float8))
        OR (begin_here IS NULL AND begin_there IS NULL))
    ORDER BY key LIMIT ${page.limit}`;
}

export interface VerdictCounts {
  verdicts: Partial<Record<Verdict, number>>;
  /** Bookings with a problem. */
  problems: number;
  /** Verdicts that the run changed. */
  events: number;
}

export async function countVerdicts(db: Queries, runId: number): Promise<VerdictCounts> {
  const rows = await query<{ verdict: Verdict; count: number; problems: number }>(db)`
    SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
    FROM slotsync.reservations WHERE run_id = ${runId}::bigint GROUP BY verdict`;
  const { events } = await queryOne<{ events: number }>(db)`
    SELECT count(*)::int AS events FROM slotsync.reservation_events WHERE run_id = ${runId}::bigint`;
  return {
    verdicts: Object.fromEntries(rows.map(({ verdict, count }) => [verdict, count])),
    problems: rows.reduce((sum, { problems }) => sum + problems, 0),
    events,
  };
}

/** Bookings with a verdict, and of them those with a problem in the mirror. */
export interface VerdictCount {
  verdict: Verdict;
  count: number;
  problems: number;
}

/** All bookings by verdict, whatever run has compared them. */
export async function countBookings(db: Queries): Promise<VerdictCount[]> {
  return query<VerdictCount>(db)`
    SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
    FROM slotsync.reservations GROUP BY verdict ORDER BY verdict`;
}

/** The bookings that a run compared and that do not agree, earliest first; and those it found restored. */
export async function listDiscrepancies(db: Queries, runId: number, limit: number) {
  return query<ReservationRow>(db)`
    SELECT ${ALL} FROM slotsync.reservations AS r
    WHERE run_id = ${runId}::bigint AND (verdict NOT IN ${UNREMARKABLE_LIST} OR problem IS NOT NULL)
      AND (verdict <> 'restored_there' OR EXISTS (
        SELECT FROM slotsync.reservation_events AS e WHERE e.key = r.key AND e.run_id = ${runId}::bigint))
    ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`;
}

/** The bookings that do not agree, whichever run compared them, earliest first. */
export async function listAllDiscrepancies(db: Queries, limit: number) {
  return query<ReservationRow>(db)`
    SELECT ${ALL} FROM slotsync.discrepancies ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`;
}

/** The bookings of a week that do not agree. `day`: a day of the week. Undefined: the week of the next such booking, else of the last. */
export async function listDiscrepantWeek(
  db: Queries,
  { day, timeZone, limit }: { day: string | undefined; timeZone: string; limit: number },
) {
  const { monday } = await queryOne<{ monday: string }>(db)`
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

/** The same by verdict. */
export async function countDiscrepancies(db: Queries): Promise<VerdictCount[]> {
  return query<VerdictCount>(db)`
    SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
    FROM slotsync.discrepancies GROUP BY verdict ORDER BY count DESC, verdict`;
}

/** A booking by key, by its external id, or by the service's number. */
export async function readBooking(db: Queries, name: string): Promise<ReservationRow | undefined> {
  const [row] = await query<ReservationRow>(db)`
    SELECT ${ALL} FROM slotsync.reservations
    WHERE key = ${name} OR external_id = ${name} OR destination_id = ${name}
    ORDER BY key = ${name} DESC LIMIT 1`;
  return row;
}

/** The history of a booking, latest first. */
export async function readBookingEvents(db: Queries, key: string, limit: number) {
  return query<ReservationEvent>(db)`
    SELECT key, from_verdict AS "from", to_verdict AS "to", differs, at, run_id::float8 AS "runId"
    FROM slotsync.reservation_events WHERE key = ${key} ORDER BY id DESC LIMIT ${limit}`;
}

/** Changes of verdicts in a period. */
export async function countVerdictChanges(db: Queries, from: Date, to: Date): Promise<number> {
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM slotsync.reservation_events
    WHERE at BETWEEN ${from.toISOString()}::text::timestamptz AND ${to.toISOString()}::text::timestamptz`;
  return count;
}
