// Freezes: periods in which nothing of a stream is written. A stream is frozen while any freeze applies to it. Freezes
// of the configuration are rows too, so that every process obeys them. All times are by the database clock.
import { sql, type SQL } from 'drizzle-orm';
import { arrayLiteral } from '../text/sql-text.js';
import type { Freeze } from '../streams/freezes.js';
import { query, type Queries, type RowOf } from './database.js';
import { columnList, freezes } from './schema.js';

/** Freeze that has not ended. `isInForce` is true if it has begun. */
export type StandingFreeze = RowOf<typeof freezes> & { isInForce: boolean };

/** Stream that is frozen now, with the freeze that ends last. */
export interface FrozenStream extends Pick<StandingFreeze, 'endsAt' | 'reason' | 'isDeclared'> {
  stream: string;
}

const IS_IN_FORCE = sql`(f.begins_at <= now() AND f.ends_at > now())`;

/** SQL: freeze `f` applies to the stream. `stream` is an SQL expression. */
const isOf = (stream: SQL) =>
  sql`(${stream} = ANY (f.streams) OR f.streams IS NULL AND ${stream} <> ALL (f.except_streams))`;

/** SQL: the stream is frozen now. `stream` is an SQL expression for its name. */
export const isFrozen = (stream: SQL) =>
  sql`EXISTS (SELECT FROM slotsync.freezes AS f WHERE ${IS_IN_FORCE} AND ${isOf(stream)})`;

/** SQL: array of the given streams that are not frozen now. PostgreSQL evaluates it once for a statement. */
export const unfrozen = (streams: readonly string[]) =>
  sql`ARRAY(SELECT name FROM unnest(${arrayLiteral(streams)}::text[]) AS name WHERE NOT ${isFrozen(sql`name`)})`;

/** SQL: reason of the stream's freeze that ends last. Null if it is not frozen. `stream` is an SQL expression. */
export const reasonFrozen = (stream: SQL) => sql`(
  SELECT f.reason FROM slotsync.freezes AS f WHERE ${IS_IN_FORCE} AND ${isOf(stream)} ORDER BY f.ends_at DESC LIMIT 1)`;

/** SQL: time when the last freeze of a stream ended. Null if there was no freeze. `stream` is an SQL expression. */
export const lastFrozen = (stream: SQL) =>
  sql`(SELECT max(f.ends_at) FROM slotsync.freezes AS f WHERE f.ends_at <= now() AND ${isOf(stream)})`;

/** Returns current and future freezes, ordered by their end. */
export const listFreezes = (db: Queries) => query<StandingFreeze>(db)`
  SELECT ${columnList(freezes)}, begins_at <= now() AS "isInForce"
  FROM slotsync.freezes WHERE ends_at > now() ORDER BY ends_at, begins_at, id`;

export const listFrozen = (db: Queries, streams: readonly string[]) => query<FrozenStream>(db)`
  SELECT DISTINCT ON (name) name AS stream, f.ends_at AS "endsAt", f.reason, f.is_declared AS "isDeclared"
  FROM unnest(${arrayLiteral(streams)}::text[]) AS name JOIN slotsync.freezes AS f ON ${isOf(sql`name`)}
  WHERE ${IS_IN_FORCE} ORDER BY name, f.ends_at DESC`;

/** Freezes streams from now on, or all streams if `streams` is null. Existing freezes are not changed. */
export async function freezeStreams(
  db: Queries,
  {
    streams,
    endsAt,
    reason,
    by,
  }: { streams: readonly string[] | null; endsAt: Date; reason: string; by: string | null },
): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.freezes (streams, ends_at, reason, frozen_by)
    VALUES (${streams && arrayLiteral(streams)}::text[], ${endsAt.toISOString()}::text::timestamptz, ${reason}, ${by})`;
}

/**
 * Ends the freezes of these streams that commands started. A freeze that also covers other streams continues for the
 * other streams. Ended freezes keep their rows for some time, because the age of changes that waited counts from the
 * end of the freeze. Returns the streams whose freeze was ended.
 */
export async function unfreezeStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const names = sql`${arrayLiteral(streams)}::text[]`;
  const ended = await query<{ stream: string }>(db)`
    WITH meant AS MATERIALIZED (
      SELECT f.id, name AS stream FROM slotsync.freezes AS f CROSS JOIN unnest(${names}) AS name
      WHERE NOT f.is_declared AND f.ends_at > now() AND ${isOf(sql`name`)}
    ), cut AS (
      UPDATE slotsync.freezes AS f SET
        streams = CASE WHEN NOT f.streams <@ ${names} THEN ARRAY(SELECT unnest(f.streams) EXCEPT SELECT unnest(${names})) ELSE f.streams END,
        except_streams = CASE WHEN f.streams IS NULL THEN f.except_streams || ${names} ELSE '{}' END,
        ends_at = CASE WHEN f.streams <@ ${names} THEN now() ELSE f.ends_at END
      WHERE f.id IN (SELECT id FROM meant) RETURNING f.*
    ), left_behind AS (
      INSERT INTO slotsync.freezes (streams, begins_at, ends_at, reason, frozen_by)
      SELECT ARRAY(SELECT stream FROM meant AS m WHERE m.id = c.id), begins_at, now(), reason, frozen_by
      FROM cut AS c WHERE c.ends_at > now() AND c.begins_at < now()
    )
    SELECT DISTINCT stream FROM meant ORDER BY stream`;
  return ended.map(({ stream }) => stream);
}

/** Ends all freezes that commands have started. Freezes of the configuration continue. */
export async function endFreezes(db: Queries): Promise<void> {
  await query(db)`
    UPDATE slotsync.freezes SET ends_at = now() WHERE NOT is_declared AND ends_at > now() AND begins_at < now()`;
}

/** Replaces the declared freezes by those of the current configuration. */
export async function registerFreezes(db: Queries, declared: readonly Freeze[]): Promise<void> {
  await query(db)`
    WITH declared AS MATERIALIZED (
      SELECT DISTINCT ARRAY[stream] AS streams, "beginsAt", "endsAt", reason
      FROM jsonb_to_recordset(${JSON.stringify(declared)}::text::jsonb)
        AS d(stream text, "beginsAt" timestamptz, "endsAt" timestamptz, reason text)
    ), removed AS (
      DELETE FROM slotsync.freezes WHERE is_declared AND (streams, begins_at, ends_at, reason) NOT IN (TABLE declared)
    )
    INSERT INTO slotsync.freezes (streams, begins_at, ends_at, reason, is_declared)
    SELECT d.*, true FROM declared AS d WHERE NOT EXISTS (
      SELECT FROM slotsync.freezes WHERE is_declared
        AND (streams, begins_at, ends_at, reason) = (d.streams, d."beginsAt", d."endsAt", d.reason))`;
}
