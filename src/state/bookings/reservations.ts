// One row a booking as both sides were seen last, and a line in the history for each time that its verdict changed.
// Whoever listens on `slotsync_reservations` hears the key of each change.
import { sql } from 'drizzle-orm';
import { queryState, type Queries } from '../database.js';
import { storable } from '../records/outcomes.js';
import type { Differences, Verdict } from '../schema.js';

/** Verdicts that are no news of a booking that was not known before. */
const UNREMARKABLE = sql.raw(`('agrees', 'agrees_cancelled', 'not_compared')`);

/** Listeners hear keys here. A notification holds less than 8000 bytes. */
const CHANNEL = 'slotsync_reservations';
const MOST_CHARACTERS = 1900;

const KEEP_DAYS = 365;

/** A booking as it was judged. Times in milliseconds since 1970. */
export interface MatchedBooking {
  key: string;
  externalId: string | undefined;
  destinationId: number | undefined;
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

export interface KnownBooking {
  key: string;
  externalId: string | null;
  destinationId: number | null;
  verdict: Verdict;
}

/** One row of `reservations`, for people and programs. */
export interface ReservationRow extends KnownBooking {
  differs: Differences | null;
  problem: string | null;
  beginHere: string | null;
  endHere: string | null;
  beginThere: string | null;
  endThere: string | null;
  here: unknown;
  there: unknown;
  seenAt: string;
  runId: number | null;
}

export interface ReservationEvent {
  key: string;
  from: Verdict | null;
  to: Verdict | null;
  differs: Differences | null;
  at: string;
  runId: number | null;
}

/** What is known of bookings: by key, or by the service's id. */
export async function readKnownBookings(
  db: Queries,
  wanted: { keys: readonly string[]; destinationIds: readonly number[] },
): Promise<KnownBooking[]> {
  if (wanted.keys.length + wanted.destinationIds.length === 0) return [];
  return queryState(() =>
    db.execute<KnownBooking & Record<string, unknown>>(sql`
      SELECT key, external_id AS "externalId", destination_id::float8 AS "destinationId", verdict FROM slotsync.reservations
      WHERE key IN (SELECT jsonb_array_elements_text(${JSON.stringify(wanted.keys)}::jsonb))
      UNION
      SELECT key, external_id, destination_id::float8, verdict FROM slotsync.reservations
      WHERE destination_id IN (SELECT jsonb_array_elements_text(${JSON.stringify(wanted.destinationIds)}::jsonb)::bigint)`),
  );
}

/** Writes what was judged, and to the history what of it is new. Call it in the transaction of the slice. */
export async function writeBookings(
  tx: Queries,
  runId: number,
  judged: readonly MatchedBooking[],
): Promise<void> {
  if (judged.length === 0) return;
  await tx.execute(sql`
    WITH given AS (
      SELECT * FROM jsonb_to_recordset(${toJson(judged)}::jsonb) AS g(
        key text, "externalId" text, "destinationId" bigint, verdict text, differs jsonb, problem text,
        "beginHere" float8, "endHere" float8, "beginThere" float8, "endThere" float8, here jsonb, there jsonb)
    ), written AS (
      INSERT INTO slotsync.reservations (key, external_id, destination_id, verdict, differs, problem,
        begin_here, end_here, begin_there, end_there, here, there, seen_at, run_id)
      SELECT key, "externalId", "destinationId", verdict, differs, problem,
        to_timestamp("beginHere" / 1000), to_timestamp("endHere" / 1000),
        to_timestamp("beginThere" / 1000), to_timestamp("endThere" / 1000), here, there, now(), ${runId}::bigint
      FROM given
      ON CONFLICT (key) DO UPDATE SET
        external_id = excluded.external_id, destination_id = excluded.destination_id, verdict = excluded.verdict,
        differs = excluded.differs, problem = excluded.problem, begin_here = excluded.begin_here,
        end_here = excluded.end_here, begin_there = excluded.begin_there, end_there = excluded.end_there,
        here = excluded.here, there = excluded.there, seen_at = excluded.seen_at, run_id = excluded.run_id
    ), changed AS (
      INSERT INTO slotsync.reservation_events (key, from_verdict, to_verdict, differs, run_id)
      SELECT g.key, b.verdict, g.verdict, g.differs, ${runId}::bigint FROM given AS g
      -- As it was before: what the statement itself writes is not seen by it.
      LEFT JOIN slotsync.reservations AS b ON b.key = g.key
      WHERE CASE WHEN b.key IS NULL THEN g.verdict NOT IN ${UNREMARKABLE}
        ELSE b.verdict <> g.verdict OR b.differs IS DISTINCT FROM g.differs END
      RETURNING key
    )
    SELECT pg_notify(${CHANNEL}, left(key, ${MOST_CHARACTERS})) FROM changed`);
}

/** Forgets bookings that stand on neither side any more; the history says when. */
export async function forgetBookings(tx: Queries, runId: number, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  await tx.execute(sql`
    WITH gone AS (
      DELETE FROM slotsync.reservations
      WHERE key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))
      RETURNING key, verdict
    ), changed AS (
      INSERT INTO slotsync.reservation_events (key, from_verdict, run_id)
      SELECT key, verdict, ${runId}::bigint FROM gone RETURNING key
    )
    SELECT pg_notify(${CHANNEL}, left(key, ${MOST_CHARACTERS})) FROM changed`);
}

/**
 * Bookings of a window (Unix seconds) that a run has not met, in the order of their keys: the service's may have been
 * moved or removed, ours too.
 */
export async function readUnmetBookings(
  db: Queries,
  runId: number,
  window: { from: number; to: number },
  page: { after: string; limit: number },
): Promise<KnownBooking[]> {
  return queryState(() =>
    db.execute<KnownBooking & Record<string, unknown>>(sql`
      SELECT key, external_id AS "externalId", destination_id::float8 AS "destinationId", verdict FROM slotsync.reservations
      WHERE run_id IS DISTINCT FROM ${runId}::bigint AND key > ${page.after}
        AND ((begin_here < to_timestamp(${window.to}::float8) AND end_here > to_timestamp(${window.from}::float8))
          OR (begin_there < to_timestamp(${window.to}::float8) AND end_there > to_timestamp(${window.from}::float8))
          OR (begin_here IS NULL AND begin_there IS NULL))
      ORDER BY key LIMIT ${page.limit}`),
  );
}

/** How many bookings a run gave each verdict, and how many verdicts it changed. */
export async function countVerdicts(
  db: Queries,
  runId: number,
): Promise<{ verdicts: Partial<Record<Verdict, number>>; problems: number; events: number }> {
  const rows = await queryState(() =>
    db.execute<{ verdict: Verdict; count: number; problems: number }>(sql`
      SELECT verdict, count(*)::int AS count, count(problem)::int AS problems
      FROM slotsync.reservations WHERE run_id = ${runId}::bigint GROUP BY verdict`),
  );
  const [row] = await queryState(() =>
    db.execute<{ events: number }>(sql`
      SELECT count(*)::int AS events FROM slotsync.reservation_events WHERE run_id = ${runId}::bigint`),
  );
  return {
    verdicts: Object.fromEntries(rows.map(({ verdict, count }) => [verdict, count])),
    problems: rows.reduce((sum, { problems }) => sum + problems, 0),
    events: row?.events ?? 0,
  };
}

const BOOKING_COLUMNS = sql.raw(`key, external_id AS "externalId", destination_id::float8 AS "destinationId",
  verdict, differs, problem, begin_here AS "beginHere", end_here AS "endHere", begin_there AS "beginThere",
  end_there AS "endThere", here, there, seen_at AS "seenAt", run_id::float8 AS "runId"`);

/** What does not agree, of what a run has looked at, earliest first; and what it found restored. */
export async function listDiscrepancies(
  db: Queries,
  runId: number,
  limit: number,
): Promise<ReservationRow[]> {
  return queryState(() =>
    db.execute<ReservationRow & Record<string, unknown>>(sql`
      SELECT ${BOOKING_COLUMNS} FROM slotsync.reservations AS r
      WHERE run_id = ${runId}::bigint AND (verdict NOT IN ('agrees', 'agrees_cancelled', 'not_compared') OR problem IS NOT NULL)
        AND (verdict <> 'restored_there' OR EXISTS (
          SELECT FROM slotsync.reservation_events AS e WHERE e.key = r.key AND e.run_id = ${runId}::bigint))
      ORDER BY coalesce(begin_here, begin_there), key LIMIT ${limit}`),
  );
}

/** A booking by key, or by its external id, or by the service's id. */
export async function readBooking(db: Queries, name: string): Promise<ReservationRow | undefined> {
  const [row] = await queryState(() =>
    db.execute<ReservationRow & Record<string, unknown>>(sql`
      SELECT ${BOOKING_COLUMNS} FROM slotsync.reservations
      WHERE key = ${name} OR external_id = ${name} OR destination_id::text = ${name}
      ORDER BY key = ${name} DESC LIMIT 1`),
  );
  return row;
}

/** What became of a booking, latest first. */
export async function readBookingEvents(
  db: Queries,
  key: string,
  limit: number,
): Promise<ReservationEvent[]> {
  return queryState(() =>
    db.execute<ReservationEvent & Record<string, unknown>>(sql`
      SELECT key, from_verdict AS "from", to_verdict AS "to", differs, at, run_id::float8 AS "runId"
      FROM slotsync.reservation_events WHERE key = ${key} ORDER BY id DESC LIMIT ${limit}`),
  );
}

/** Deletes what is older than it is kept: history, and bookings that were over for so long. */
export async function pruneBookings(db: Queries): Promise<void> {
  const before = sql`now() - make_interval(days => ${KEEP_DAYS})`;
  await queryState(async () => {
    await db.execute(sql`DELETE FROM slotsync.reservation_events WHERE at < ${before}`);
    await db.execute(sql`
      DELETE FROM slotsync.reservations
      WHERE greatest(end_here, end_there) < ${before} AND seen_at < ${before}`);
    await db.execute(sql`DELETE FROM slotsync.cancellations WHERE "end" < ${before} AND seen_at < ${before}`);
  });
}

/** PostgreSQL stores neither NUL nor half a character, and either may stand in an answer. */
function toJson(value: unknown): string {
  return JSON.stringify(value, (_, field: unknown) => (typeof field === 'string' ? storable(field) : field));
}
