// Verdicts and cancellations of earlier reconciles. A reconcile reads them and writes its own, slice by slice. A
// cancellation has its own ids, so slotsync knows what was cancelled only if it has seen the reservation before. If a
// cancellation disappears, its reservation is back.
import { anyOf, query, queryColumn, type Queries } from '../database.js';
import {
  countVerdicts,
  KNOWN,
  listDiscrepancies,
  UNREMARKABLE_LIST,
  type KnownBooking,
} from './read-reservations.js';
import type { Differences, Verdict } from '../schema.js';
import { toStorableJson } from '../records/outcome-types.js';

/** Period of time in Unix seconds. */
interface Window {
  from: number;
  to: number;
}

interface Page {
  after: string;
  limit: number;
}

/** Results of comparing one slice, a period whose bookings fit in memory. */
interface FoundInSlice {
  seen?: readonly SeenCancellation[];
  /** Ids of cancellations that the service no longer has. */
  goneIds?: readonly string[];
  /** Keys of bookings that neither side has any more. */
  forgotten?: readonly string[];
  matched?: readonly MatchedBooking[];
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

export type VerdictStore = ReturnType<typeof storeVerdicts>;

/** Reads and writes verdicts in the state on behalf of one run. */
export function storeVerdicts(db: Queries, runId: number) {
  return {
    /** Returns the stored bookings with one of these keys, or with one of these numbers of the service. */
    async readKnown({
      keys,
      destinationIds,
    }: {
      keys: readonly string[];
      destinationIds: readonly string[];
    }) {
      if (keys.length + destinationIds.length === 0) return [];
      return query<KnownBooking>(db)`
        SELECT ${KNOWN} FROM slotsync.reservations
        WHERE key = ${anyOf(keys)} OR destination_id = ${anyOf(destinationIds)}`;
    },

    /** Returns stored bookings of a window that no slice of the run has compared, ordered by key. */
    readUnmet: ({ from, to }: Window, { after, limit }: Page) => query<KnownBooking>(db)`
      SELECT ${KNOWN} FROM slotsync.reservations
      WHERE run_id IS DISTINCT FROM ${runId}::bigint AND key > ${after}
        AND ((begin_here < to_timestamp(${to}::float8) AND end_here > to_timestamp(${from}::float8))
          OR (begin_there < to_timestamp(${to}::float8) AND end_there > to_timestamp(${from}::float8))
          OR (begin_here IS NULL AND begin_there IS NULL))
      ORDER BY key LIMIT ${limit}`,

    /**
     * Returns stored cancellations of these reservations (ids of the service), or with these external ids. `isMet` is true
     * if this run has seen the cancellation at the service.
     */
    async readCancellations(wanted: { reservationIds: readonly string[]; extIds: readonly string[] }) {
      if (wanted.reservationIds.length + wanted.extIds.length === 0) return [];
      return query<
        Record<'id', string> & Record<'externalId' | 'reservationId', string | null> & { isMet: boolean }
      >(db)`
        SELECT destination_id AS id, external_id AS "externalId", reservation AS "reservationId",
          coalesce(run_id = ${runId}::bigint, false) AS "isMet"
        FROM slotsync.cancellations
        WHERE reservation = ${anyOf(wanted.reservationIds)} OR external_id = ${anyOf(wanted.extIds)}`;
    },

    /** Returns ids of stored cancellations of a window that no slice of the run has seen, in order of the ids. */
    readUnmetCancellations: ({ from, to }: Window, { after, limit }: Page) => queryColumn<string>(db)`
      SELECT destination_id FROM slotsync.cancellations
      WHERE run_id IS DISTINCT FROM ${runId}::bigint AND destination_id > ${after}
        AND begin < to_timestamp(${to}::float8) AND "end" > to_timestamp(${from}::float8)
      ORDER BY destination_id LIMIT ${limit}`,

    /** Writes all results of a slice in one transaction. */
    keep: ({ seen = [], goneIds = [], forgotten = [], matched = [] }: FoundInSlice) =>
      db.transaction(async (tx) => {
        if (seen.length > 0) await writeCancellations(tx, runId, seen);
        if (goneIds.length > 0)
          await query(tx)`DELETE FROM slotsync.cancellations WHERE destination_id = ${anyOf(goneIds)}`;
        if (forgotten.length > 0) await forgetBookings(tx, runId, forgotten);
        if (matched.length > 0) await writeBookings(tx, runId, matched);
      }),

    count: () => countVerdicts(db, runId),
    /** Returns the bookings that disagree, earliest first. */
    listDiscrepancies: (limit: number) => listDiscrepancies(db, runId, limit),
  };
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

async function writeCancellations(db: Queries, runId: number, seen: readonly SeenCancellation[]) {
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

/**
 * NOTIFY channel to which the key of each change is sent. PostgreSQL limits a notification to less than 8000 bytes.
 */
const CHANNEL = 'slotsync_reservations';
const MOST_CHARACTERS = 1900;

/**
 * Writes compared bookings, and each change of a verdict to the history. The join in `changed` sees the table as it was before the statement.
 */
async function writeBookings(tx: Queries, runId: number, bookings: readonly MatchedBooking[]) {
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
async function forgetBookings(tx: Queries, runId: number, keys: readonly string[]): Promise<void> {
  await query(tx)`
    WITH gone AS (
      DELETE FROM slotsync.reservations WHERE key = ${anyOf(keys)} RETURNING key, verdict
    ), changed AS (
      INSERT INTO slotsync.reservation_events (key, from_verdict, run_id)
      SELECT key, verdict, ${runId}::bigint FROM gone RETURNING key
    )
    SELECT pg_notify(${CHANNEL}, left(key, ${MOST_CHARACTERS})) FROM changed`;
}
