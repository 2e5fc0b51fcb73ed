// The keys of what is held for approval: they stand in held batches, and many of them have no record yet.
import { createHash } from 'node:crypto';
import { sql } from 'drizzle-orm';
import { quoteLiteral } from '../../text/sql-text.js';
import { anyOf, query, queryOne, type Queries, type State } from '../database.js';
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
  const [row] = await query<{ id: number; keys: string[]; since: Date }>(db)`
    SELECT b.id::float8 AS id, b.keys, b.created_at AS since FROM slotsync.batches AS b
    WHERE ${isHeld(hold)} AND b.id > ${after}::bigint ORDER BY b.id LIMIT 1`;
  return row;
}

/** Returns those of the keys that are held. */
export async function findHeldKeys(db: Queries, hold: HeldPart, keys: readonly string[]): Promise<string[]> {
  if (keys.length === 0) return [];
  const rows = await query<{ key: string }>(db)`
    SELECT DISTINCT k.key FROM slotsync.batches AS b, unnest(b.keys) AS k(key)
    WHERE ${isHeld(hold)} AND k.key = ${anyOf(keys)}`;
  return rows.map(({ key }) => key);
}

/** How many keys of one hold are in another one, too. */
export async function countAlsoHeld(db: Queries, own: HeldPart, other: HeldPart): Promise<number> {
  const keysOf = (part: HeldPart) =>
    sql`SELECT k.key FROM slotsync.batches AS b, unnest(b.keys) AS k(key) WHERE ${isHeld(part)}`;
  const { count } = await queryOne<{ count: number }>(db)`
    SELECT count(*)::int AS count FROM (${keysOf(own)} INTERSECT ${keysOf(other)}) AS shared`;
  return count;
}

/**
 * SHA-256 of the keys of what is held, each once, in byte order, each with a line feed behind it as COPY writes them. The
 * server sorts them, on disk when there are many.
 */
export async function digestHeldKeys(state: State, hold: HeldPart): Promise<string> {
  const digest = createHash('sha256');
  const statement = `COPY (SELECT DISTINCT k.key COLLATE "C" AS key FROM slotsync.batches AS b, unnest(b.keys) AS k(key)
    WHERE b.run_id = ${hold.runId} AND b.stream = ${quoteLiteral(hold.stream)}
      AND b.operation = ${quoteLiteral(hold.operation)} AND b.state = 'held' ORDER BY key) TO STDOUT`;
  for await (const block of state.copy(statement)) digest.update(`${block.join('\n')}\n`, 'latin1');
  return digest.digest('hex');
}
