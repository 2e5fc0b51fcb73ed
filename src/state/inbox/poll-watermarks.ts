// Position up to which each stream was polled by its cursor. Only one process polls at a time.
import { query, queryOne, type Queries, type State } from '../database.js';
import { tryLock, whileHolding } from '../locks.js';

/** Position in the order of a stream's cursor. `cursor` is the value as text, in full precision. */
export interface CursorPosition {
  cursor: string;
  localKey: string;
}

export interface CursorColumn {
  column: string;
  type: string;
}

export interface BeforePoll {
  watermark: (CursorPosition & CursorColumn) | undefined;
  /** True if a problem that an earlier poll noted still exists. */
  hasFailed: boolean;
}

/**
 * Runs one poll of a stream. Everything that `poll` writes is one transaction. Returns `busy` if another process polls.
 * Returns undefined if the stream was never synced, or during its first sync, which sends all rows anyway.
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

/** Stores the position up to which a stream was polled. Without a position, the next poll begins at the first row. */
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
