// Cancellations that were seen at the service. A cancellation has its own ids, so slotsync knows what was cancelled
// only if it has seen the reservation before. If a cancellation disappears, its reservation is back.
import { anyOf, query, type Queries, type RowOf } from '../database.js';
import type { cancellations } from '../schema.js';

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
export async function readUnmetCancellations(
  db: Queries,
  runId: number,
  window: { from: number; to: number },
  page: { after: string; limit: number },
): Promise<string[]> {
  const rows = await query<{ id: string }>(db)`
    SELECT destination_id AS id FROM slotsync.cancellations
    WHERE run_id IS DISTINCT FROM ${runId}::bigint AND destination_id > ${page.after}
      AND begin < to_timestamp(${window.to}::float8) AND "end" > to_timestamp(${window.from}::float8)
    ORDER BY destination_id LIMIT ${page.limit}`;
  return rows.map(({ id }) => id);
}

export async function forgetCancellations(db: Queries, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await query(db)`DELETE FROM slotsync.cancellations WHERE destination_id = ${anyOf(ids)}`;
}
