// Freezes: times in which nothing of a stream is written, whatever asks for it. Rows, also those of the configuration, so that
// every process obeys them, and everybody who reads the state sees them. The time is the database's.
import { sql, type SQL } from 'drizzle-orm';
import type { Freeze } from '../streams/freezes.js';
import { anyOf, query, type Queries, type RowOf } from './database.js';
import type { freezes } from './schema.js';

/** A freeze that has not ended. `isInForce`: it has begun. */
export type StandingFreeze = Omit<RowOf<typeof freezes>, 'id'> & { isInForce: boolean };

/** The streams that are frozen now: an expression. */
export const FROZEN_STREAMS = sql`ARRAY(
  SELECT f.stream FROM slotsync.freezes AS f WHERE f.begins_at <= now() AND f.ends_at > now())`;

/** Why a stream is frozen now, by the freeze that ends last; null: it is not. `stream`: an expression. */
export const reasonFrozen = (stream: SQL) => sql`(
  SELECT f.reason FROM slotsync.freezes AS f
  WHERE f.stream = ${stream} AND f.begins_at <= now() AND f.ends_at > now() ORDER BY f.ends_at DESC LIMIT 1)`;

/** The freezes that are in force or to come, those that end first first; of all streams, or of these. */
export async function listFreezes(db: Queries, streams?: readonly string[]): Promise<StandingFreeze[]> {
  return query<StandingFreeze>(db)`
    SELECT stream, begins_at AS "beginsAt", ends_at AS "endsAt", reason, frozen_by AS "frozenBy",
      begins_at <= now() AS "isInForce"
    FROM slotsync.freezes WHERE ends_at > now() AND ${streams ? sql`stream = ${anyOf(streams)}` : sql`true`}
    ORDER BY ends_at, begins_at, stream`;
}

/** The streams of these, or of all, that are frozen now, each by the freeze that ends last. */
export async function listFrozen(db: Queries, streams?: readonly string[]): Promise<StandingFreeze[]> {
  const inForce = (await listFreezes(db, streams)).filter(({ isInForce }) => isInForce);
  return [...new Map(inForce.map((freeze) => [freeze.stream, freeze])).values()];
}

/** Freezes streams from now on, at an operator's command. An earlier command's freeze of one of them is replaced. */
export async function freezeStreams(
  db: Queries,
  { streams, endsAt, reason }: { streams: readonly string[]; endsAt: Date; reason: string },
): Promise<void> {
  await query(db)`
    INSERT INTO slotsync.freezes AS f (stream, begins_at, ends_at, reason, frozen_by)
    SELECT stream, now(), ${endsAt.toISOString()}::text::timestamptz, ${reason}, 'command'
    FROM jsonb_array_elements_text(${JSON.stringify(streams)}::text::jsonb) AS s(stream)
    ON CONFLICT (stream) WHERE frozen_by = 'command'
      DO UPDATE SET begins_at = now(), ends_at = excluded.ends_at, reason = excluded.reason`;
}

/** Ends what commands have frozen of these streams. Returns those that were frozen. */
export async function unfreezeStreams(db: Queries, streams: readonly string[]): Promise<string[]> {
  const ended = await query<{ stream: string; wasFrozen: boolean }>(db)`
    DELETE FROM slotsync.freezes WHERE frozen_by = 'command' AND stream = ${anyOf(streams)}
    RETURNING stream, ends_at > now() AS "wasFrozen"`;
  return ended.flatMap(({ stream, wasFrozen }) => (wasFrozen ? stream : [])).toSorted();
}

/** Registers the freezes of the configuration in place of those that it had before. */
export async function registerFreezes(db: Queries, declared: readonly Freeze[]): Promise<void> {
  await query(db)`
    WITH declared AS MATERIALIZED (
      SELECT DISTINCT * FROM jsonb_to_recordset(${JSON.stringify(declared)}::text::jsonb)
        AS d(stream text, "beginsAt" timestamptz, "endsAt" timestamptz, reason text)
    ), removed AS (
      DELETE FROM slotsync.freezes WHERE frozen_by = 'configuration'
        AND (stream, begins_at, ends_at, reason) NOT IN (TABLE declared)
    )
    INSERT INTO slotsync.freezes (stream, begins_at, ends_at, reason, frozen_by)
    SELECT d.*, 'configuration' FROM declared AS d WHERE NOT EXISTS (
      SELECT FROM slotsync.freezes WHERE frozen_by = 'configuration'
        AND (stream, begins_at, ends_at, reason) = (d.stream, d."beginsAt", d."endsAt", d.reason))`;
}
