// How far each stream was polled by its cursor. One process polls at a time.
import { query, queryOne, type Queries, type State } from '../database.js';
import { tryLock, whileHolding } from '../locks.js';

/** A position in the order of a stream's cursor. The cursor's value is text at full precision. */
export interface CursorPosition {
  cursor: string;
  localKey: string;
}

/** The column that a position was read of, and its type. */
export interface CursorColumn {
  column: string;
  type: string;
}

/** Facts of a stream before a poll. */
export interface BeforePoll {
  watermark: (CursorPosition & CursorColumn) | undefined;
  /** The problem that an earlier poll has noted still stands. */
  hasFailed: boolean;
}

/**
 * Runs one poll of a stream; what `poll` writes is one transaction. `busy`: another process is polling. Undefined when it was
 * never synced, or when its first sync is under way: what that run sends need not go through the inbox.
 */
export async function withPoll<T>(
  { db }: Pick<State, 'db'>,
  stream: string,
  poll: (tx: Queries, before: BeforePoll) => Promise<T>,
): Promise<T | 'busy' | undefined> {
  return db.transaction(async (tx) => {
    if (!(await tryLock(tx, 'polling'))) return 'busy';
    const { isSynced, isSyncing, watermark, hasFailed } = await queryOne<{
      isSynced: boolean;
      isSyncing: boolean;
      watermark: BeforePoll['watermark'] | null;
      hasFailed: boolean;
    }>(tx)`
      SELECT EXISTS (SELECT FROM slotsync.records WHERE stream = n.name) AS "isSynced",
        EXISTS (SELECT FROM slotsync.runs WHERE finished_at IS NULL AND kind <> 'incremental'
          AND n.name = ANY (streams)) AS "isSyncing",
        CASE WHEN s.cursor IS NOT NULL THEN jsonb_build_object('cursor', s.cursor, 'localKey', s.cursor_key,
          'column', s.cursor_column, 'type', s.cursor_type) END AS watermark,
        coalesce(s.problem @> '{"runId": null, "isWhole": false}', false) AS "hasFailed"
      FROM (SELECT ${stream}::text AS name) AS n LEFT JOIN slotsync.streams AS s ON s.stream = n.name`;
    if (!isSynced || (isSyncing && !watermark)) return undefined;
    return whileHolding(tx, () => poll(tx, { watermark: watermark ?? undefined, hasFailed }));
  });
}

/** Notes that a stream was polled up to this position. Undefined: it is polled from its first row again. */
export async function setWatermark(
  tx: Queries,
  stream: string,
  to: (CursorPosition & CursorColumn) | undefined,
): Promise<void> {
  await query(tx)`
    INSERT INTO slotsync.streams (stream, cursor, cursor_key, cursor_column, cursor_type, cursor_moved_at)
    VALUES (${stream}, ${to?.cursor ?? null}, ${to?.localKey ?? null}, ${to?.column ?? null}, ${to?.type ?? null}, now())
    ON CONFLICT (stream) DO UPDATE SET cursor = excluded.cursor, cursor_key = excluded.cursor_key,
      cursor_column = excluded.cursor_column, cursor_type = excluded.cursor_type,
      cursor_moved_at = excluded.cursor_moved_at`;
}
