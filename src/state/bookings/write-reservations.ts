// Writes the table `reservations`: a row for each booking as both sides were last read, and a history of changes.
import { anyOf, query, type Queries } from '../database.js';
import { toStorableJson } from '../records/outcome-types.js';
import type { Differences, Verdict } from '../schema.js';
import { UNREMARKABLE_LIST } from './read-reservations.js';

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
