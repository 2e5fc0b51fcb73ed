// The keys of what is held for approval: they stand in held batches, and many of them have no record yet.
import { sql } from 'drizzle-orm';
import { anyOf, query, type Queries } from '../database.js';
import type { RunHold } from './holds.js';

type HeldPart = Pick<RunHold, 'runId' | 'stream' | 'operation'>;

/** The batches (named b) of what is held. */
const isHeld = ({ runId, stream, operation }: HeldPart) =>
  sql`b.run_id = ${runId}::bigint AND b.stream = ${stream} AND b.operation = ${operation} AND b.state = 'held'`;

/** A batch of what is held: the first one, or the next after the one with this number. */
export async function readHeldBatch(
  db: Queries,
  hold: HeldPart,
  after = 0,
): Promise<{ id: number; keys: string[]; since: Date } | undefined> {
  const [row] = await query<{ id: number; keys: string[]; since: string }>(db)`
    SELECT b.id::float8 AS id, b.keys, b.created_at AS since FROM slotsync.batches AS b
    WHERE ${isHeld(hold)} AND b.id > ${after}::bigint ORDER BY b.id LIMIT 1`;
  return row && { ...row, since: new Date(row.since) };
}

/** Which of these keys are held. */
export async function findHeldKeys(db: Queries, hold: HeldPart, keys: readonly string[]): Promise<string[]> {
  if (keys.length === 0) return [];
  const rows = await query<{ key: string }>(db)`
    SELECT DISTINCT k.key FROM slotsync.batches AS b, unnest(b.keys) AS k(key)
    WHERE ${isHeld(hold)} AND k.key = ${anyOf(keys)}`;
  return rows.map(({ key }) => key);
}
